"""Squared distances of rows to stored points: ``sum over f of (x[f] - point[f]) ** 2``, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from tvm import te

from hbtvm.graph.neighbors import Neighbors
from hbtvm.runtime.signature import Argument, Signature, rows_argument, scores_argument, table
from hbtvm.schedules import distance_cpu
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NeighborsWorkload, Workload, family_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.columns import placeholder
from hbtvm.strategies.forest import DType
from hbtvm.strategies.scores import unaligned_rows

PARALLEL_WORK = 200_000
"""Differences of a call from which handing work to a thread may pay."""

_FAR = 1e150
"""Coordinate of points that pad a table: their distances are not looked at."""


@dataclass(frozen=True, eq=False)
class NeighborsOperand:
    """Stored points prepared for kernels that read rows of one type.

    Attributes
    ----------
    dtype
        Type of the rows.
    points
        float64, shape (T, F).
    """

    dtype: DType
    points: np.ndarray

    family = "neighbors"
    value_dtype: DType = "float64"
    missing = True

    @property
    def row_dtype(self) -> DType:
        """Type of the rows."""
        return self.dtype

    @property
    def n_features(self) -> int:
        """Width of an input row."""
        return int(self.points.shape[1])

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of what strategies compute from this operand, the same for all configurations."""
        return {}

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `hbtvm.strategies.workload_of`; the result is a `NeighborsWorkload`."""
        own: NeighborsWorkload = {
            "family": "neighbors",
            "rows": rows,
            "threads": threads if rows * self.points.size >= PARALLEL_WORK else 1,
            "features": self.n_features,
            "points": len(self.points),
            "dtype": self.dtype,
        }
        return cast(Workload, own)


def make_neighbors(anchor: Neighbors, dtype: DType) -> NeighborsOperand:
    """Return an anchor's operand for rows of a type."""
    return NeighborsOperand(dtype, anchor.points)


class DirectDistances(Strategy):
    """Every difference squared: exact also where points lie close together and far from 0."""

    name = "direct_distances"
    schedule = distance_cpu

    def refuse(self, workload: Workload) -> str | None:
        return None if family_of(workload) == "neighbors" else f"{self.name} holds stored points alone"

    def default(self, workload: Workload, target: Any) -> Config:
        config = self.serial_default(workload, target)
        own = cast(NeighborsWorkload, workload)
        return config if own["threads"] == 1 else {**config, "parallel": "rows", "grain": 1}

    def nanoseconds(self, workload: Workload) -> float:
        """About what a row takes."""
        own = cast(NeighborsWorkload, workload)
        return 0.15 * own["points"] * own["features"]

    def signature(self, workload: Workload, config: Config) -> Signature:
        own = cast(NeighborsWorkload, workload)
        rows = rows_argument(own["dtype"], 1, own["features"])
        return Signature((rows, *self.arguments(workload, config), scores_argument((1, own["points"], 1))), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        own, size = cast(NeighborsWorkload, workload), distance_cpu.block(config)
        return (table("points", "float64", (own["features"], -(-own["points"] // size) * size)),)

    def _shared(self, operand: NeighborsOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: NeighborsOperand, config: Config) -> dict[str, np.ndarray]:
        (shape,) = (one.shape for one in self.arguments(operand.workload(1), config))
        points = np.full(tuple(map(int, shape)), _FAR)
        points[:, : len(operand.points)] = operand.points.T
        return {"points": points}

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": workload["rows"]}

    def function(self, workload: Workload, config: Config) -> Any:
        own = cast(NeighborsWorkload, workload)
        tiles = te.var("tiles", "int64")
        rows = te.placeholder((tiles, 1, own["features"]), own["dtype"], name="rows")
        points = placeholder(self.arguments(workload, config)[0])
        feature = te.reduce_axis((0, own["features"]), "feature")

        def square(i: Any, t: Any) -> Any:
            difference = rows[i, 0, feature].astype("float64") - points[feature, t]
            return te.sum(difference * difference, axis=feature)

        squares = te.compute((tiles, points.shape[1]), square, name="squares")
        scores = te.compute((tiles, 1, own["points"], 1), lambda i, g, t, r: squares[i, t], name="scores")
        return unaligned_rows(te.create_prim_func([rows, points, scores]))
