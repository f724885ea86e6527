"""`Product`: products of rows and weights, in float32 where a bound of the error allows.

A kernel of a projection or of several linear functions computes ``scores = rows @ weight + bias``. Sums of
float32 rows may be in float32, at half the time (`hbtvm.strategies.network.rounded_sums`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_by_row, table
from hbtvm.schedules.cpu import product as product_cpu
from hbtvm.schedules.cpu.sharing import with_row_threads
from hbtvm.schedules.network.nodes import is_product
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.columns import placeholder
from hbtvm.strategies.network.operand import NetworkOperand
from hbtvm.strategies.network.rounded_sums import linear_function, rounded
from hbtvm.strategies.scores import unaligned_rows

_FEWEST = 4  # outputs from which vectors run over outputs
_MOST = 2_048  # most columns: a block of rows is widened in the cache


class Product(Strategy):
    """Supports networks of a product of the rows, and perhaps a constant."""

    name = "product"
    schedule = product_cpu

    def refuse(self, workload: Workload) -> str | None:
        network = cast(NetworkWorkload, workload)
        if not is_product(network["nodes"]):
            return f"{self.name} holds products of the rows with weights, and a constant"
        if network["outputs"] < _FEWEST or network["features"] > _MOST:
            return f"{self.name} holds at least {_FEWEST} outputs of at most {_MOST:,} columns"
        return None

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        space = self.space(workload, target)
        return with_row_threads(config, workload, self.nanoseconds(workload), space)

    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of a row of a large batch."""
        return 2.0 + 0.03 * cast(NetworkWorkload, workload)["operations"]

    def signature(self, workload: Workload, config: Config) -> Signature:
        network, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(network["dtype"], row_tile, network["features"])
        scores = scores_by_row(row_tile, network["outputs"], network.get("scores", "float64"))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

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

    def _shared(self, operand: NetworkOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        weight, bias = linear_function(operand.nodes, operand.tables)
        arguments = self.arguments(operand.workload(1), config)
        tables = {"weight": weight, "bias": bias}
        if product_cpu.in_float32(config):
            tables |= rounded(weight, bias, int(config["terms"]))
        return {argument.name: _padded(tables[argument.name], argument) for argument in arguments}

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}

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
