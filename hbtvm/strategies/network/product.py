"""`Product`: products of rows and weights, in float32 where a bound of the error allows.

A kernel of a projection or of several linear functions computes ``scores = rows @ weight + bias``. Sums of
float32 rows may be in float32, at half the time (`hbtvm.strategies.network.rounded_sums`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu import product as product_cpu
from hbtvm.schedules.network.nodes import is_product
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload
from hbtvm.strategies.columns import placeholder
from hbtvm.strategies.network.base import NetworkStrategy
from hbtvm.strategies.network.operand import NetworkOperand
from hbtvm.strategies.network.rounded_sums import linear_function, rounded
from hbtvm.strategies.scores import unaligned_rows

_FEWEST = 4  # outputs from which vectors run over outputs
_MOST = 2_048  # most columns: a block of rows is widened in the cache


class Product(NetworkStrategy):
    """Supports networks of a product of the rows, and perhaps a constant."""

    name = "product"
    schedule = product_cpu
    operation_time = 0.03

    def refuse(self, workload: Workload) -> str | None:
        network = cast(NetworkWorkload, workload)
        if not is_product(network["nodes"]):
            return f"{self.name} holds products of the rows with weights, and a constant"
        if network["outputs"] < _FEWEST or network["features"] > _MOST:
            return f"{self.name} holds at least {_FEWEST} outputs of at most {_MOST:,} columns"
        return None

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        network, lanes = cast(NetworkWorkload, workload), int(config["lanes"])
        features = network["features"]
        wide = sum(segments(network["outputs"], lanes))
        arguments = (table("weight", "float64", (features, wide)), table("bias", "float64", (wide,)))
        if not product_cpu.in_float32(config):
            return arguments
        narrow = sum(segments(network["outputs"], 2 * lanes))
        return (
            *arguments,
            table("narrow", "float32", (features, narrow)),
            table("bound", "float32", (features, narrow)),
            table("narrow_bias", "float32", (narrow,)),
            table("slack", "float32", (narrow,)),
        )

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        weight, bias = linear_function(operand.nodes, operand.tables)
        arguments = self.arguments(operand.workload(1), config)
        tables = {"weight": weight, "bias": bias}
        if product_cpu.in_float32(config):
            tables |= rounded(weight, bias, int(config["terms"]))
        return {argument.name: _padded(tables[argument.name], argument) for argument in arguments}

    def function(self, workload: Workload, config: Config) -> Any:
        network, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        tiles, features = te.var("tiles", "int64"), network["features"]
        rows = te.placeholder((tiles, row_tile, features), network["dtype"], name="rows")
        tables = [placeholder(argument) for argument in self.arguments(workload, config)]
        knobs = (int(config[name]) for name in ("lanes", "block", "vectors"))
        sizes = (
            features,
            network["outputs"],
            *knobs,
            int(config.get("terms", features)),
            len(network["nodes"]) > 2,
        )
        numbers = [tirx.const(int(size), "int32") for size in sizes]
        dtype = network.get("scores", "float64")

        def score(i: Any, r: Any, o: Any) -> Any:
            first = [rows[i, 0, 0], *(entry(*(0 for _ in entry.shape)) for entry in tables)]
            return tirx.call_pure_extern(dtype, product_cpu.PRODUCT, *first, *numbers)

        scores = te.compute((tiles, row_tile, network["outputs"]), score, name="scores")
        return unaligned_rows(te.create_prim_func([rows, *tables, scores]))


def segments(count: int, lanes: int) -> list[int]:
    """Return the lanes of vectors that hold a number of outputs: full vectors, then a shorter one."""
    rest = count % lanes
    last = [max(2, 1 << (rest - 1).bit_length())] if rest else []
    return [lanes] * (count // lanes) + last


def _padded(values: np.ndarray, argument: Argument) -> np.ndarray:
    """Return a table with padding outputs of zeros."""
    wide = np.zeros(tuple(int(extent) for extent in argument.shape), argument.dtype)
    wide[tuple(slice(0, size) for size in values.shape)] = values
    return wide
