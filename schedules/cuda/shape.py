"""Distribution of a kernel's rows and trees over blocks and threads (see `hbtvm.strategies.cuda.grid`)."""

from __future__ import annotations

from dataclasses import dataclass

from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload

WARP = 32  # threads of a warp
_LINE = 128  # bytes of a cache line

PREFETCH = "prefetch"
"""Choice of the knob ``tables``: in shared memory, copying each tile's during the walk of the previous."""


@dataclass(frozen=True)
class Shape:
    """Distribution of a block's rows and trees over its threads."""

    row_tile: int
    row_threads: int
    tree_tile: int
    tree_threads: int

    @classmethod
    def of(cls, config: Config) -> Shape:
        names = ("row_tile", "row_threads", "tree_tile", "tree_threads")
        return cls(*(int(config[name]) for name in names))

    @property
    def rows_each(self) -> int:
        """Rows of a thread."""
        return self.row_tile // self.row_threads

    @property
    def trees_each(self) -> int:
        """Trees of a tile that a thread walks."""
        return self.tree_tile // self.tree_threads

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.row_threads * self.tree_threads


def shared_out(workload: Workload, tree_blocks: int) -> Workload:
    """Return the workload of blocks that share a group's trees: more groups with fewer trees each.

    `tree_blocks`: blocks for each group and tile of rows. Block b of group g has group b * G + g.
    """
    trees, groups = -(-workload["trees"] // tree_blocks), workload["groups"] * tree_blocks
    return {**workload, "trees": trees, "groups": groups}


def tree_tiles(workload: Workload, config: Config) -> int:
    """Return the number of a block's tiles of trees."""
    return -(-int(workload["trees"]) // int(config["tree_tile"]))


def staged_trees(workload: Workload, config: Config) -> int:
    """Return the number of trees whose tables a block holds in shared memory at a time."""
    tiles = {"global": 0, "shared": 1, PREFETCH: 2}
    held = tiles.get(str(config["tables"]), tree_tiles(workload, config))
    return int(config["tree_tile"]) * held


def walk_layout(workload: Workload, config: Config, size: int) -> str:
    """Return the ``layout`` of which a warp's walks touch fewer cache lines.

    With "nodes", each tree has lines of its own, which rows share near the root. With "trees", a node of
    neighbouring trees is a line, so rows and trees share a line if their walks are at the same node.
    `size`: bytes of a node.
    """
    shape, depth = Shape.of(config), int(workload["depth"])
    if shape.tree_threads == 1 or shape.row_threads >= WARP:
        return "nodes"
    nodes = int(workload["nodes"])
    top = min(depth, nodes.bit_length())
    # Nodes of a level, and levels that have as many: a damaged record's depth may be any number.
    widths = [*((min(2**level, nodes), 1) for level in range(top)), (nodes, depth - top)]
    own = sum(levels * min(shape.row_threads, -(-width * size // _LINE)) for width, levels in widths)
    shared = sum(levels * min(WARP, width) for width, levels in widths)
    return "trees" if shared < WARP // shape.row_threads * own else "nodes"


def persistent_blocks(workload: Workload, persistent: int, resident: int) -> int:
    """Return the number of persistent blocks for each group of outputs.

    `persistent`: multiprocessors to fill.
    `resident`: blocks that each multiprocessor holds at a time.
    """
    return -(-persistent * resident // int(workload["groups"]))
