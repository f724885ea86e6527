"""Arithmetic on numbers that kernels compute themselves, in front of trees that compare in float32.

Behind a scaler, such trees see float32 numbers. Moved in front of it, their thresholds for float64 rows are
float64 numbers, which take twice the room in every table. So a kernel for CPUs may keep the thresholds, and
compute what the trees see, as the library does::

    y = float32(((x - shift) / divisor) * factor + offset)

in float64, each operation rounded once. Operations that a column lacks have constants with which they
change no number (but maybe the sign of a zero, which no comparison sees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill, Step
from hbtvm.graph.trees.ensemble import TreeEnsemble

OPERATIONS = ("subtract", "divide", "multiply", "add")  # in the order in which they are computed
Constants = tuple[float, float, float, float]  # one column's, in the order of `OPERATIONS`
UNCHANGED: Constants = (0.0, 1.0, 1.0, 0.0)  # the constants of a column that is only rounded to float32


@dataclass(frozen=True)
class Prologue:
    """The arithmetic of F columns."""

    constants: np.ndarray  # float64, shape (4, F): by `OPERATIONS`

    @classmethod
    def of(cls, columns: Sequence[Constants]) -> Prologue:
        """Return the arithmetic of columns with these constants."""
        return cls(np.array(columns, np.float64).reshape(-1, len(OPERATIONS)).T.copy())

    def take(self, columns: np.ndarray) -> Prologue:
        """Return the arithmetic of some of the columns, int, shape (C,)."""
        return Prologue(self.constants[:, columns])

    @property
    def operations(self) -> tuple[str, ...]:
        """Those of `OPERATIONS` that some column needs, in order."""
        needed = np.any(self.constants != np.array(UNCHANGED)[:, None], axis=1)
        return tuple(name for name, used in zip(OPERATIONS, needed.tolist(), strict=True) if used)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Compute rows in plain numpy: float64, shape (n, F), to float32 of the same shape."""
        shift, divisor, factor, offset = self.constants
        with np.errstate(all="ignore"):
            result: np.ndarray = ((X - shift) / divisor * factor + offset).astype(np.float32)
        return result


@dataclass(frozen=True)
class Scaled:
    """Trees that compare in float32 what a prologue makes of float64 rows."""

    ensemble: TreeEnsemble  # the trees, over the same features as `prologue`
    prologue: Prologue  # what is done to the rows first


def arithmetic_of(steps: Sequence[Step]) -> Constants | None:
    """Return the constants of steps on a column of float64 numbers.

    `steps`: all steps; those that replace NaN are passed over, as NaN stays NaN in arithmetic.
    Returns None if there are others, or arithmetic in another order or that falls: then trees over the
    results and over the raw numbers would send a NaN that is refused anyway to different sides.
    """
    found, last = list(UNCHANGED), -1
    for step in steps:
        if isinstance(step, Arithmetic):
            at = OPERATIONS.index(step.operation)
            if at <= last or not np.isfinite(step.constant):
                return None
            if step.operation in ("divide", "multiply") and step.constant <= 0:
                return None
            found[at], last = step.constant, at
        elif not (isinstance(step, Fill) or (isinstance(step, Cast) and step.dtype == "float64")):
            return None
    return found[0], found[1], found[2], found[3]
