"""What a regressor of a transformed target does to its responses: the way back to the target's own scale."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.columns.steps import ARITHMETIC, UFUNCS

Inverse = tuple[tuple[str, tuple[float, ...]], ...]
"""Operations in order, each with its constants: arithmetic with one for each output, a function of `UFUNCS`
without any, or ``"column"``, which makes a column of one output's values."""


def undo(values: np.ndarray, inverse: Inverse) -> np.ndarray:
    """Return responses on the target's own scale.

    Parameters
    ----------
    values
        float32 or float64, shape (n,) or (n, O).
    inverse
        The operations.

    Returns
    -------
    The same type and shape; shape (n, 1) after ``"column"``.
    """
    result = np.array(values)
    for name, constants in inverse:
        if name == "column":
            result = result.reshape(len(result), -1)
            continue
        with np.errstate(all="ignore"):
            if name in ARITHMETIC:
                result = ARITHMETIC[name](result, np.array(constants)).astype(result.dtype)
            else:
                result = UFUNCS[name](result)
    return result


def check(inverse: Inverse) -> None:
    """Check operations.

    Raises
    ------
    ValueError
        If one is not known, or has other constants.
    """
    for name, constants in inverse:
        if (name in ARITHMETIC) != bool(constants) or not (
            name in ARITHMETIC or name in UFUNCS or name == "column"
        ):
            raise ValueError(f"inverse has {name!r:.60} of {len(constants)} constants")
