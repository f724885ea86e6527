"""Shapley values by quadrature: one depth-first walk over all splits, for a vector of rows or of points.

For each split s of a tree, with its player i, the branches b to its children, and points t_k with weights g_k
of the quadrature (see `hbtvm.graph.reasons.paths`)::

    q[b, k]    = (1 - t_k) + t_k * o[b] * w[b]
    base[s, k] = base[parent, k] * q[branch to s, k] / (q of i's earlier branch, k);   g_k above roots
    up[leaf]   = v * u
    up[s, k]   = sum over b of up[child, k] * q[b, k] / (q of i's earlier branch, k)
    values[i] += sum over b of (o[b] * w[b] - 1) * sum over k of base[s, k] * up[child, k]
                 - (o * w - 1 of i's earlier branch) * sum over k of base[s, k] * up[s, k]

The last line takes back what the earlier branch has added for the leaves below, since its player's weight is
another there. Without an earlier branch it is 0, and its q is 1. This is the algorithm of "Linear TreeShap"
(Yu et al., NeurIPS'22) with products at points in place of polynomials. A walk takes time in proportion to
splits times points, whatever the depth.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from tvm import te, tirx

from hbtvm.graph.reasons.paths import quadrature
from hbtvm.runtime.explaining.splits import TERMS, WORDS
from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_argument, table
from hbtvm.schedules.cpu.sharing import with_row_threads
from hbtvm.schedules.reasons import cpu as reasons_cpu
from hbtvm.schedules.reasons.cpu import SHAPLEY, padded_points
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import ReasonsWorkload, Target, Workload, family_of, row_dtype_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.columns import column_arguments, column_stage, column_tables, placeholder
from hbtvm.strategies.reasons.operand import ReasonsOperand
from hbtvm.strategies.reasons.tables import splits_of
from hbtvm.strategies.scores import unaligned_rows


class Quadrature(Strategy):
    """Supports any forest that keeps covers."""

    name = "quadrature"
    schedule = reasons_cpu

    def refuse(self, workload: Workload) -> str | None:
        return None if family_of(workload) == "reasons" else "quadrature holds reasons only"

    def with_sharing(self, config: Config, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        return with_row_threads(config, workload, self.nanoseconds(workload), space)

    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of a row of a large batch."""
        reasons = cast(ReasonsWorkload, workload)
        return float(reasons["trees"] * reasons["groups"] * reasons["splits"] * reasons["points"])

    def signature(self, workload: Workload, config: Config) -> Signature:
        rows, scores, parts = self.ends(workload, config)
        tables = (*column_arguments(workload), *self.arguments(workload, config))
        return Signature((rows, *tables, scores), 1, parts)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        row_tile = int(config["row_tile"])
        scores = scores_argument((1, _values(workload), row_tile))
        return rows_argument(row_dtype_of(workload), row_tile, workload["features"]), scores, 1

    def _shared(self, operand: ReasonsOperand) -> dict[str, np.ndarray]:
        splits = splits_of(operand)
        return {
            **column_tables(operand.forest),
            "split": splits.words,
            "number": splits.numbers,
            "threshold": splits.threshold,
        }

    def tables(self, operand: ReasonsOperand, config: Config) -> dict[str, np.ndarray]:
        first = splits_of(operand).first
        starts = np.append(first[: -1 : int(config["tree_block"])], first[-1])
        points, weights = quadrature(operand.reasons.paths.most)
        room = padded_points(len(points), config)
        point = np.zeros((3, room))
        point[0, :] = 0.5
        point[0, : len(points)], point[2, : len(points)] = points, weights
        point[1] = 1 - point[0]
        return {"first": starts.astype(np.int32), "point": point.astype(operand.value_dtype)}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        width, value_dtype = workload["width"], workload["value_dtype"]
        columns = workload["numeric"] + workload["categorical"]
        bounds = {
            "columns": columns,
            "places": _values(workload) - (width - 1) * cast(ReasonsWorkload, workload)["players"],
            "levels": max(workload["depth"], 1),
        }
        points = padded_points(cast(ReasonsWorkload, workload)["points"], config)
        return (
            table("split", "int32", ("slots", WORDS), "visits", **bounds),
            table("number", value_dtype, ("slots", TERMS + 2 * width)),
            table("threshold", workload["dtype"], ("slots",)),
            table("first", "int32", ("blocks",), "visit_blocks"),
            table("point", value_dtype, (3, points)),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions; the annotated loop over scores stands for the walk."""
        row_tile = int(config["row_tile"])
        tiles = te.var("tiles", "int64")
        extents = {name: te.var(name, "int64") for name in ("slots", "blocks")}
        stage = column_stage(workload, tiles, row_tile)
        tables = [placeholder(argument, extents) for argument in self.arguments(workload, config)]

        def value(i: Any, g: Any, p: Any, r: Any) -> Any:
            starts = [read(*(0 for _ in read.shape)) for read in tables]
            return tirx.call_pure_extern(
                "float64", SHAPLEY, stage.columns[i, 0, 0], *starts, extents["blocks"]
            )

        scores = te.compute((tiles, 1, _values(workload), row_tile), value, name="scores")
        return unaligned_rows(te.create_prim_func([stage.rows, *stage.tables, *tables, scores]))

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        trees = workload["groups"] * workload["trees"]
        return {
            "tiles": -(-workload["rows"] // int(config["row_tile"])),
            "slots": trees * cast(ReasonsWorkload, workload)["splits"],
            "blocks": -(-trees // int(config["tree_block"])) + 1,
        }


def _values(workload: Workload) -> int:
    players = cast(ReasonsWorkload, workload)["players"]
    return int(workload["groups"] * workload["width"] * players)
