"""Common parts of epilogues of raw scores and of whole outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from hbtvm.graph.outputs.inverse import Inverse
from hbtvm.runtime.native.epilogues.epilogue import ARITHMETIC, FUNCTIONS, TYPES, Epilogue, Rule, Type


def plain(columns: tuple[int, int], dtype: str, flat: bool) -> Epilogue:
    """Return an epilogue that copies scores."""
    first, last = columns
    return Epilogue(np.dtype(dtype), last - first, flat, TYPES[dtype], first, last, plain=True)


def undone(values: Epilogue, inverse: Inverse) -> Epilogue | None:
    """Return an epilogue with the steps of `hbtvm.graph.outputs.inverse` appended."""
    width, numbers, rows = values.last - values.first, [], []
    for name, constants in inverse:
        if name == "column":
            values = replace(values, flat=False)
        elif name in ARITHMETIC:
            if len(constants) not in (1, width):
                return None
            numbers.append(ARITHMETIC.index(name))
            rows.append(np.broadcast_to(np.array(constants, np.float64), width))
        elif name != "positive":
            numbers.append(FUNCTIONS[name])
            rows.append(np.zeros(width))
    if not numbers:
        return values
    return replace(values, plain=False, step=np.array(numbers, np.int64), constants=np.stack(rows))


def largest(values: Epilogue, ends: Sequence[int]) -> Epilogue:
    """Return an epilogue for the position of each target's largest value."""
    return replace(
        values,
        flat=len(ends) == 1,
        plain=False,
        columns=len(ends),
        last=values.first + ends[-1],
        rule=Rule.LARGEST,
        targets=len(ends),
        ends=np.array(ends, np.int64),
    )


def numbers(positions: Epilogue, dtype: str | None) -> Epilogue | None:
    """Return an epilogue with integers as results; None for a type that C does not write."""
    if dtype not in TYPES:
        return None
    return replace(positions, dtype=np.dtype(dtype), type=TYPES[dtype])


def looked_up(positions: Epilogue, classes: Sequence[np.ndarray]) -> Epilogue | None:
    """Return an epilogue for labels by position: bytes of a table, or positions of Python objects."""
    kind = classes[0].dtype
    starts = np.array([0, *accumulate(map(len, classes))], np.int64)
    labelled = replace(positions, targets=len(classes), labels=starts)
    if kind.hasobject:
        return replace(labelled, dtype=np.dtype("int64"), type=Type.I64, lookups=tuple(classes))
    if not kind.itemsize:
        return None
    try:
        # Labels of all targets have the first target's type, like columns of a numpy array.
        table = np.concatenate([labels.astype(kind) for labels in classes])
    except (TypeError, ValueError):
        return None
    return replace(labelled, dtype=kind, type=Type.BYTES, table=np.frombuffer(table.tobytes(), np.uint8))
