"""Arithmetic that kernels compute in front of trees that compare in float32.

Behind a scaler, such trees compare float32 numbers. Moved in front of it, their thresholds for float64 rows
become float64 numbers, which double the size of tables. So a kernel for CPUs may keep the thresholds, and
compute the scaled numbers as the library does::

    y = float32(((x - shift) / divisor) * factor + offset)

in float64, each operation rounded once. Operations that a column lacks have neutral constants (they may
change the sign of a zero, which no comparison sees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill, Step
from hbtvm.graph.trees.ensemble import TreeEnsemble

OPERATIONS = ("subtract", "divide", "multiply", "add")  # in the order of computation
Constants = tuple[float, float, float, float]  # of a column, in the order of `OPERATIONS`
UNCHANGED: Constants = (0.0, 1.0, 1.0, 0.0)  # neutral constants: the column is only rounded to float32


@dataclass(frozen=True)
class Prologue:
    """The arithmetic of F columns."""

    constants: np.ndarray  # float64, shape (4, F): by `OPERATIONS`

    @classmethod
    def of(cls, columns: Sequence[Constants]) -> Prologue:
        """Return the arithmetic of columns with some constants."""
        return cls(np.array(columns, np.float64).reshape(-1, len(OPERATIONS)).T.copy())

    def take(self, columns: np.ndarray) -> Prologue:
        """Return the arithmetic of some of the columns, int, shape (C,)."""
        return Prologue(self.constants[:, columns])

    @property
    def operations(self) -> tuple[str, ...]:
        """The members of `OPERATIONS` that some column needs, in order."""
        needed = np.any(self.constants != np.array(UNCHANGED)[:, None], axis=1)
        return tuple(name for name, used in zip(OPERATIONS, needed.tolist(), strict=True) if used)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Compute rows in numpy: float64, shape (n, F), to float32 of the same shape."""
        shift, divisor, factor, offset = self.constants
        with np.errstate(all="ignore"):
            result: np.ndarray = ((X - shift) / divisor * factor + offset).astype(np.float32)
        return result


@dataclass(frozen=True)
class Scaled:
    """Trees that compare, in float32, the results of a prologue on float64 rows."""

    ensemble: TreeEnsemble  # over the same features as `prologue`
    prologue: Prologue


def arithmetic_of(steps: Sequence[Step]) -> Constants | None:
    """Return the constants of steps on a column of float64 numbers.

    `steps`: all steps; steps that replace NaN are skipped, as NaN stays NaN in arithmetic.
    Returns None for other steps, for arithmetic in another order, and for decreasing arithmetic: then trees
    over the results and over the raw numbers would send a NaN, which is refused anyway, to different sides.
    """
    constants, last = list(UNCHANGED), -1
    for step in steps:
        if isinstance(step, Arithmetic):
            at = OPERATIONS.index(step.operation)
            if at <= last or not np.isfinite(step.constant):
                return None
            if step.operation in ("divide", "multiply") and step.constant <= 0:
                return None
            constants[at], last = step.constant, at
        elif not (isinstance(step, Fill) or (isinstance(step, Cast) and step.dtype == "float64")):
            return None
    return constants[0], constants[1], constants[2], constants[3]
