"""Shapley values by quadrature on CUDA: a thread walks trees for a row, with all points in registers.

The equations are those of `hbtvm.strategies.reasons.strategy`. A thread needs no stack of the sums `up`: when
a walk has left a subtree, its sums are in registers. The stack holds, of splits with two subtrees, `base` and
the left subtree's part of `up`. All rows take the same steps (`hbtvm.strategies.reasons.steps`), whatever
their branches: o is a factor.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.graph.reasons.paths import quadrature
from hbtvm.runtime.package.signature import (
    GPU_ROW_ALIGNMENT,
    Argument,
    Signature,
    rows_argument,
    scores_argument,
    table,
)
from hbtvm.schedules.cuda.network import MULTIPLY_ADD
from hbtvm.schedules.reasons import cuda as reasons_cuda
from hbtvm.schedules.reasons.cuda import SHAPLEY_STEPS, WEIGHT, S, T, most_halves, points_of
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import ReasonsWorkload, Target, Workload
from hbtvm.strategies.columns import column_stage, column_tables, placeholder
from hbtvm.strategies.cuda.grid import OnGpu
from hbtvm.strategies.reasons.operand import ReasonsOperand
from hbtvm.strategies.reasons.steps import NUMBERS, WORDS, steps_of
from hbtvm.strategies.reasons.strategy import Quadrature


class CudaQuadrature(OnGpu, Quadrature):
    """Supports any forest that keeps covers."""

    schedule = reasons_cuda

    def default(self, workload: Workload, target: Target) -> Config:
        return self.serial_default(workload, target)

    def signature(self, workload: Workload, config: Config) -> Signature:
        return Quadrature.signature(self, workload, config)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        """Return rows, scores and parts; a tile's rows are two axes of the scores."""
        tile, threads, parts = (int(config[name]) for name in ("row_tile", "row_threads", "tree_blocks"))
        rows = rows_argument(workload["dtype"], tile, workload["features"], GPU_ROW_ALIGNMENT)
        return rows, scores_argument((parts, _values(workload), tile // threads, threads)), parts

    def _shared(self, operand: ReasonsOperand) -> dict[str, np.ndarray]:
        steps = steps_of(operand)
        return {
            **column_tables(operand.forest),
            "step": steps.words,
            "number": steps.numbers,
            "term": steps.terms,
            **({} if operand.dtype == operand.value_dtype else {"threshold": steps.threshold}),
        }

    def tables(self, operand: ReasonsOperand, config: Config) -> dict[str, np.ndarray]:
        steps, lanes = steps_of(operand), int(config["tree_threads"]) * int(config["tree_blocks"])
        most = len(quadrature(operand.reasons.paths.most)[0])
        classes = points_of(most, int(config["classes"]))
        point, first = np.zeros((len(classes), 3, most)), list[list[np.ndarray]]()
        for at, count in enumerate(classes):
            points, weights = quadrature(2 * count)
            point[at, T, :count], point[at, S, :count] = points, 1 - points
            point[at, WEIGHT, :count] = weights
        for starts, needed in zip(steps.first, steps.points, strict=True):
            bounds = np.searchsorted(needed, (0, *classes), "right")
            first.append([_shared_out(starts[a : b + 1], lanes) for a, b in itertools.pairwise(bounds)])
        return {"point": point.astype(operand.value_dtype), "first": np.array(first, np.int32)}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        width, value_dtype = workload["width"], workload["value_dtype"]
        reasons = cast(ReasonsWorkload, workload)
        bounds = {
            "columns": workload["numeric"] + workload["categorical"],
            "places": reasons["players"],
            "levels": max(workload["depth"], 1),
            "halves": most_halves(workload["leaves"]),
        }
        lanes = int(config["tree_threads"]) * int(config["tree_blocks"])
        classes = len(points_of(reasons["points"], int(config["classes"])))
        same = workload["dtype"] == value_dtype
        return (
            table("step", "int32", ("steps", WORDS), "steps", **bounds),
            table("number", value_dtype, ("steps", NUMBERS)),
            table("term", value_dtype, ("steps", width, 2)),
            *(() if same else (table("threshold", workload["dtype"], ("steps",)),)),
            table("point", value_dtype, (classes, 3, reasons["points"])),
            table("first", "int32", (workload["groups"], classes, lanes + 1), "step_ranges"),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions; the annotated loop over a thread's values stands for the walk."""
        tile, threads, outputs = (int(config[name]) for name in ("row_tile", "row_threads", "outputs"))
        trees, parts = int(config["tree_threads"]), int(config["tree_blocks"])
        tiles, count = te.var("tiles", "int64"), te.var("steps", "int64")
        stage = column_stage(workload, tiles, tile)
        tables = [placeholder(argument, {"steps": count}) for argument in self.arguments(workload, config)]
        step, number, term, *threshold, point, first = tables
        mine = outputs * int(cast(ReasonsWorkload, workload)["players"])  # values of a thread
        of_width = int(workload["width"]) // outputs
        every = _values(workload) // mine

        def walk(i: Any, part: Any, of_output: Any, y: Any, x: Any) -> Any:
            starts = [
                stage.columns[i, 0, x], step[0, 0], number[0, 0], term[0, of_output % of_width * outputs, 0],
                threshold[0][0] if threshold else number[0, 0], point[0, 0, 0],
                first[of_output // of_width, 0, part * trees + y],
            ]  # fmt: skip
            return tirx.call_pure_extern("float64", SHAPLEY_STEPS, *starts)

        shape = (tiles, parts, _values(workload), tile // threads, threads)
        if config["sums"] == "global":
            scores = te.compute(shape, lambda i, part, v, p, x: walk(i, part, v // mine, 0, x), name="scores")
        else:
            sums = te.compute(
                (tiles, parts * every, mine, trees, *shape[3:]),
                lambda i, b, v, y, p, x: walk(i, b // every, b % every, y, x),
                name="sums",
            )
            lane = te.reduce_axis((0, trees), "lane")

            def total(i: Any, part: Any, v: Any, p: Any, x: Any) -> Any:
                at = i, part * every + v // mine, v % mine
                if trees == 1:
                    return sums(*at, 0, p, x)
                return te.sum(sums(*at, lane, p, x), axis=lane)

            scores = te.compute(shape, total, name="scores")
        function = te.create_prim_func([stage.rows, *stage.tables, *tables, scores])
        return function.with_attr(MULTIPLY_ADD, 1)

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        trees = workload["groups"] * workload["trees"]
        return {
            "tiles": -(-workload["rows"] // int(config["row_tile"])),
            "steps": 2 * trees * cast(ReasonsWorkload, workload)["splits"],
        }


def _values(workload: Workload) -> int:
    return int(workload["groups"] * workload["width"] * cast(ReasonsWorkload, workload)["players"])


def _shared_out(starts: np.ndarray, lanes: int) -> np.ndarray:
    """Return the first steps of `lanes` threads, and their end: whole trees, about as many steps each."""
    wanted = starts[0] + (starts[-1] - starts[0]) * np.arange(lanes + 1) / lanes
    nearest = np.abs(starts[:, None] - wanted).argmin(axis=0)
    first: np.ndarray = starts[nearest]
    return first
