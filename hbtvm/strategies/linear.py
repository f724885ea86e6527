"""Linear models on CPUs: sums of weighted numbers and of table entries, in one pass over the rows.

With numbers x, shifts s, weights w, values f for missing numbers and tables of codes t::

    numbers[o, r] = sum over k of isnan(x[r, k]) ? f[k, o] : (x[r, k] - s[k]) * w[k, o]
    codes[o, r]   = sum over c of t[first[c] + code[r, c], o]
    scores[o, r]  = numbers[o, r] + codes[o, r]

Kernels widen rows to float64 as they read them. Vectors run over rows or over outputs (knob ``axis``). The
lanes of a vector of rows lie a row apart, so a tile may be transposed first (knob ``read``). For vectors of
outputs, tables are padded to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_argument, table
from hbtvm.schedules.cpu import linear as linear_cpu
from hbtvm.schedules.cpu.linear import padded_outputs
from hbtvm.schedules.cpu.sharing import with_row_threads
from hbtvm.schedules.cpu.steps import transposed_lanes
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import LinearWorkload, Workload, family_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.columns import placeholder, transposed_tile
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.linear_operand import LinearOperand
from hbtvm.strategies.scores import unaligned_rows


class LinearSum(Strategy):
    """Supports any linear model."""

    name = "linear"
    schedule = linear_cpu

    def refuse(self, workload: Workload) -> str | None:
        if family_of(workload) != "linear":
            return "linear holds linear models, no trees"
        return None

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        space = self.space(workload, target)
        return with_row_threads(config, workload, self.nanoseconds(workload), space)

    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of a row of a large batch."""
        linear = cast(LinearWorkload, workload)
        return 2.0 + (0.4 * linear["numbers"] + linear["codes"]) * max(1.0, linear["outputs"] / 4)

    def signature(self, workload: Workload, config: Config) -> Signature:
        rows, scores, parts = self.ends(workload, config)
        return Signature((rows, *self.arguments(workload, config), scores), 1, parts)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        linear, row_tile = cast(LinearWorkload, workload), int(config["row_tile"])
        scores = scores_argument((1, linear["outputs"], row_tile))
        return rows_argument(linear["dtype"], row_tile, linear["features"]), scores, 1

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        linear = cast(LinearWorkload, workload)
        return linear_arguments(linear, padded_outputs(workload, config), config["read"] == "rows")

    def _shared(self, operand: LinearOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: LinearOperand, config: Config) -> dict[str, np.ndarray]:
        by_rows = config["read"] == "rows"
        return linear_tables(operand, padded_outputs(operand.workload(1), config), by_rows)

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}

    def function(self, workload: Workload, config: Config) -> Any:
        return _function(cast(LinearWorkload, workload), config, self.arguments(workload, config))


def linear_arguments(workload: LinearWorkload, outputs: int, by_output: bool = False) -> tuple[Argument, ...]:
    """Return the tables of a linear model with this many outputs, in argument order.

    `by_output`: whether each output's weights are neighbours, rather than each number's.
    """
    numbers, codes, features = workload["numbers"], workload["codes"], workload["features"]
    weights = (outputs, numbers) if by_output else (numbers, outputs)
    arguments = []
    if numbers and not workload["in_order"]:
        arguments.append(table("feature", "int32", (numbers,), "index", below=features))
    if numbers and workload["shifts"]:
        arguments.append(table("shift", "float64", (numbers,)))
    if numbers:
        arguments.append(table("weight", "float64", weights))
    if numbers and workload["fills_missing"]:
        arguments.append(table("filled", "float64", weights))
    if codes:
        arguments.append(table("code_feature", "int32", (codes,), "index", below=features))
        arguments.append(table("code_first", "int32", (codes,), "code_run", entries=workload["entries"]))
        arguments.append(table("code_last", workload["dtype"], (codes,)))
        arguments.append(table("entries", "float64", (workload["entries"], outputs)))
    return tuple(arguments)


def linear_tables(operand: LinearOperand, outputs: int, by_output: bool = False) -> dict[str, np.ndarray]:
    """Return the tables of `linear_arguments` by name; outputs beyond the model's are 0."""

    def wide(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(values, ((0, 0), (0, outputs - values.shape[1]))))

    linear = cast(LinearWorkload, operand.workload(1))
    tables = operand.sums.tables()
    for name in tables.keys() & {"weight", "missing", "entries"}:
        tables[name] = wide(tables[name])
    if "missing" in tables:
        tables["filled"] = tables["missing"]
    if "code_last" in tables:
        tables["code_last"] = tables["code_last"].astype(operand.dtype)
    for name in tables.keys() & {"weight", "filled"} if by_output else ():
        tables[name] = np.ascontiguousarray(tables[name].T)
    arguments = linear_arguments(linear, outputs, by_output)
    return {argument.name: tables[argument.name] for argument in arguments}


def _function(workload: LinearWorkload, config: Config, arguments: tuple[Argument, ...]) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    block = 0
    if config["read"] == "transposed":
        block = transposed_lanes(int(config["lanes"]), workload["dtype"])
    outputs = int(arguments[-1].shape[-1]) if arguments else workload["outputs"]
    method = str(config["lookup"])

    def entry(entries: Any, index: Any, o: Any) -> Any:
        if config["axis"] == "outputs":
            return entries[index, o]
        at = index if outputs == 1 else index * outputs + o
        return lookup(entries[0, 0], at, workload["entries"] * outputs, method)

    def columns(rows: Any) -> Any:
        return transposed_tile(rows, block, "columns") if block else None

    if config["read"] == "rows":
        return unaligned_rows(_dot_products(workload, config, arguments))
    return unaligned_rows(linear_function(workload, int(config["row_tile"]), arguments, columns, entry))


def _dot_products(workload: LinearWorkload, config: Config, arguments: tuple[Argument, ...]) -> Any:
    """Return scores by a call, which `hbtvm.compiler.lowering.dot_products` lowers."""
    row_tile, tiles = int(config["row_tile"]), te.var("tiles", "int64")
    rows = te.placeholder((tiles, row_tile, workload["features"]), workload["dtype"], name="rows")
    tables = {argument.name: placeholder(argument) for argument in arguments}
    sizes = [workload["features"], workload["numbers"], workload["shifts"], workload["fills_missing"]]
    numbers = [tirx.const(int(size), "int32") for size in (*sizes, config["lanes"], config["vectors"])]
    order = [tables[name] for name in ("weight", "shift", "filled") if name in tables]

    def score(i: Any, g: Any, o: Any, r: Any) -> Any:
        first = [rows[i, 0, 0], *(entry(*(0 for _ in entry.shape)) for entry in order)]
        return tirx.call_pure_extern("float64", linear_cpu.DOT_PRODUCTS, *first, *numbers)

    scores = te.compute((tiles, 1, workload["outputs"], row_tile), score, name="scores")
    return te.create_prim_func([rows, *tables.values(), scores])


def linear_function(
    workload: LinearWorkload,
    row_tile: int,
    arguments: tuple[Argument, ...],
    transpose: Callable[[Any], Any],
    entry: Callable[..., Any],
) -> Any:
    """Return the kernel's `PrimFunc`, for any kind of target.

    `row_tile`: rows of a tile.
    `arguments`: from `linear_arguments`.
    `transpose`: from the rows' tensor to a transposed stage, shape (tiles, columns, row_tile), or None.
    `entry`: from table of entries, row and output to an entry.
    """
    outputs = int(arguments[-1].shape[-1]) if arguments else workload["outputs"]
    tiles = te.var("tiles", "int64")
    rows = te.placeholder((tiles, row_tile, workload["features"]), workload["dtype"], name="rows")
    tables = {argument.name: placeholder(argument) for argument in arguments}
    columns = transpose(rows)

    def value(i: Any, r: Any, f: Any) -> Any:
        return rows[i, r, f] if columns is None else columns[i, f, r]

    sums = []
    shape = (tiles, outputs, row_tile)
    if workload["numbers"]:
        k = te.reduce_axis((0, workload["numbers"]), "k")
        term = number_term(tables, value)
        sums.append(te.compute(shape, lambda i, o, r: te.sum(term(i, k, o, r), axis=k), name="numbers"))
    if workload["codes"]:
        c = te.reduce_axis((0, workload["codes"]), "c")
        entries = tables["entries"]
        sums.append(
            te.compute(
                shape,
                lambda i, o, r: te.sum(entry(entries, code_index(tables, value, i, c, r), o), axis=c),
                name="codes",
            )
        )

    def score(i: Any, g: Any, o: Any, r: Any) -> Any:
        parts = [part[i, o, r] for part in sums]
        return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else tirx.const(0, "float64")

    scores = te.compute((tiles, 1, workload["outputs"], row_tile), score, name="scores")
    return te.create_prim_func([rows, *tables.values(), scores])


def number_term(tables: dict[str, Any], value: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function from (i, k, o, r) to number k's term of output o of row r."""
    feature, shift, weight = tables.get("feature"), tables.get("shift"), tables["weight"]
    filled = tables.get("filled")

    def term(i: Any, k: Any, o: Any, r: Any) -> Any:
        x = value(i, r, k if feature is None else feature[k]).astype("float64")
        product = (x if shift is None else x - shift[k]) * weight[k, o]
        # False for NaN alone; TVM's test for NaN would scalarize vectors.
        known = x >= tirx.const(-np.inf, "float64")
        return product if filled is None else tirx.Select(known, product, filled[k, o])

    return term


def code_index(tables: dict[str, Any], value: Callable[..., Any], i: Any, c: Any, r: Any) -> Any:
    """Return the row of `entries` for code c of row r, int32; every code, NaN included, is clipped."""
    x, last = value(i, r, tables["code_feature"][c]), tables["code_last"][c]
    zero = tirx.const(0, str(last.dtype))
    positive = tirx.Select(x > zero, x, zero)
    return tables["code_first"][c] + tirx.Select(positive < last, positive, last).astype("int32")
