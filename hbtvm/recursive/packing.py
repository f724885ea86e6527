"""Pack structures into the arrays of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.words.printable import shown


def packed(owns: Sequence[Sequence[Sequence[int]]], inputs: Mapping[str, np.ndarray]) -> Structures:
    """Return `Structures` for lists of each node's children, numbered within their structure."""
    starts, first, child = [0], [0], []
    for b, structure in enumerate(owns):
        base, size = starts[-1], len(structure)
        for node, children in enumerate(structure):
            for number in children:
                if not -1 <= number < size:
                    raise InputError(
                        f"structure {b}, node {node}: its child {number} is not a node of this structure."
                    )
                child.append(number + base if number >= 0 else -1)
            first.append(len(child))
        starts.append(base + size)
    return Structures(
        np.array(starts, np.int64), np.array(first, np.int32), np.array(child, np.int32), dict(inputs)
    )


def inputs_of(inputs: Mapping[str, Any], owns: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return inputs by name, concatenated over all structures."""
    count = sum(map(len, owns))
    arrays: dict[str, np.ndarray] = {}
    for name, values in inputs.items():
        is_parts = (
            isinstance(values, list | tuple)
            and len(values) == len(owns)
            and len(values)
            and np.ndim(values[0])
        )
        try:
            parts = [as_array(part) for part in values] if is_parts else []
            fits = len(parts) == len(owns) and [len(part) for part in parts] == [
                len(structure) for structure in owns
            ]
            array = np.concatenate(parts) if fits else as_array(values)
        except ValueError:
            raise InputError(f"input {name!r}: its arrays differ in shape, or a node has none.") from None
        if array.dtype.kind not in "iufb" or array.ndim not in (1, 2) or len(array) != count:
            raise InputError(
                f"input {name!r} is {array.dtype} of shape {array.shape}; expected numbers or vectors of "
                f"{count} nodes."
            )
        arrays[name] = array.astype(np.int32 if array.ndim == 1 and array.dtype.kind in "iu" else np.float32)
    return arrays


def whole(values: Any, where: str, axes: int) -> np.ndarray:
    """Return an array of whole numbers with this many axes; raises `InputError` otherwise."""
    array = as_array(values)
    if array.ndim != axes or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{where}: it is {array.dtype} of shape {array.shape}; expected whole numbers of {axes} axes."
        )
    return array


def as_array(values: Any) -> np.ndarray:
    """Convert an array or a tensor to an array."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


def listed(items: Any) -> list[Any]:
    """Return a list of structures; raises `InputError` if `items` is not iterable or is text."""
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InputError(
            f"structures are {shown(repr(items))}; expected a list with one item for each structure."
        )
    return list(items)
