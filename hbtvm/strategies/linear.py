"""Linear models on CPUs: sums of weighted numbers and of table entries, in one pass over the rows.

With numbers x, shifts s, weights w, values f for missing numbers and tables of codes t::

    numbers[o, r] = sum over k of isnan(x[r, k]) ? f[k, o] : (x[r, k] - s[k]) * w[k, o]
    codes[o, r]   = sum over c of t[first[c] + code[r, c], o]
    scores[o, r]  = numbers[o, r] + codes[o, r]

Rows are widened to float64 as they are read. Vectors run over rows or over outputs (knob ``axis``). Where
they run over rows, what a vector needs lies a row apart, so a tile may be transposed first (knob ``read``).
Where they run over outputs, tables are padded to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_argument, table
from hbtvm.schedules.cpu import linear as linear_cpu
from hbtvm.schedules.cpu.linear import padded_outputs
from hbtvm.schedules.cpu.sharing import WORTH_SHARING, balanced
from hbtvm.schedules.cpu.steps import transposed_lanes
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import LinearWorkload, Workload, family_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.columns import placeholder, transposed_tile
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.linear_operand import LinearOperand
from hbtvm.strategies.scores import unaligned_rows


class LinearSum(Strategy):
    """Holds any linear model."""

    name = "linear"
    schedule = linear_cpu

    def refuse(self, workload: Workload) -> str | None:
        if family_of(workload) != "linear":
            return "linear holds linear models, no trees"
        return None

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        own = cast(LinearWorkload, workload)
        if own["threads"] == 1 or own["rows"] == 1:
            return config
        alone: Config = {**config, "parallel": "none", "grain": 1}
        if own["rows"] * self.nanoseconds(workload) < WORTH_SHARING:
            return alone
        return balanced({**alone, "parallel": "rows"}, workload, self.space(workload, target))

    def nanoseconds(self, workload: Workload) -> float:
        """About what a row of a large batch takes."""
        own = cast(LinearWorkload, workload)
        return 2.0 + (0.4 * own["numbers"] + own["codes"]) * max(1.0, own["outputs"] / 4)

    def signature(self, workload: Workload, config: Config) -> Signature:
        rows, scores, parts = self.ends(workload, config)
        return Signature((rows, *self.arguments(workload, config), scores), 1, parts)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        own, row_tile = cast(LinearWorkload, workload), int(config["row_tile"])
        scores = scores_argument((1, own["outputs"], row_tile))
        return rows_argument(own["dtype"], row_tile, own["features"]), scores, 1

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return linear_arguments(cast(LinearWorkload, workload), padded_outputs(workload, config))

    def _shared(self, operand: LinearOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: LinearOperand, config: Config) -> dict[str, np.ndarray]:
        return linear_tables(operand, padded_outputs(operand.workload(1), config))

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}

    def function(self, workload: Workload, config: Config) -> Any:
        return _function(cast(LinearWorkload, workload), config, self.arguments(workload, config))


def linear_arguments(own: LinearWorkload, outputs: int) -> tuple[Argument, ...]:
    """The tables of a linear model, of so many outputs, in argument order."""
    numbers, codes, features = own["numbers"], own["codes"], own["features"]
    told = []
    if numbers and not own["in_order"]:
        told.append(table("feature", "int32", (numbers,), "index", below=features))
    if numbers and own["shifts"]:
        told.append(table("shift", "float64", (numbers,)))
    if numbers:
        told.append(table("weight", "float64", (numbers, outputs)))
    if numbers and own["fills_missing"]:
        told.append(table("filled", "float64", (numbers, outputs)))
    if codes:
        told.append(table("code_feature", "int32", (codes,), "index", below=features))
        told.append(table("code_first", "int32", (codes,), "code_run", entries=own["entries"]))
        told.append(table("code_last", own["dtype"], (codes,)))
        told.append(table("entries", "float64", (own["entries"], outputs)))
    return tuple(told)


def linear_tables(operand: LinearOperand, outputs: int) -> dict[str, np.ndarray]:
    """Return the tables of `linear_arguments` by name; outputs beyond the model's are 0."""

    def wide(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(values, ((0, 0), (0, outputs - values.shape[1]))))

    own = cast(LinearWorkload, operand.workload(1))
    every = operand.sums.tables()
    for name in every.keys() & {"weight", "missing", "entries"}:
        every[name] = wide(every[name])
    if "missing" in every:
        every["filled"] = every["missing"]
    if "code_last" in every:
        every["code_last"] = every["code_last"].astype(operand.dtype)
    return {argument.name: every[argument.name] for argument in linear_arguments(own, outputs)}


def _function(own: LinearWorkload, config: Config, arguments: tuple[Argument, ...]) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    block = 0
    if config["read"] == "transposed":
        block = transposed_lanes(int(config["lanes"]), own["dtype"])
    outputs = int(arguments[-1].shape[-1]) if arguments else own["outputs"]
    method = str(config["lookup"])

    def entry(entries: Any, index: Any, o: Any) -> Any:
        if config["axis"] == "outputs":
            return entries[index, o]
        at = index if outputs == 1 else index * outputs + o
        return lookup(entries[0, 0], at, own["entries"] * outputs, method)

    def columns(rows: Any) -> Any:
        return transposed_tile(rows, block, "columns") if block else None

    return unaligned_rows(linear_function(own, int(config["row_tile"]), arguments, columns, entry))


def linear_function(
    own: LinearWorkload,
    row_tile: int,
    arguments: tuple[Argument, ...],
    transpose: Callable[[Any], Any],
    entry: Callable[..., Any],
) -> Any:
    """Return the kernel's `PrimFunc`, for any kind of target.

    `row_tile`: rows of a tile.
    `arguments`: from `linear_arguments`.
    `transpose`: from the rows' tensor to a stage that has them by columns, shape (tiles, columns, row_tile);
        to None where they are read as they are.
    `entry`: from table of entries, row and output to an entry.
    """
    outputs = int(arguments[-1].shape[-1]) if arguments else own["outputs"]
    tiles = te.var("tiles", "int64")
    rows = te.placeholder((tiles, row_tile, own["features"]), own["dtype"], name="rows")
    given = {argument.name: placeholder(argument) for argument in arguments}
    columns = transpose(rows)

    def value(i: Any, r: Any, f: Any) -> Any:
        return rows[i, r, f] if columns is None else columns[i, f, r]

    sums = []
    shape = (tiles, outputs, row_tile)
    if own["numbers"]:
        k = te.reduce_axis((0, own["numbers"]), "k")
        term = number_term(given, value)
        sums.append(te.compute(shape, lambda i, o, r: te.sum(term(i, k, o, r), axis=k), name="numbers"))
    if own["codes"]:
        c = te.reduce_axis((0, own["codes"]), "c")
        entries = given["entries"]
        sums.append(
            te.compute(
                shape,
                lambda i, o, r: te.sum(entry(entries, code_index(given, value, i, c, r), o), axis=c),
                name="codes",
            )
        )

    def score(i: Any, g: Any, o: Any, r: Any) -> Any:
        parts = [one[i, o, r] for one in sums]
        return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else tirx.const(0, "float64")

    scores = te.compute((tiles, 1, own["outputs"], row_tile), score, name="scores")
    return te.create_prim_func([rows, *given.values(), scores])


def number_term(given: dict[str, Any], value: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function from (i, k, o, r) to what number k adds to output o of row r."""
    feature, shift, weight = given.get("feature"), given.get("shift"), given["weight"]
    filled = given.get("filled")

    def term(i: Any, k: Any, o: Any, r: Any) -> Any:
        x = value(i, r, k if feature is None else feature[k]).astype("float64")
        product = (x if shift is None else x - shift[k]) * weight[k, o]
        # False of NaN alone; TVM's own test for NaN would scalarize vectors.
        known = x >= tirx.const(-np.inf, "float64")
        return product if filled is None else tirx.Select(known, product, filled[k, o])

    return term


def code_index(given: dict[str, Any], value: Callable[..., Any], i: Any, c: Any, r: Any) -> Any:
    """Return the row of `entries` for code c of row r, int32; no code, not even NaN, leaves its table."""
    x, last = value(i, r, given["code_feature"][c]), given["code_last"][c]
    zero = tirx.const(0, str(last.dtype))
    positive = tirx.Select(x > zero, x, zero)
    return given["code_first"][c] + tirx.Select(positive < last, positive, last).astype("int32")
