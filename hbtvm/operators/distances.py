"""Distances of rows to stored points, and neighbours: `Distance`, `TopK`, `Take`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.operators.base import Node, Unary

Metric = Literal["squared_euclidean", "manhattan", "chebyshev", "minkowski", "nan_euclidean"]
"""``"minkowski"`` is the sum of absolute differences to the power p, without the root; ``"nan_euclidean"`` is
the squared distance over columns that neither lacks, scaled up to all columns."""


@dataclass(frozen=True, eq=False)
class Distance(Unary):
    """The distance of a row to each of T points, summed over differences, so that nothing cancels.

    `x`: width F.
    """

    points: np.ndarray  # float64, shape (T, F)
    metric: Metric = "squared_euclidean"
    # Float64, shape (T, F): factors of the differences; None for factors of 1
    scale: np.ndarray | None = None
    p: float = 2.0  # the power of ``"minkowski"``
    kind = "distance"

    @property
    def width(self) -> int:
        return len(self.points)

    def attributes(self) -> dict[str, Any]:
        power = {"p": float(self.p)} if self.metric == "minkowski" else {}
        return {"metric": self.metric, "features": self.x.width, **power}

    def tables(self) -> dict[str, np.ndarray]:
        return {"points": self.points, **({} if self.scale is None else {"scale": self.scale})}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        out = np.empty((len(x), self.width))
        # By blocks of rows: all differences at once may not fit in memory.
        block = max(1, (1 << 22) // max(1, self.points.size))
        for start in range(0, len(x), block):
            difference = x[start : start + block, None, :] - self.points
            if self.scale is not None:
                difference = difference * self.scale
            out[start : start + block] = self._total(difference)
        return out

    def _total(self, difference: np.ndarray) -> np.ndarray:
        result: np.ndarray
        match self.metric:
            case "squared_euclidean":
                result = np.einsum("rtf,rtf->rt", difference, difference)
            case "manhattan":
                result = np.abs(difference).sum(axis=2)
            case "chebyshev":
                result = np.abs(difference).max(axis=2)
            case "minkowski":
                result = (np.abs(difference) ** self.p).sum(axis=2)
            case _:
                known = ~np.isnan(difference)
                count = known.sum(axis=2)
                total = np.where(known, difference, 0.0)
                result = np.einsum("rtf,rtf->rt", total, total)
                # NaN if the two have no column in common.
                result = np.where(count > 0, result / np.maximum(count, 1) * difference.shape[2], np.nan)
        return result

    def checked(self) -> Distance:
        if self.points.ndim != 2 or self.points.shape[1] != self.x.width or not self.points.size:
            raise ValueError(
                f"distances of {self.x.width} columns to points of the shape {self.points.shape}"
            )
        if self.scale is not None and self.scale.shape != self.points.shape:
            raise ValueError(
                f"points of the shape {self.points.shape}, factors of the shape {self.scale.shape}"
            )
        return self


@dataclass(frozen=True, eq=False)
class TopK(Unary):
    """The k smallest values of a row, ascending, and behind them their positions.

    Equal values keep their order. NaN is larger than any number.

    `x`: any width of at least k.
    """

    k: int  # the node's width is 2k
    kind = "top_k"

    @property
    def width(self) -> int:
        return 2 * self.k

    def attributes(self) -> dict[str, Any]:
        return {"k": self.k, "among": self.x.width}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        order = np.argsort(inputs[0], axis=1, kind="stable")[:, : self.k]
        return np.concatenate(
            [np.take_along_axis(inputs[0], order, axis=1), order.astype(np.float64)], axis=1
        )

    def checked(self) -> TopK:
        if not 1 <= self.k <= self.x.width:
            raise ValueError(f"the {self.k} smallest of {self.x.width} values")
        return self


@dataclass(frozen=True, eq=False)
class Take(Node):
    """Rows of a table by positions: column ``o * I + i`` is ``table[index[i], o]``."""

    index: Node  # whole numbers, width I; those outside the table are moved to its nearer end
    table: np.ndarray  # float64, shape (T, O)
    kind = "take"

    @property
    def width(self) -> int:
        return self.index.width * int(self.table.shape[1])

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.index,)

    def tables(self) -> dict[str, np.ndarray]:
        return {"table": self.table}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        at = np.clip(np.nan_to_num(inputs[0]), 0, len(self.table) - 1).astype(np.int64)
        return np.asarray(self.table[at].transpose(0, 2, 1).reshape(len(at), self.width))

    def on(self, *inputs: Node) -> Take:
        return Take(inputs[0], self.table)
