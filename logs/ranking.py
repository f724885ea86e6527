"""Ranking of a workload's candidates: one rule for packages, reports and transfer.

A search selects the fastest of many noisy readings, so its best reading is mostly a lucky one. At the end of
a run, the fastest candidates are therefore measured again, in turns (`hbtvm.tuning.final`). Records of such a
*final* carry the field ``final``::

    "final": {"id": "3f0c...", "reading": 5.55e-06}

``id`` is the same for all finalists of one run. ``reading`` is the finalist's reading in the search, absent
if unknown. Older logs have ``"final": true``; their finals are separated by position.

The rule, for records of one workload on one target:

1. A final replaces an earlier final if the earlier final's winner took part in it. A resumed run therefore
   counts by its last final, and the finals of merged logs count side by side.
2. Among the finalists of the remaining finals, each with its latest final time, the fastest wins. A finalist
   that failed in its final is out.
3. A candidate outside these finals ranks behind all finalists, however fast its reading. The exception is a
   candidate first measured after the last final, in a run that stopped before its own final: it wins if its
   reading beats every finalist's reading.
4. Without a final, the fastest reading wins, where a candidate's latest reading counts. A final without an id
   and with a single record (older versions pruned them) compares nothing: its time is a reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hbtvm.logs.record import Record, canonical

Candidate = tuple[str, str]  # a strategy and its configuration as canonical JSON


def final_mark(ident: str, reading: float | None) -> dict[str, Any]:
    """Return the ``extra`` field of a record measured in a final.

    `ident`: the final's id, unique among all logs.
    `reading`: seconds that the search measured; None if unknown.
    """
    known = {} if reading is None or not math.isfinite(reading) else {"reading": reading}
    return {"final": {"id": ident, **known}}


def is_final(record: Record) -> bool:
    """Return whether a record was measured in a final, rather than by a search."""
    return bool(record.extra.get("final"))


def ranking(records: Iterable[Record]) -> list[Record]:
    """Rank the working candidates of one workload and target by this module's rule, best first.

    `records`: of alternative strategies, in the order in which they were written.
    Returns one record for each candidate: its record in a final that counts, else its latest reading. Empty
    configurations are left out.
    """
    seen = _Seen(records)
    finalists: dict[Candidate, Record] = {}
    for final in seen.standing:
        finalists.update(final.records)
    finalists = {key: record for key, record in finalists.items() if key not in seen.failed}
    last = max((final.place for final in seen.standing), default=math.inf)
    bar = min((seen.reading_of(record) for record in finalists.values()), default=-math.inf)
    late: list[Record] = []
    others: list[Record] = []
    for key, record in seen.latest.items():
        if key not in finalists and key not in seen.failed:
            wins = seen.first[key] > last and record.cost < bar
            (late if wins else others).append(record)
    by_cost = (sorted(part, key=_cost) for part in (late, finalists.values(), others))
    return [record for part in by_cost for record in part]


def deciding(records: Iterable[Record]) -> list[Record]:
    """Return the final records that `ranking` uses, failures included: a pruned log must keep them."""
    return [record for final in _Seen(records).standing for record in final.records.values()]


@dataclass
class _Final:
    """A run's final: its finalists' records, and the position of the last."""

    records: dict[Candidate, Record] = field(default_factory=dict)
    place: int = 0

    @property
    def winner(self) -> Candidate | None:
        """Return the fastest finalist; None if all failed."""
        working = {key: record for key, record in self.records.items() if record.times}
        return min(working, key=lambda key: working[key].cost, default=None)


class _Seen:
    """Records sorted into finals and readings.

    `latest`: the latest record of each working candidate; of equal records, the first.
    `first`: the position of a candidate's first record.
    `failed`: candidates that failed in their latest final.
    `standing`: finals with a winner that no later final replaces; without an id, only finals of several
        candidates.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.latest: dict[Candidate, Record] = {}
        self.first: dict[Candidate, int] = {}
        self.failed: set[Candidate] = set()
        self._readings: dict[Candidate, float] = {}
        finals: dict[object, _Final] = {}
        unnamed = 0  # finals of older logs so far
        previous: Record | None = None
        for place, record in enumerate(records):
            if not record.config:
                continue
            key = record.strategy, canonical(record.config)
            self.first.setdefault(key, place)
            if is_final(record):
                ident: str | int | None = _ident(record)
                if ident is None:
                    follows = previous is not None and is_final(previous) and _ident(previous) is None
                    if not follows or key in finals[unnamed].records:
                        unnamed += 1
                    ident = unnamed
                final = finals.setdefault(ident, _Final())
                final.records[key] = record
                final.place = place
                (self.failed.discard if record.times else self.failed.add)(key)
            elif record.times:
                self._readings[key] = record.cost
            if record.times and not (key in self.latest and self.latest[key].cost == record.cost):
                self.latest[key] = record
            previous = record
        self.standing: list[_Final] = []
        for name, final in sorted(finals.items(), key=lambda pair: pair[1].place):
            compared = isinstance(name, str) or len(final.records) > 1
            if final.winner is not None and compared:
                self.standing = [earlier for earlier in self.standing if earlier.winner not in final.records]
                self.standing.append(final)

    def reading_of(self, record: Record) -> float:
        """Return a finalist's seconds in its search; 0, which nothing beats, if unknown."""
        mark = record.extra["final"]
        if isinstance(mark, Mapping) and "reading" in mark:
            return float(mark["reading"])
        return self._readings.get((record.strategy, canonical(record.config)), 0.0)


def _ident(record: Record) -> str | None:
    mark = record.extra["final"]
    return str(mark["id"]) if isinstance(mark, Mapping) else None


def _cost(record: Record) -> float:
    return record.cost
