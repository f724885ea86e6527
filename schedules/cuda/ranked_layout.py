"""Where ranks lie in shared memory, and how the words of nodes refer to them (`hbtvm.schedules.cuda.ranked`).

Ranked by rows, a word of a bank has the ranks that neighbouring columns of one row have, and neighbouring
words are those of neighbouring rows: rows of a warp never meet in a bank, whichever columns they look at.
Ranked by columns, ranks of neighbouring groups of thresholds lie side by side, so that neighbouring threads,
each of which ranks a group, write neighbouring bytes; and a row's ranks take an odd number of words, so that
rows that look at the same group do not meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.cuda.space import aligned, element
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import RANK_GROUP, Workload, prologue_of, rank_groups_of

BY_ROWS, BY_COLUMNS = "rows", "columns"  # choices of the knob ``ranked``: what neighbouring threads rank

GROUPS = "group_threshold"  # name of the table of thresholds by groups

RANKED, MISSING = "ranked", "missing"
"""Blocks of what a thread that ranks by columns has in registers: a row's value, and the rank of NaN."""

_WORD = 4  # bytes of a word, and of a bank of shared memory


def by_columns(config: Config) -> bool:
    """Whether a thread ranks one group of a column's thresholds in all rows of a tile."""
    return config.get("ranked") == BY_COLUMNS


def fills_only(workload: Workload) -> bool:
    """Whether columns are features in which nothing changes but that numbers replace NaN."""
    changed = workload["zeros_missing"] or workload["categorical"] or prologue_of(workload) is not None
    return bool(workload["fills_missing"]) and not changed


@dataclass(frozen=True)
class RankLayout:
    """The ranks of a tile."""

    grouped: bool  # whether a rank is that in a group of a column's thresholds, not in all of them
    count: int  # ranks of a row: as many as there are columns, or groups
    bits: int  # bits of a rank
    row_tile: int  # rows

    @classmethod
    def of(cls, workload: Workload, config: Config) -> RankLayout:
        """The layout that a configuration asks for."""
        rows = int(config["row_tile"])
        if by_columns(config):
            return cls(True, rank_groups_of(workload), RANK_GROUP.bit_length(), rows)
        columns = int(workload["numeric"]) + int(workload["categorical"])
        return cls(False, columns, int(workload["rank_bits"]), rows)

    @property
    def dtype(self) -> str:
        """Type of a rank."""
        return "uint8" if self.bits <= 8 else "uint16"

    @property
    def packed(self) -> int:
        """Ranks of a word."""
        return _WORD // element(self.dtype)

    @property
    def row_room(self) -> int:
        """Ranks of a row, those that fill up words included."""
        words = -(-self.count // self.packed)
        return self.packed * (words | 1 if self.grouped else words)

    @property
    def room(self) -> int:
        """Ranks of all rows."""
        return self.row_room * self.row_tile

    @property
    def bytes(self) -> int:
        """Bytes of shared memory that they take."""
        return aligned(self.room * element(self.dtype))

    def place(self, number: Any) -> Any:
        """Where the first row's rank of a column or group is."""
        if self.grouped:
            return number
        return number // self.packed * self.packed * self.row_tile + number % self.packed

    @property
    def below(self) -> int:
        """What all such places are below."""
        return self.row_room if self.grouped else self.room - self.packed * (self.row_tile - 1)

    @property
    def place_bits(self) -> int:
        """Bits of words that places take; by rows, numbers of rows take the bits that places leave free."""
        return ((self.row_room if self.grouped else self.room) - 1).bit_length()
