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
    """Holds any network whose intermediate values fit a thread's memory."""

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
        own, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(own["dtype"], row_tile, own["features"], GPU_ROW_ALIGNMENT)
        scores = scores_argument((1, own["outputs"], row_tile))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return arguments_of(planned(workload, config))

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        made = planned(operand.workload(1), config)
        return laid_out(made, operand.tables, arguments_of(made))

    def function(self, workload: Workload, config: Config) -> Any:
        own, made = cast(NetworkWorkload, workload), planned(workload, config)
        staged = config["columns"] == "shared"
        expressions = _Expressions(made, own, arguments_of(made), staged)
        return expressions.function().with_attr(MULTIPLY_ADD, 1)


class _Expressions(Expressions):
    """As for CPUs, with CUDA's own functions, rows through shared memory, and scores by columns."""

    searches = False

    def __init__(
        self, plan: Plan, own: NetworkWorkload, arguments: tuple[Argument, ...], staged: bool
    ) -> None:
        super().__init__(plan, own["dtype"], own["features"], arguments)
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
        """In one pass: each value takes its place among the smallest so far, behind those that it equals."""
        if not in_one_pass(stage.form):
            return super()._top_k(at, stage)
        (x,), width, k = self._inputs(stage), self._width(stage), int(stage.form["k"])
        source = self.plan.stages[stage.form["inputs"][0]]
        count = source.room if source.inside == at else width
        # What is infinite, or not a number, counts as the largest number: an empty place has infinity.
        largest, infinity = functions.number(sys.float_info.max), functions.number(math.inf)

        def insert(found: Any, new: Any) -> Any:
            before = [new[0] < found[n] for n in range(k)]

            def moved(first: int) -> list[Any]:
                """The smallest values, or (from k on) their places, with the new one among them."""
                made = [tirx.Select(before[0], new[first], found[first])]
                for n in range(1, k):
                    own = tirx.Select(before[n - 1], found[first + n - 1], new[first])
                    made.append(tirx.Select(before[n], own, found[first + n]))
                return made

            return (*moved(0), *moved(k))

        none = (*[infinity] * k, *[tirx.const(0, "int32")] * k)
        smallest = te.comm_reducer(insert, lambda *_: none, name="smallest")
        t = te.reduce_axis((0, count), "t")

        def candidates(i: Any, w: Any, r: Any) -> Any:
            value = tirx.min(x(i, t, r), largest)
            if count > width:
                value = tirx.if_then_else(t < width, value, infinity)
            return smallest((value, *none[1:k], t, *none[k + 1 :]), axis=t)

        made = te.compute((self.tiles, 1, self.plan.row_tile), candidates, name=f"s{at}_smallest")

        def found(i: Any, w: Any, r: Any) -> Any:
            every = [tirx.Select(one[i, 0, r] < largest, one[i, 0, r], infinity) for one in made[:k]]
            every += [one[i, 0, r].astype("float64") for one in made[k:]]
            result = every[-1]
            for n in range(2 * k - 2, -1, -1):
                result = tirx.if_then_else(w == n, every[n], result)
            return result

        return self._stage(f"s{at}", 2 * k, found)

    def _scores(self) -> Any:
        value, width = self.values[-1], int(self.plan.stages[-1].form["width"])
        shape = (self.tiles, 1, width, self.plan.row_tile)
        return te.compute(shape, lambda i, g, o, r: value(i, o, r), name="scores")


def _own(name: str) -> Callable[..., Any]:
    return lambda *given: tirx.call_pure_extern("float64", name, *given)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **functions.FUNCTIONS,
    **{name: _own(row.cuda) for name, row in pointwise.FUNCTIONS.items() if row.cuda},
    "sigmoid": lambda x: functions.sigmoid(x, _own("exp")),
}
"""As `hbtvm.strategies.network.functions.FUNCTIONS`: CUDA's are correct to the last bit or two."""
