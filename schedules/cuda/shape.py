"""Distribution of a kernel's rows and trees over blocks and threads (see `hbtvm.strategies.cuda.grid`)."""

from __future__ import annotations

from dataclasses import dataclass

from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload

WARP = 32  # threads of a warp

PREFETCH = "prefetch"
"""Choice of the knob ``tables``: in shared memory, each tile's copied while the one before is walked."""


@dataclass(frozen=True)
class Shape:
    """How a block's rows and trees are distributed over its threads."""

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
    """A workload as blocks see it that share a group's trees: as many groups more, of fewer trees each.

    `tree_blocks`: blocks for each group and tile of rows. Of group g, block b has what is then group b * G +
        g.
    """
    trees, groups = -(-workload["trees"] // tree_blocks), workload["groups"] * tree_blocks
    return {**workload, "trees": trees, "groups": groups}


def tree_tiles(workload: Workload, config: Config) -> int:
    """Tiles of trees that a block goes through."""
    return -(-int(workload["trees"]) // int(config["tree_tile"]))


def staged_trees(workload: Workload, config: Config) -> int:
    """Trees whose tables a block has in shared memory at a time."""
    tiles = {"global": 0, "shared": 1, PREFETCH: 2}
    held = tiles.get(str(config["tables"]), tree_tiles(workload, config))
    return int(config["tree_tile"]) * held


def persistent_blocks(workload: Workload, persistent: int, resident: int) -> int:
    """Blocks for each group of outputs that stay while there are tiles of rows.

    `persistent`: multiprocessors to fill.
    `resident`: blocks that each of them holds at a time.
    """
    return -(-persistent * resident // int(workload["groups"]))
