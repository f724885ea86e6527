"""CUDA schedules of the oblivious strategy (see `hbtvm.schedules.cuda.steps` for the loops around them)::

for each tile of rows:
    ranks[column, word] = ranks of the rows of a word             # by all threads
    ...
        for tree of trees_each, `together` of them unrolled:
            places, limits of the tree's levels to registers       # by vector loads, where layout is "nodes"
            for level, for tree in together, for word of rows: leaves[tree, word] = ...
            parts[row] += value[tree, leaf of the row's lane]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.schedules.cpu.steps import state_read
from hbtvm.schedules.cuda.ranked import rank_by_rows
from hbtvm.schedules.cuda.shape import Shape, staged_trees
from hbtvm.schedules.cuda.space import (
    Needs,
    aligned,
    common_default,
    common_knobs,
    element,
    fills,
    fits,
    settle,
    shape_is_valid,
    sum_bytes,
    sum_registers,
)
from hbtvm.schedules.cuda.steps import number_of_read, place, split_initial, stage_table, state_tree
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

_BYTE, _WORD = 8, 32  # bits
_VECTOR = 4  # levels of a vector load
_LEVELS = ("place", "limit")  # tables of levels
_BANKS = 32  # of shared memory
_STAGED = (
    8,
    16,
)  # columns to stage at a time by default: neighbouring threads read 32 bytes or more of a row
_OF_CATEGORIES = 12  # additional registers of a thread that looks up ranks of categories


def levels_room(depth: int) -> int:
    """Return the entries of a tree in a table of levels: whole vectors."""
    return -(-depth // _VECTOR) * _VECTOR


def leaves_room(depth: int) -> int:
    """Return the leaves of a tree in the table of values: whole vectors."""
    return max(1 << depth, _VECTOR)


def lane_bits(workload: Workload) -> int:
    """Return the bits of a lane, which holds a rank, or the number of a leaf."""
    most = max(int(workload["rank_bits"]), int(workload["depth"]))
    return _BYTE if most <= _BYTE else 2 * _BYTE


@dataclass(frozen=True)
class RankLanes:
    """Words of ranks in shared memory; a word holds one column's ranks of several rows of a thread, in lanes.

    A column's words are adjacent: those of neighbouring threads, for the first rows of each, then for others.
    """

    columns: int
    rank_bits: int
    bits: int  # bits of a lane
    packed: int  # lanes of a word
    words: int  # words of a column

    @classmethod
    def of(cls, workload: Workload, config: Config) -> RankLanes:
        """Return the layout of a configuration."""
        shape, rank_bits, bits = Shape.of(config), int(workload["rank_bits"]), lane_bits(workload)
        packed = min(shape.rows_each, _WORD // bits)
        columns = int(workload["numeric"]) + int(workload["categorical"])
        return cls(columns, rank_bits, bits, packed, shape.row_tile // packed)

    @property
    def dtype(self) -> str:
        """Type of a word."""
        return f"uint{self.bits * self.packed}"

    @property
    def room(self) -> int:
        """Words of all columns."""
        return self.columns * self.words

    @property
    def below(self) -> int:
        """Exclusive bound of the first words of columns."""
        return self.room - self.words + 1

    @property
    def bytes(self) -> int:
        """Bytes of shared memory of all words."""
        return aligned(self.room * element(self.dtype))

    @property
    def spare(self) -> bool:
        """Whether ranks leave the highest bit of a lane free."""
        return self.rank_bits < self.bits

    @property
    def low(self) -> int:
        """All bits of the lanes of 32 bits but the highest of each."""
        return self._in_all_lanes((1 << (self.bits - 1)) - 1)

    @property
    def high(self) -> int:
        """The highest bit of each lane of 32 bits."""
        return self._in_all_lanes(1 << (self.bits - 1))

    def limit(self, rank: np.ndarray) -> np.ndarray:
        """Return words, int32, to which ranks above `rank` add up to a lane's highest bit, or carry."""
        most = (1 << (self.bits - 1 if self.spare else self.bits)) - 1
        return ((most - rank.astype(np.int64)) * self._in_all_lanes(1)).astype(np.uint32).view(np.int32)

    def _in_all_lanes(self, number: int) -> int:
        return sum(number << first for first in range(0, _WORD, self.bits))


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""

    def valid(config: Config) -> bool:
        return (
            shape_is_valid(workload, target, config)
            and Shape.of(config).trees_each % int(config["together"]) == 0
            and _is_shared_out(workload, config)
            and fits(needs(workload, config), target, config)
        )

    columns = int(workload["numeric"]) + int(workload["categorical"])
    common = (
        Knob("columns", ("shared",)) if knob.name == "columns" else knob
        for knob in common_knobs(workload, target)
    )
    return Space(
        (
            *common,
            Knob("together", (1, 2, 4)),
            Knob("staged", tuple(n for n in (0, 4, 8, 16) if n < 2 * columns)),
        ),
        valid,
    )


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape, together, lanes = Shape.of(config), int(config["together"]), RankLanes.of(workload, config)
    levels = levels_room(int(workload["depth"]))
    values = leaves_room(int(workload["depth"])) * int(workload["width"]) * element(workload["value_dtype"])
    trees = staged_trees(workload, config)
    words = shape.rows_each // lanes.packed
    return Needs(
        shape.threads,
        lanes.bytes
        + staged_bytes(workload, config)
        + 2 * aligned(trees * levels * 4)
        + aligned(trees * values)
        + sum_bytes(config),
        20
        + (_OF_CATEGORIES if workload["categorical"] else 0)
        + together * (words + len(_LEVELS) * levels)
        + sum_registers(workload, config),
    )


def staged_bytes(workload: Workload, config: Config) -> int:
    """Return the bytes of shared memory of a block's staged columns."""
    count = int(config["staged"])
    return aligned(count * (int(config["row_tile"]) + _BANKS) * element(workload["dtype"]))


def _is_shared_out(workload: Workload, config: Config) -> bool:
    """Whether all threads search staged columns; else TVM would stage all columns at once."""
    words = int(config["staged"]) * RankLanes.of(workload, config).words
    return words % Shape.of(config).threads == 0


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    chosen: Config = {**common_default(workload, target), "columns": "shared", "together": 1, "staged": 0}
    shape, most = Shape.of(chosen), _WORD // lane_bits(workload)
    # A thread tests the rows of a word at once.
    while (
        int(workload["width"]) == 1 and shape.rows_each < most and fills(workload, target, 2 * shape.row_tile)
    ):
        shape = replace(shape, row_tile=2 * shape.row_tile)
    chosen["row_tile"] = shape.row_tile
    settled = [
        settle({**chosen, "staged": count}, workload, target, lambda config: needs(workload, config))
        for count in (*_STAGED, 0)
    ]
    known = space(workload, target)
    return next((config for config in settled if known.contains(config)), settled[-1])


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the strategy's expressions in place (main stage: block ``leaves``)."""
    placed = place(sch, workload, config, "leaves", int(config["together"]))
    leaves, shared, lanes = (
        sch.get_sblock("leaves"),
        needs(workload, config).shared,
        RankLanes.of(workload, config),
    )
    sch.unroll(placed.reduction)
    state_read(sch, leaves, "ranks", lambda i, *_: [(i, i + 1), (0, lanes.room)])
    parts = sch.get_sblock("parts")
    vector = _VECTOR if config["layout"] == "nodes" else min(_VECTOR, Shape.of(config).tree_tile)
    for name in _LEVELS:
        state_tree(sch, leaves, config, name)
        if config["tables"] != "global":
            stage_table(sch, config, leaves, name, placed, shared, vector)
        if config["layout"] == "nodes":
            _load_levels(sch, leaves, name, placed.tree)
    if config["tables"] != "global":
        state_tree(sch, parts, config, "value", in_parts=True)
        stage_table(sch, config, parts, "value", placed, shared, vector)
    rank_by_rows(sch, config, placed.rows, shared, lanes.rank_bits, int(config["staged"]), lanes.words)
    split_initial(sch, placed, [(leaves, placed.reduction)])


def _load_levels(sch: Any, leaves: Any, name: str, loop: Any) -> None:
    """In `loop`, load all levels of its trees into registers, by vector loads."""
    copy = sch.cache_read(leaves, number_of_read(sch, leaves, name), "local")
    sch.compute_at(copy, loop, True)
    *_, tree, level = sch.get_loops(copy)
    several, lanes = sch.split(level, [None, _VECTOR])
    for unrolled in (tree, several):
        sch.unroll(unrolled)
    sch.vectorize(lanes)
