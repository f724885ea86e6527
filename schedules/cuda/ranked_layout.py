"""Layout of ranks in shared memory, to which the words of nodes refer (`hbtvm.schedules.cuda.ranked`).

Ranked by rows, a word holds the ranks of neighbouring columns of one row, and neighbouring words belong to
neighbouring rows: rows of a warp never conflict in a bank, for any columns. Ranked by columns, ranks of
neighbouring groups of thresholds are adjacent, so that neighbouring threads, each of which ranks a group,
write neighbouring bytes; a row's ranks take an odd number of words, so that rows that read the same group do
not conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.cuda.space import aligned, element
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import RANK_GROUP, Workload, prologue_of, rank_groups_of

BY_ROWS, BY_COLUMNS = "rows", "columns"  # choices of the knob ``ranked``: neighbouring threads' work

GROUPS = "group_threshold"  # name of the table of thresholds by groups

RANKED, MISSING = "ranked", "missing"
"""Sblocks of a thread's registers when it ranks by columns: a row's value, and the rank of NaN."""

_WORD = 4  # bytes of a word, and of a bank of shared memory


def by_columns(config: Config) -> bool:
    """Whether a thread ranks one group of a column's thresholds in all rows of a tile."""
    return config.get("ranked") == BY_COLUMNS


def fills_only(workload: Workload) -> bool:
    """Whether columns only replace NaN in features by numbers."""
    changed = workload["zeros_missing"] or workload["categorical"] or prologue_of(workload) is not None
    return bool(workload["fills_missing"]) and not changed


@dataclass(frozen=True)
class RankLayout:
    """The ranks of a tile."""

    grouped: bool  # whether ranks count a group of a column's thresholds, not all of them
    count: int  # ranks of a row: as many as there are columns, or groups
    bits: int  # bits of a rank
    row_tile: int  # rows

    @classmethod
    def of(cls, workload: Workload, config: Config) -> RankLayout:
        """Return the layout of a configuration."""
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
        """Ranks of a row, padding included."""
        words = -(-self.count // self.packed)
        return self.packed * (words | 1 if self.grouped else words)

    @property
    def room(self) -> int:
        """Ranks of all rows."""
        return self.row_room * self.row_tile

    @property
    def bytes(self) -> int:
        """Bytes of shared memory of all ranks."""
        return aligned(self.room * element(self.dtype))

    def place(self, number: Any) -> Any:
        """Return the place of the first row's rank of a column or group."""
        if self.grouped:
            return number
        return number // self.packed * self.packed * self.row_tile + number % self.packed

    @property
    def below(self) -> int:
        """Exclusive bound of these places."""
        return self.row_room if self.grouped else self.room - self.packed * (self.row_tile - 1)

    @property
    def place_bits(self) -> int:
        """Bits of a place in words; ranked by rows, the row's number uses bits that places leave free."""
        return ((self.row_room if self.grouped else self.room) - 1).bit_length()
