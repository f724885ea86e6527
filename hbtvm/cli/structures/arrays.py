"""Read structures from the arrays of a ``.npz`` file."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.npz_in import check_unpacked
from hbtvm.recursive.records.words import NodeInput, some
from hbtvm.runtime.recursive.structures import Structures

_LARGEST = 2**31 - 1  # largest number of nodes and of children (int32)


def blocks_of_arrays(
    path: Path, inputs: Mapping[str, NodeInput], nodes: int, structures: int
) -> Iterator[tuple[int, Structures]]:
    """Read structures in blocks of at most `nodes` nodes and `structures` structures.

    The file's arrays are ``starts``, ``first``, ``child`` as in `Structures`, and the inputs by name. Without
    ``first``, ``child`` has two axes, (nodes, places); ``parent``, (nodes,), may take its place. Without
    ``starts`` all is one structure. Nodes are counted through the whole file; -1 is none.

    Raises `UsageError` if arrays are missing, or of other shapes or types. Yields the first structure's
    number, and the structures.
    """
    arrays = _arrays(path)
    child, first = _edges(path, arrays)
    count = len(first) - 1
    starts = _whole(path, "starts", arrays.pop("starts", np.array([0, count])), 1)
    if not len(starts) or starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
        raise UsageError(f"{path}: starts should rise from 0 to {count}, the number of nodes")
    extra = [name for name in arrays if name not in inputs]
    lacking = [name for name in inputs if name not in arrays]
    if extra or lacking:
        what = f"array {extra[0]!r} is not an input" if extra else f"input {lacking[0]!r} is missing"
        raise UsageError(f"{path}: {what}; the model's inputs are {some(inputs)}")
    for name, array in arrays.items():
        if array.shape[:1] != (count,):
            raise UsageError(f"{path}: {name!r} is of shape {array.shape}; expected {count:,} nodes")
    at = 0
    while at < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[at] + nodes, "right")) - 1
        end = min(max(end, at + 1), at + structures, len(starts) - 1)
        yield at, _part(starts, first, child, arrays, at, end)
        at = end


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if zipfile.is_zipfile(path):
        check_unpacked(path)
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array")
            return {name: archive[name] for name in archive.files}
    except (
        EOFError, KeyError, NotImplementedError, RuntimeError, SyntaxError, ValueError, tokenize.TokenError,
        zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise UsageError(f"{path}: this is not a .npz file of arrays of numbers ({error})") from error


def _edges(path: Path, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the children of all nodes, and the start of each node's children."""
    if ("child" in arrays) == ("parent" in arrays) or ("first" in arrays and "child" not in arrays):
        raise UsageError(
            f"{path}: there are {some(arrays)}; expected 'child' with 'first', 'child' of shape (nodes, "
            "places), or 'parent', beside 'starts' and the inputs"
        )
    if "parent" in arrays:
        parent = _whole(path, "parent", arrays.pop("parent"), 1)
        if parent.size and not -1 <= parent.min() <= parent.max() < len(parent):
            raise UsageError(f"{path}: parent should hold numbers of nodes, and -1 for none")
        counts = np.bincount(parent[parent >= 0], minlength=len(parent))
        order = np.argsort(parent, kind="stable")
        return order[len(order) - int(counts.sum()) :], np.concatenate([[0], np.cumsum(counts)])
    if "first" in arrays:
        child = _whole(path, "child", arrays.pop("child"), 1)
        first = _whole(path, "first", arrays.pop("first"), 1)
    else:
        table = _whole(path, "child", arrays.pop("child"), 2)
        child, first = table.ravel(), np.arange(len(table) + 1) * table.shape[1]
    if not len(first) or first[0] != 0 or first[-1] != len(child) or (np.diff(first) < 0).any():
        raise UsageError(f"{path}: first should rise from 0 to {len(child)}, the number of children")
    if max(len(first), len(child)) > _LARGEST or (child.size and not -1 <= child.min() <= child.max()):
        raise UsageError(f"{path}: child should hold numbers of nodes, and -1 for none")
    return child, first


def _whole(path: Path, name: str, array: np.ndarray, axes: int) -> np.ndarray:
    if array.ndim != axes or array.dtype.kind not in "iu":
        raise UsageError(
            f"{path}: {name} is {array.dtype} of shape {array.shape}; expected whole numbers of "
            f"{'one axis' if axes == 1 else f'{axes} axes, (nodes, places)'}"
        )
    return array.astype(np.int64)


def _part(
    starts: np.ndarray,
    first: np.ndarray,
    child: np.ndarray,
    inputs: Mapping[str, np.ndarray],
    at: int,
    end: int,
) -> Structures:
    """Return the structures from `at` to `end`, with nodes numbered from 0."""
    low, high = int(starts[at]), int(starts[end])
    local = child[first[low] : first[high]]
    # A child outside of the block stays outside, so that the executor names the structure.
    moved = np.where(local < 0, -1, np.where((local < low) | (local >= high), high - low, local - low))
    return Structures(
        starts[at : end + 1] - low,
        (first[low : high + 1] - first[low]).astype(np.int32),
        moved.astype(np.int32),
        {name: array[low:high] for name, array in inputs.items()},
    )
