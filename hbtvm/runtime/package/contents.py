"""Check the contents of tables by which kernels address other tables.

Kernels check types and shapes of tables, but not their contents. A swapped table, or one damaged before it
was hashed, would make them read beyond an array. So loading a package checks every index, the walks through
trees, and the masks and paths that select a leaf. Values that only change predictions (thresholds, leaf
values) are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hbtvm.runtime.package.signature import Argument, Signature

Tables = Mapping[str, np.ndarray]
Check = Callable[[Argument, Tables, Mapping[str, int], str], bool]


def check_contents(signature: Signature, tables: Sequence[np.ndarray]) -> None:
    """Check the contents of a kernel's tables, whose types and shapes were checked.

    Raises `ValueError` if they could make a kernel read out of bounds.
    """
    by_name = {spec.name: table for spec, table in zip(signature.tables, tables, strict=True)}
    for argument in signature.tables:
        contents = argument.contents
        if contents is None:
            continue
        if contents.kind not in CHECKS:
            raise ValueError(f"table {argument.name!r} has the unknown kind {contents.kind!r}")
        try:
            valid = CHECKS[contents.kind](argument, by_name, contents.bounds, signature.dtype)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"table {argument.name!r} can't be checked: {error!r}") from None
        if not valid:
            raise ValueError(f"table {argument.name!r} holds values that its kernel does not accept")


def _index(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check numbers from 0 to below ``below``."""
    return _within(tables[argument.name], bounds["below"])


def _byte_column(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check numbers of columns of bytes (`hbtvm.strategies.trees.ranked_bytes`)."""
    return _within(tables[argument.name], len(tables["source"]))


def _sorted(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check that rows ascend."""
    rows = tables[argument.name]
    return bool(np.all(rows[:, 1:] >= rows[:, :-1]))


def _ranked_word(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check numbers of at least 0 whose lower ``bits`` are a column below ``below``."""
    words = tables[argument.name]
    return bool(words.min(initial=0) >= 0) and _within(words & ((1 << bounds["bits"]) - 1), bounds["below"])


def _unsigned(words: np.ndarray) -> np.ndarray:
    """Return 32-bit words as unsigned numbers."""
    if words.dtype != np.int32:
        raise TypeError(f"words of {words.dtype}")
    return words.astype(np.int64) & 0xFFFFFFFF


def _placed_rank(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check words of `hbtvm.strategies.cuda.ranked`, whose lower ``bits`` are below ``below``."""
    return _within(_unsigned(tables[argument.name]) & ((1 << bounds["bits"]) - 1), bounds["below"])


def _placed_link(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check such words whose bits from ``top`` on are the distance to a node's left child.

    A node's children follow it within its tree's table, so every walk ends at a leaf.
    """
    words = _unsigned(tables[argument.name])
    entries = words.shape[-2] if bounds["trees_inner"] else words.shape[-1]
    place = np.arange(entries)[:, None] if bounds["trees_inner"] else np.arange(entries)
    distance = words >> bounds["top"]
    inside = (distance == 0) | ((distance > 1) & (place + distance < entries))
    # At distance 0, no rank exceeds the node's, so the walk stays.
    most = (1 << (bounds["top"] - bounds["bits"])) - 1
    stays = (distance != 0) | (words >> bounds["bits"] & most == most)
    return _placed_rank(argument, tables, bounds, dtype) and bool(np.all(inside & stays))


def _node_word(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check words of `hbtvm.strategies.cuda.words`, whose column is below ``below``."""
    words = tables[argument.name]
    axis = -2 if bounds["trees_inner"] else -1
    column = np.take(words, 1, axis) if dtype == "float64" else words >> 32
    return _within(column, bounds["below"])


def _interval(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check tests of `hbtvm.strategies.trees.intervals`: their columns, and the leaves they lead to."""
    axis = -2 if bounds["trees_inner"] else -1
    column, _, _, leaf = np.moveaxis(tables[argument.name], axis, 0)
    return _within(column, bounds["columns"]) and _within(leaf, bounds["leaves"])


def _mask(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check that masks leave one of ``leaves`` leaves: the last leaf's bit, unless no bit is valid, too."""
    masks, leaves = tables[argument.name], bounds["leaves"]
    bits = 8 * masks.itemsize
    if leaves < 1:
        return False
    return leaves > bits or bool(np.all(masks >> (leaves - 1) & 1))


def _code_run(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check the starts of tables of codes: last codes (``code_last``) are within ``entries`` entries."""
    first, last = tables[argument.name].astype(np.float64), tables["code_last"].astype(np.float64)
    whole = np.isfinite(last) & (last >= 0) & (np.floor(last) == last)
    return bool(np.all(whole & (first >= 0) & (first + last < bounds["entries"])))


def _walk(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check slots of `hbtvm.strategies.trees.packed`: every walk from a root reaches a leaf in time."""
    column, offset, threshold, index = _slots(tables[argument.name], bounds, dtype)
    last, columns = len(column) - 1, bounds["columns"]
    leaf = (offset == 0) & (column == columns)
    here = np.unique(tables["root"]).astype(np.int64)
    if not _within(here, last + 1):
        return False
    ends, seen = [], 0
    for level in range(bounds["levels"] + 1):
        arrived = leaf[here]
        ends.append(here[arrived])
        here = here[~arrived]
        seen += len(here)
        if not len(here):
            break
        inner = (
            (offset[here] > 0) & (here + offset[here] < last) & (column[here] >= 0) & (column[here] < columns)
        )
        # No split is reached twice, which bounds their number; leaves may be.
        if level == bounds["levels"] or seen > last or not inner.all():
            return False
        here = np.repeat(here + offset[here], 2)
        here[1::2] += 1
    reached = np.concatenate(ends)
    if "value" in tables:
        return _within(index[reached], len(tables["value"]))
    # The column of -inf is at most any number except NaN.
    return not bool(np.isnan(threshold[reached]).any())


def _flagged_walk(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check slots of `hbtvm.strategies.cuda.slots`: every walk from a root reaches a leaf."""
    node, bits = tables[argument.name], bounds["bits"]
    here, seen, last = np.unique(tables["root"]).astype(np.int64), 0, len(node) - 1
    if node.dtype != np.int64 or not _within(here, last + 1):
        return False
    ends = []
    while len(here):
        seen += len(here)
        link = node[here, 1] if dtype == "float64" else node[here, 0] >> 32
        offset = link >> bits + 2 if bounds["linked"] else node[here, -1]
        # Children follow their node, so every walk ends; and no slot is reached twice.
        inside = (offset > 0) & (offset < last - here)
        if seen > last or not (_within(link & ((1 << bits) - 1), bounds["columns"]) and inside.all()):
            return False
        child = np.repeat(here + offset, 2)
        child[1::2] += 1
        leaf = np.stack([link >> bits & 1, link >> bits + 1 & 1], 1).reshape(-1) == 1
        ends.append(child[leaf])
        here = child[~leaf]
    # Values in slots may be any numbers.
    return "value" not in tables or _within(
        node[np.concatenate(ends), 0].astype(np.int32), len(tables["value"])
    )


def _slots(
    node: np.ndarray, bounds: Mapping[str, int], dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return all slots' columns, distances to children, thresholds, and thresholds' bits as integers."""
    linked, bits = bounds["linked"], bounds["bits"]
    if node.dtype.kind == "f":
        words = node.view(f"int{8 * node.itemsize}")
        threshold, index, link, more = node[:, 0], words[:, 0], words[:, 1], words[:, -1]
    elif dtype == "float64":
        threshold, index, link, more = node[:, 0].view(np.float64), node[:, 0], node[:, 1], node[:, -1]
    else:
        halves = np.ascontiguousarray(node[:, 0]).view(np.int32).reshape(-1, 2)
        threshold, index = np.ascontiguousarray(halves[:, 0]).view(np.float32), halves[:, 0]
        link, more = halves[:, 1], node[:, -1]
    link = link.astype(np.int64)
    if linked:
        return link & ((1 << bits) - 1), link >> bits, threshold, index
    return link, more.astype(np.int64), threshold, index


def _path(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check paths and left_counts of `hbtvm.strategies.trees.gemm`: any tests lead to at most one leaf.

    A node's row is 1 for leaves on its left and -1 for leaves on its right: a range of leaves, cut in two. A
    node separates any two leaves if the ranges form a binary tree: one range holds all leaves, and each half
    of a range is a range or a single leaf.
    """
    path, left_counts = tables[argument.name], tables["left_counts"]
    if bounds["leaf_axis"] == 0:
        path = np.swapaxes(path, -1, -2)
    nodes, leaves = path.shape[-2:]
    path, left_counts = path.reshape(-1, nodes, leaves), left_counts.reshape(-1, leaves)
    left, right = path == 1, path == -1
    if not np.all(left | right | (path == 0)):
        return False
    count_left, count_right = left.sum(2), right.sum(2)
    used = (count_left > 0) | (count_right > 0)
    tree = np.nonzero(used)[0]
    left, right = left[used], right[used]
    start, cut = left.argmax(1), right.argmax(1)
    end = cut + count_right[used]
    ranges = (count_left[used] > 0) & (count_right[used] > 0) & (start + count_left[used] == cut)
    ranges &= (leaves - left[:, ::-1].argmax(1) == cut) & (leaves - right[:, ::-1].argmax(1) == end)
    if not ranges.all():
        return False
    needed = (path == 1).sum(1)
    if np.any(left_counts < needed):
        return False
    reached = left_counts == needed
    count = np.where(reached.any(1), leaves - reached[:, ::-1].argmax(1), 0)
    step = leaves + 1
    key = (tree * step + start) * step + end
    wanted = [(tree * step + start) * step + cut, (tree * step + cut) * step + end]
    wide = [cut - start > 1, end - cut > 1]
    all_leaves = np.flatnonzero(count > 1)
    whole = all_leaves * step * step + count[all_leaves]
    needed_keys = np.concatenate([whole, *(keys[which] for keys, which in zip(wanted, wide, strict=True))])
    return bool(np.isin(needed_keys, key).all())


def _visits(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check splits of `hbtvm.strategies.reasons.tables`: a walk opens and closes them as a stack."""
    column, place, earlier, level, closes, flags = tables[argument.name].astype(np.int64).T
    first = tables["first"].astype(np.int64)
    following = np.append(level[1:], 0)
    following[first[1:] - 1] = 0
    return (
        _within(column, bounds["columns"])
        and _within(place, bounds["places"])
        and _within(level, bounds["levels"])
        and _within(flags, 8)
        and bool(np.all(level[first[:-1]] == 0) and np.all((earlier >= 0) & (earlier <= 2 * level)))
        and bool(np.all((closes >= 0) & (level + 1 - closes == following)))
    )


def _visit_blocks(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check the first splits of blocks: they ascend to the number of splits."""
    first = tables[argument.name].astype(np.int64)
    ends = len(first) > 1 and first[0] == 0 and first[-1] == len(tables["split"])
    return bool(ends and np.all(first[1:] > first[:-1]))


def _steps(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check steps of `hbtvm.strategies.reasons.steps`: every level, column, half and place exists."""
    code, earlier, where, place = tables[argument.name].astype(np.int64).T
    of_halves = (code % 8 == 2) | (code % 8 == 3)
    return (
        _within(code >> 5, bounds["levels"])
        and _within(earlier, bounds["levels"])
        and _within(where[~of_halves], bounds["columns"])
        and _within(where[of_halves], bounds["halves"])
        and _within(place, bounds["places"])
    )


def _step_ranges(argument: Argument, tables: Tables, bounds: Mapping[str, int], dtype: str) -> bool:
    """Check the first steps of threads: they ascend up to the number of steps."""
    first = tables[argument.name].astype(np.int64)
    return _within(first, len(tables["step"]) + 1) and bool(np.all(first[..., 1:] >= first[..., :-1]))


def _within(values: np.ndarray, below: int) -> bool:
    return not values.size or bool(values.min() >= 0 and values.max() < below)


CHECKS: Mapping[str, Check] = {
    "index": _index,
    "byte_column": _byte_column,
    "sorted": _sorted,
    "ranked_word": _ranked_word,
    "interval": _interval,
    "placed_rank": _placed_rank,
    "placed_link": _placed_link,
    "node_word": _node_word,
    "mask": _mask,
    "code_run": _code_run,
    "walk": _walk,
    "flagged_walk": _flagged_walk,
    "path": _path,
    "visits": _visits,
    "visit_blocks": _visit_blocks,
    "steps": _steps,
    "step_ranges": _step_ranges,
}
"""Checks of contents, by their names in signatures."""
