"""Networks on CUDA: a thread computes all stages of its rows (see `hbtvm.strategies.network`)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.operators import pointwise
from hbtvm.runtime.package.signature import (
    GPU_ROW_ALIGNMENT,
    Argument,
    Signature,
    rows_argument,
    scores_argument,
)
from hbtvm.schedules.cuda import network as network_cuda
from hbtvm.schedules.cuda.network import MAX_NUMBERS, MULTIPLY_ADD, fewest_kept, planned
from hbtvm.schedules.cuda.steps import PAIRED
from hbtvm.schedules.network.nodes import in_one_pass
from hbtvm.schedules.network.plan import Plan, Stage
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload
from hbtvm.strategies.network import functions
from hbtvm.strategies.network.expressions import Expressions, Value
from hbtvm.strategies.network.layout import arguments_of, laid_out
from hbtvm.strategies.network.operand import NetworkOperand
from hbtvm.strategies.network.strategy import Fused


class CudaFused(Fused):
    """Supports any network whose intermediate values fit a thread's memory."""

    schedule = network_cuda

    def refuse(self, workload: Workload) -> str | None:
        reason = super().refuse(workload)
        if reason is not None:
            return reason
        kept = fewest_kept(workload)
        if kept <= MAX_NUMBERS:
            return None
        return (
            f"on a GPU {self.name} keeps all intermediate values of a row in its thread's memory, which has "
            f"room for {MAX_NUMBERS:,} numbers, not for {kept:,}; compile the model for a CPU"
        )

    def default(self, workload: Workload, target: Any) -> Config:
        return self.serial_default(workload, target)

    def signature(self, workload: Workload, config: Config) -> Signature:
        network, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(network["dtype"], row_tile, network["features"], GPU_ROW_ALIGNMENT)
        scores = scores_argument((1, network["outputs"], row_tile))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return arguments_of(planned(workload, config))

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        plan = planned(operand.workload(1), config)
        return laid_out(plan, operand.tables, arguments_of(plan))

    def function(self, workload: Workload, config: Config) -> Any:
        network, plan = cast(NetworkWorkload, workload), planned(workload, config)
        staged = config["columns"] == "shared"
        expressions = _Expressions(plan, network, arguments_of(plan), staged)
        return expressions.function().with_attr(MULTIPLY_ADD, 1).with_attr(PAIRED, 1)


class _Expressions(Expressions):
    """Expressions with CUDA's functions, rows in shared memory, and scores by columns."""

    searches = False

    def __init__(
        self, plan: Plan, network: NetworkWorkload, arguments: tuple[Argument, ...], staged: bool
    ) -> None:
        super().__init__(plan, network["dtype"], network["features"], arguments)
        self._staged = staged
        self.functions = FUNCTIONS

    def _input(self, at: int, stage: Stage) -> Value:
        rows = self.rows
        if not self._staged:
            return lambda i, w, r: rows[i, r, w].astype("float64")
        tiles, row_tile, features = rows.shape
        columns = te.compute((tiles, features, row_tile), lambda i, f, r: rows[i, r, f], name="columns")
        return lambda i, w, r: columns[i, w, r].astype("float64")

    def _top_k(self, at: int, stage: Stage) -> Value:
        """Find the smallest in one pass: insert each value behind equal ones among the smallest so far."""
        if not in_one_pass(stage.form):
            return super()._top_k(at, stage)
        (x,), width, k = self._inputs(stage), self._width(stage), int(stage.form["k"])
        source = self.plan.stages[stage.form["inputs"][0]]
        count = source.room if source.inside == at else width
        # Infinity and NaN count as the largest number; empty places hold infinity.
        largest, infinity = functions.number(sys.float_info.max), functions.number(math.inf)

        def insert(kept: Any, new: Any) -> Any:
            before = [new[0] < kept[n] for n in range(k)]

            def moved(first: int) -> list[Any]:
                """Insert the new element into the smallest values or (from k on) their places."""
                merged = [tirx.Select(before[0], new[first], kept[first])]
                for n in range(1, k):
                    shifted = tirx.Select(before[n - 1], kept[first + n - 1], new[first])
                    merged.append(tirx.Select(before[n], shifted, kept[first + n]))
                return merged

            return (*moved(0), *moved(k))

        none = (*[infinity] * k, *[tirx.const(0, "int32")] * k)
        smallest = te.comm_reducer(insert, lambda *_: none, name="smallest")
        t = te.reduce_axis((0, count), "t")

        def candidates(i: Any, w: Any, r: Any) -> Any:
            value = tirx.min(x(i, t, r), largest)
            if count > width:
                value = tirx.if_then_else(t < width, value, infinity)
            return smallest((value, *none[1:k], t, *none[k + 1 :]), axis=t)

        smallest_values = te.compute((self.tiles, 1, self.plan.row_tile), candidates, name=f"s{at}_smallest")

        def entry(i: Any, w: Any, r: Any) -> Any:
            entries = [
                tirx.Select(tensor[i, 0, r] < largest, tensor[i, 0, r], infinity)
                for tensor in smallest_values[:k]
            ]
            entries += [tensor[i, 0, r].astype("float64") for tensor in smallest_values[k:]]
            result = entries[-1]
            for n in range(2 * k - 2, -1, -1):
                result = tirx.if_then_else(w == n, entries[n], result)
            return result

        return self._stage(f"s{at}", 2 * k, entry)

    def _scores(self) -> Any:
        value, width = self.values[-1], int(self.plan.stages[-1].form["width"])
        shape = (self.tiles, 1, width, self.plan.row_tile)
        return te.compute(shape, lambda i, g, o, r: value(i, o, r), name="scores")


def _device_function(name: str) -> Callable[..., Any]:
    return lambda *arguments: tirx.call_pure_extern("float64", name, *arguments)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **functions.FUNCTIONS,
    **{name: _device_function(row.cuda) for name, row in pointwise.FUNCTIONS.items() if row.cuda},
    "sigmoid": lambda x: functions.sigmoid(x, _device_function("exp")),
}
"""`hbtvm.strategies.network.functions.FUNCTIONS` for CUDA, correct to the last bit or two, and OpenCL, whose
specification allows a few more."""
