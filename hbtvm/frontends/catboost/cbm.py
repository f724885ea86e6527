"""CatBoost's own format (``.cbm``): a core in FlatBuffers, and the tables of its counters behind it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.catboost.flatbuffers import Buffer, Table, damaged
from hbtvm.frontends.catboost.parts import (
    CTR_TYPES,
    NAN_TREATMENTS,
    Categorical,
    Combination,
    Counter,
    CounterTable,
    Numeric,
    Parts,
    StepTree,
    SymmetricTree,
)
from hbtvm.graph.trees.covers import cover_of
from hbtvm.words.printable import shown

_TABLES = "static_provider_v1"  # the part of a file that has the counters' tables

_INFO = ("params", "class_params", "multiclass_params", "binclass_probability_threshold")

_NO_HASH = np.uint64((1 << 64) - 1)  # marks empty slots
_SLOT = np.dtype([("hash", "<u8"), ("at", "<u4")])


def read(content: bytes) -> Parts:
    """Read a file's content.

    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` for a format of a later CatBoost.
    """
    core, rest = _sized(content, 4)
    root = Buffer(core).root()
    version, blocks = root.text(0), root.texts(3)
    unknown = [block for block in blocks if block != _TABLES]
    parts = _model(root, _tables(content, rest) if blocks and not unknown else {})
    if version != "FlabuffersModel_v1" or (unknown and not parts.others):
        raise UnsupportedModel(
            f"the CatBoost model has the parts {shown(', '.join([version, *unknown]), 200)}; supported are "
            "trees on numbers and categories."
        )
    return parts


def _sized(content: bytes, at: int) -> tuple[bytes, int]:
    """Return a block that begins with its size, and the position behind it."""
    size = int(Buffer(content[at : at + 4]).number(0, "<u4"))
    start, stop = at + 4, at + 4 + size
    if stop > len(content):
        raise damaged(f"it has {len(content)} bytes, expected {stop}")
    return content[start:stop], stop


def _model(root: Table, tables: dict[Any, CounterTable]) -> Parts:
    trees = root.table(1)
    width = trees.number(0, "<i4", 0)
    if not 1 <= width <= 1 << 16:
        raise damaged(f"it has {width} scores")
    numeric = [
        Numeric(
            feature.number(2, "<i4", -1),
            feature.text(4),
            feature.vector(3, "<f4"),
            _named(NAN_TREATMENTS, feature.number(5, "i1", 0)),
        )
        for feature in trees.tables(5)
    ]
    categorical = [Categorical(feature.number(1, "<i4", -1), feature.text(2)) for feature in trees.tables(4)]
    bias = trees.vector(16, "<f8")
    return Parts(
        numeric,
        categorical,
        [(feature.number(0, "<i4", -1), feature.vector(1, "<i4")) for feature in trees.tables(6)],
        [_counter(counter) for counter in trees.tables(7)],
        _trees(trees, width),
        trees.number(14, "<f8", 1.0),
        bias if len(bias) else np.full(width, trees.number(15, "<f8", 0.0)),
        _info(root),
        tables,
        tuple(
            kind for field, kind in ((12, "text"), (18, "embedding")) if len(trees.vector(field, "<u4"))
        ) or (("text or embedding",) if len(trees.vector(13, "<u4")) else ()),
    )  # fmt: skip


def _named(names: tuple[Any, ...], number: int) -> Any:
    if not 0 <= number < len(names):
        raise damaged(f"expected a number below {len(names)}, got {number}")
    return names[number]


def _info(root: Table) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for pair in root.tables(2):
        key = pair.text(0)
        if key in _INFO:
            try:
                info[key] = json.loads(pair.text(1))
            except (ValueError, RecursionError):
                raise damaged(f"its {key} are not JSON") from None
    return info


def _base(base: Table) -> tuple[Combination, str, int]:
    """Return the key of a table of counters: the combination, the kind, and the target that it counts."""
    features = base.table(0)
    combination = Combination(
        tuple(features.vector(0, "<i4").tolist()),
        tuple(features.vector(1, "<i4,<f4").tolist()),
        tuple(features.vector(2, "<i4,<i4").tolist()),
    )
    return combination, _named(CTR_TYPES, base.number(1, "i1", 0)), base.number(2, "<i4", 0)


def _counter(feature: Table) -> Counter:
    counter = feature.table(0)
    key = combination, kind, _ = _base(counter.table(0))
    return Counter(
        key,
        combination,
        kind,
        counter.number(1, "<i4", 0),
        (counter.number(2, "<f4", 0.0), counter.number(3, "<f4", 1.0)),
        counter.number(4, "<f4", 0.0),
        counter.number(5, "<f4", 1.0),
        feature.vector(1, "<f4"),
    )


def _tables(content: bytes, at: int) -> dict[Any, CounterTable]:
    tables = {}
    count = int(Buffer(content[at : at + 4]).number(0, "<u4"))
    at += 4
    for _ in range(count):
        block, at = _sized(content, at)
        root = Buffer(block).root()
        key = _base(root.table(0))
        tables[key] = _table(root, key[1])
    return tables


def _table(root: Table, kind: str) -> CounterTable:
    slots, blob = root.vector(1, "u1").tobytes(), root.vector(2, "u1").tobytes()
    classes, width = root.number(4, "<i4", 0), 1
    if kind in ("Borders", "Buckets"):
        width = classes
    elif "Mean" in kind:
        width = 2
    if width < 1 or len(slots) % _SLOT.itemsize or len(blob) % (4 * width):
        raise damaged("a table of counters has an odd size")
    counts = np.frombuffer(blob, "<i4").reshape(-1, width)
    if "Mean" in kind:
        counts = np.column_stack([counts[:, 0].view("<f4"), counts[:, 1]])
    slot = np.frombuffer(slots, _SLOT)
    slot = slot[slot["hash"] != _NO_HASH]
    if len(slot) and int(slot["at"].max()) >= len(counts):
        raise damaged("a table of counters lacks counts")
    return CounterTable(slot["hash"].astype(np.uint64), counts[slot["at"]], root.number(3, "<i4", 0))


def _trees(trees: Table, width: int) -> list[SymmetricTree | StepTree]:
    splits, sizes = trees.vector(1, "<i4").astype(np.int64), trees.vector(2, "<i4").tolist()
    values, steps = trees.vector(8, "<f8"), trees.vector(10, "<u2,<u2")
    leaf_of = trees.vector(11, "<u4").astype(np.int64)
    if len(values) % width:
        raise damaged(f"it has {len(values)} leaf values for {width} scores")
    result: list[SymmetricTree | StepTree] = []
    table, first, at = values.reshape(-1, width), 0, 0
    weight = _weights(trees, len(table))
    for size in sizes:
        if not 0 <= size <= len(splits) - at:
            raise damaged("a tree's splits lie outside of it")
        here = slice(at, at + size)
        if len(steps):
            result.append(_step_tree(splits[here], steps[here], leaf_of[here], table, weight))
        else:
            leaves = 1 << min(size, 40)
            if first + leaves > len(table):
                raise damaged("a tree lacks leaves")
            of_tree = slice(first, first + leaves)
            known = None if weight is None else weight[of_tree]
            result.append(SymmetricTree(splits[here], table[of_tree], known))
            first += leaves
        at += size
    return result


def _weights(trees: Table, leaves: int) -> np.ndarray | None:
    """Return the weights of the training rows in all leaves; None if they are damaged."""
    try:
        return cover_of(trees.vector(9, "<f8"), leaves)
    except ModelError:
        return None


def _step_tree(
    split: np.ndarray,
    steps: np.ndarray,
    leaf_of: np.ndarray,
    table: np.ndarray,
    weight: np.ndarray | None,
) -> StepTree:
    """Read a tree of steps.

    A node's children are some nodes further on; a step of 0 ends in the node's leaf. So a node of two steps
    0 is a leaf, and one such step needs a leaf of its own.
    """
    count, width = len(split), table.shape[1]
    if not count or len(steps) != count or len(leaf_of) != count:
        raise damaged("a tree's nodes lie outside of it")
    step = np.stack([steps["f0"], steps["f1"]]).astype(np.int64)
    ends = step == 0
    leaf = ends.all(axis=0)
    child = np.where(leaf, -1, np.arange(count) + step)
    alone = ends & ~leaf  # shape (2, count): a leaf beside an inner node
    child[alone] = count + np.arange(np.count_nonzero(alone))
    owner = np.concatenate([np.flatnonzero(leaf), *(np.flatnonzero(side) for side in alone)])
    place = leaf_of[owner]
    if np.any(place % width) or np.any(place // width >= len(table)):
        raise damaged("a node's leaf lies outside of it")
    row = place // width
    total = count + np.count_nonzero(alone)
    leaves = np.concatenate([np.flatnonzero(leaf), np.arange(count, total)])
    value, number = np.zeros((total, width)), np.zeros(total, np.int64)
    value[leaves], number[leaves] = table[row], row - row.min(initial=len(table))
    weights = None
    if weight is not None:
        weights = np.zeros(total)
        weights[leaves] = weight[row]
    more = np.full(total - count, -1)
    return StepTree(
        np.concatenate([split, more]),
        np.concatenate([child[0], more]),
        np.concatenate([child[1], more]),
        value,
        number,
        weights,
    )
