"""`Imputation`: missing values of one column after another, imputed by linear models of all others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hbtvm.operators.base import Node


@dataclass(frozen=True, eq=False)
class Imputation(Node):
    """A state of F columns after S steps (``IterativeImputer``'s rounds).

    Step s puts ``clip(state @ weight[s] + intercept[s], low[s], high[s])`` in column ``column[s]`` of the
    rows that lack it; the next step reads the new state.
    """

    x: Node  # the initial state, width F, at least 2
    missing: Node  # not 0 for missing values, width F
    column: np.ndarray  # int32, shape (S,)
    weight: np.ndarray  # float64, shape (S, F)
    # `intercept`, `low`, `high`: float64, shape (S,)
    intercept: np.ndarray
    low: np.ndarray
    high: np.ndarray
    kind = "imputation"

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.x, self.missing

    def tables(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in ("column", "weight", "intercept", "low", "high")}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, missing = np.broadcast_arrays(*inputs)
        state: np.ndarray = x.copy()
        for s, column in enumerate(self.column.tolist()):
            rows = missing[:, column] != 0
            values = state[rows] @ self.weight[s] + self.intercept[s]
            state[rows, column] = np.clip(values, self.low[s], self.high[s])
        return state

    def on(self, *inputs: Node) -> Imputation:
        return replace(self, x=inputs[0], missing=inputs[1])

    def checked(self) -> Imputation:
        steps, width = self.weight.shape
        if not self.x.width == self.missing.width == width or width < 2 or not steps:
            raise ValueError(f"{steps} steps over {width} columns of {self.x.width} and {self.missing.width}")
        shapes = {len(table) for table in (self.column, self.intercept, self.low, self.high)}
        if shapes != {steps} or not 0 <= self.column.min() <= self.column.max() < width:
            raise ValueError("steps that don't fit their columns")
        return self
