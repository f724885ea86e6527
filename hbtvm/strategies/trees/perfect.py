"""Perfect tree traversal: a walk over trees padded to perfect trees.

Hummingbird's algorithm 3. Children need no table: within level l, whose 2**l nodes lie side by
side in the tables from entry 2**l on, the children of node j are nodes 2 * j and 2 * j + 1 of
the next level::

    node[0][t, r]     = the node, of 2**k, that the tests of all nodes above lead to
    node[l + 1][t, r] = 2 * node[l] + (column[feature[t, l, node[l]], r] <= threshold[t, l, node[l]] ? 0 : 1)
    score[r]          = sum over trees t of value[t, node[depth][t, r]]

The first k levels test all of their nodes, which is cheaper than looking up the reached node: a
test takes no gather, and one vector comparison tests a node for all rows.

With the knob ``bytes``, a node's column is a byte: AVX-512 VBMI permutes the 64 or 128 columns of a
level by one instruction.

The knob ``words`` packs a node in a word of 64 bits, for scalar walks of six instructions a level. Numbers
are keys, integers in the order of their values. The T trees of a tile are one heap, so that they need no
addresses of their own: its level of T nodes are the roots, and node n has the children 2 * n and 2 * n + 1::

    word[n]    = key(threshold[n]) << 16 | column[n]
    node[t, r] = T + t, then for each level: 2 * node + (key(columns[column of word, r]) << 16 > word[node])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import TREE_TILES, Argument, table
from hbtvm.schedules.cpu import perfect as perfect_cpu
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, spread, tile_trees
from hbtvm.strategies.intrinsics.exact import exact
from hbtvm.strategies.intrinsics.lookup import REGISTER, lookup
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest

MAX_DEPTH = 12  # a perfect tree of depth d has 2**d leaves; beyond this its tables outgrow the caches
_MAX_FULL_DEPTH = 14  # the same for full trees (`is_full`)
_COLUMN_BITS, _LOWEST = 16, -(1 << 31)  # of a word; the bits of -0.0
_FULL = 4  # a tree is full if its perfect tree has at most this many times its leaves


class PerfectTreeTraversal(Strategy):
    """Walk over trees padded to perfect trees: children need no table."""

    name = "perfect_tree_traversal"
    schedule = perfect_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and perfect_tree_traversal needs a level to walk"
        if workload["depth"] > (_MAX_FULL_DEPTH if is_full(workload) else MAX_DEPTH):
            return (
                f"trees are up to {workload['depth']} levels deep; perfect_tree_traversal holds at most "
                f"{MAX_DEPTH}, or {_MAX_FULL_DEPTH} in full trees"
            )
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.04 * workload["depth"] ** 2)

    def tree_bytes(self, workload: Workload) -> int:
        node = 4 + np.dtype(workload["dtype"]).itemsize
        value = np.dtype(workload["value_dtype"]).itemsize
        return int(node + value * workload["width"]) << int(workload["depth"])

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        trees, depth = len(forest.offset) - 1, forest.depth
        levels = perfect_levels(forest)
        tiles, by_tree = tile_trees(forest, int(config["tree_tile"])), config["axis"] == "trees"
        if perfect_cpu.by_words(config):
            words = threshold_keys(forest.threshold) << _COLUMN_BITS | forest.column
            word = heap_of_tiles(spread(split_table(forest, levels, words, 2**depth), tiles, 0, False))
            value = forest.value[levels[-1]].astype(forest.value_dtype)
            return {"word": word, "value": spread(value, tiles, 0, False)}
        byte = perfect_cpu.by_bytes(config)
        number = forest.column.astype(np.int8) if byte else forest.column
        column = split_table(forest, levels, number, _room(depth, 1 if byte else 4))
        threshold = split_table(forest, levels, forest.threshold, _room(depth))
        rows = leaf_rows(2**depth, forest.value_dtype, config)
        value = np.zeros((trees, rows, forest.value.shape[1]), forest.value_dtype)
        value[:, : 2**depth] = forest.value[levels[-1]]
        tables = {"column": column, "threshold": threshold, "value": value}
        return {name: spread(table, tiles, 0, by_tree) for name, table in tables.items()}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        room, columns = (_room(workload["depth"]),), workload["numeric"] + workload["categorical"]
        if perfect_cpu.by_words(config):
            bounds = {"bits": _COLUMN_BITS, "below": columns}
            size = int(config["tree_tile"]) << workload["depth"]
            word = table("word", "int64", (TREE_TILES, workload["groups"], size), "ranked_word", **bounds)
            return word, leaf_table(workload, config, 2 ** workload["depth"])
        byte = perfect_cpu.by_bytes(config)
        entries = (_room(workload["depth"], 1),) if byte else room
        return (
            tree_table(
                workload, config, "column", "int8" if byte else "int32", entries, "index", below=columns
            ),
            tree_table(workload, config, "threshold", workload["dtype"], room),
            leaf_table(workload, config, 2 ** workload["depth"]),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        builder = StageBuilder(workload, config)
        depth, top = workload["depth"], int(config["top_levels"])
        tables = builder.placeholders(self.arguments(workload, config))
        if perfect_cpu.by_words(config):
            return _walks_of_words(builder, tables)
        column, threshold, value = tables

        def first(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            def below(level: int, node: int) -> Any:
                if level == top:
                    return tirx.const(node, "int32")
                at = builder.at(o, g, t, 2**level + node)
                number = _number(column[at], config)
                x = (
                    builder.column(i, number, r)
                    if builder.trees_inner
                    else builder.stage.columns[i, number, r]
                )
                return tirx.Select(
                    x <= threshold[at], below(level + 1, 2 * node), below(level + 1, 2 * node + 1)
                )

            return below(0, 0)

        node = builder.per_tree(first, f"walk_{top}")
        for level in range(top, depth):
            node = _step(builder, column, threshold, node, level)

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            return builder.leaf_value(value, o, g, t, builder.read(node, i, o, g, t, r), v)

        return builder.function(tables, builder.scores(leaf_value))


def _walks_of_words(builder: StageBuilder, tables: list[Any]) -> Any:
    """Return the tensor expressions of scalar walks."""
    (word, value), columns, depth = tables, builder.stage.columns, int(builder.workload["depth"])
    count = builder.workload["numeric"] + builder.workload["categorical"]
    trees, entries = builder.tree_tile, builder.tree_tile << depth
    keys = te.compute(
        (builder.tiles, builder.row_tile, count),
        lambda i, r, c: _key(columns[i, c, r]) << tirx.const(_COLUMN_BITS, "int64"),
        name="keys",
    )

    def step(node: Any) -> Any:
        def next_node(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            # An index of 64 bits is a part of a scalar load's address.
            here = t.astype("int64") + trees if node is None else builder.read(node, i, o, g, t, r)
            test = lookup(word[o, g, 0], here, entries, "scalar")
            column = test & tirx.const(2**_COLUMN_BITS - 1, "int64")
            key = lookup(keys[i, r, 0], column, count, "scalar")
            one = word[o, g, 0] >> tirx.const(_COLUMN_BITS, "int64") & tirx.const(1, "int64")
            return (here << one) + (key > test).astype("int64")

        return next_node

    node = None
    for level in range(depth):
        node = builder.per_tree(step(node), f"walk_{level + 1}")

    def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
        leaf = builder.read(node, i, o, g, t, r) - entries
        return builder.leaf_value(value, o, g, 0, leaf, v)

    return builder.function(tables, builder.scores(leaf_value))


def _key(value: Any) -> Any:
    """Return the key of a float32 number: int64, at least 0; that of NaN is highest."""
    bits, lowest = tirx.reinterpret("int32", value).astype("int64"), tirx.const(_LOWEST, "int64")
    key = tirx.Select(bits < tirx.const(0, "int64"), lowest - bits, bits)
    is_number = value <= tirx.const(np.inf, "float32")
    return tirx.Select(is_number, key, tirx.const(-1 - _LOWEST, "int64")) - lowest


def threshold_keys(values: np.ndarray) -> np.ndarray:
    """Return the keys of float32 numbers, in whose order they are: int64, below ``2**32``."""
    bits = values.view(np.int32).astype(np.int64)
    keys: np.ndarray = np.where(bits < 0, _LOWEST - bits, bits) - _LOWEST
    return keys


def heap_of_tiles(words: np.ndarray) -> np.ndarray:
    """Return the nodes of each tile's trees in one heap.

    Entry 0 has the key 1, the distance of shifts by one bit. LLVM does not know it, and so keeps the number
    of a node whole; it would compute each address from the bits of earlier tests.

    `words`: shape (tiles, groups, T, 2**depth), see `split_table`.
    Returns shape (tiles, groups, T * 2**depth).
    """
    *outer, trees, size = words.shape
    heap = np.zeros((*outer, trees * size), words.dtype)
    heap[..., 0] = 1 << _COLUMN_BITS
    for level in range(size.bit_length() - 1):
        first = 2**level
        heap[..., trees * first : 2 * trees * first] = words[..., first : 2 * first].reshape(*outer, -1)
    return heap


def is_full(workload: Workload) -> bool:
    """Return whether padding the trees to perfect trees wastes little."""
    return bool(2 ** workload["depth"] <= _FULL * workload["leaves"])


def perfect_levels(forest: Forest) -> list[np.ndarray]:
    """Return the nodes of each level, over the whole forest, with its trees padded to perfect trees.

    Returns for each level l from the roots to the leaves: int64, shape (T, 2**l). A leaf stands for the whole
    subtree below it.
    """
    base = forest.offset[:-1, None]
    levels = [base.astype(np.int64)]
    for _ in range(forest.depth):
        node = levels[-1]
        split = forest.left[node] >= 0
        children = [np.where(split, base + child[node], node) for child in (forest.left, forest.right)]
        levels.append(np.stack(children, 2).reshape(len(base), -1))
    return levels


def split_table(
    forest: Forest, levels: Sequence[np.ndarray], values: np.ndarray, size: int, leaf: int = 0
) -> np.ndarray:
    """Return numbers of splits in the order of `perfect_levels`: node j of level l is entry ``2**l + j``.

    `values`: a number of each node, shape (N,).
    `size`: entries of a tree, at least 2**depth.
    `leaf`: the number of entries without a split. Below a leaf all leaves have its value: any test is right.
    Returns the values' dtype, shape (T, size).
    """
    table = np.full((len(levels[0]), size), leaf, values.dtype)
    for level, node in enumerate(levels[:-1]):
        table[:, 2**level : 2 ** (level + 1)] = np.where(forest.left[node] >= 0, values[node], leaf)
    return table


def _room(depth: int, size: int = 4) -> int:
    """Return the entries of a tree's tables of nodes; a permute may read a register from any level on.

    `size`: bytes of an entry.
    """
    return max(1 << depth, 2 * REGISTER // size)


def _number(column: Any, config: Config) -> Any:
    """Return a node's column as int32, of which a table may keep a byte."""
    return column.astype("uint8").astype("int32") if perfect_cpu.by_bytes(config) else column


def _step(builder: StageBuilder, column: Any, threshold: Any, node: Any, level: int) -> Any:
    """Return the nodes that walks reach on the next level."""
    permuted = level < int(builder.config["permute_levels"])
    method = "permute" if permuted else str(builder.config["node_lookup"])
    run = range(2**level, 2 ** (level + 1))

    def step(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        here = builder.read(node, i, o, g, t, r)
        at = _number(builder.entry(column, o, g, t, run, here, method), builder.config)
        left = builder.column(i, at, r) <= builder.entry(threshold, o, g, t, run, here, method)
        if int(builder.config["lanes"]) == 16:
            # Where LLVM does not know the number, AVX-512 adds it by the comparison's mask: one instruction.
            one = tirx.reinterpret("int32", exact(tirx.reinterpret("float32", tirx.const(1, "int32"))))
            return tirx.Select(left, here * 2, here * 2 | one)
        return here * 2 + tirx.Select(left, tirx.const(0, "int32"), tirx.const(1, "int32"))

    return builder.per_tree(step, f"walk_{level + 1}")
