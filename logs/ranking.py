"""Which candidate of a workload is the fastest: one rule for packages, reports and transfer.

A search takes the fastest of many noisy readings, so that its best reading is mostly a lucky one. At the
end of a run the fastest few are therefore measured anew, in turns (`hbtvm.tuning.final`). The records of
such a *final* carry the field ``final``::

    "final": {"id": "3f0c...", "reading": 5.55e-06}

``id`` is the same for all finalists of one run, and ``reading`` is what the search had measured for this
one (absent where unknown). Older logs have ``"final": true``: there, finals are told apart by their place.

The rule, for records of one workload on one target:

1. A final replaces an earlier one if the earlier one's winner took part in it. So a run that was resumed
   counts by its last final, and finals of logs that were merged count side by side.
2. Among the finalists of the finals that are left, each with its latest final time, the fastest wins.
   A finalist that failed in its final is out.
3. A candidate that was in none of them ranks behind all finalists, however fast its reading, since one
   reading may be lucky. The exception is one first measured after the last final, in a run that was
   stopped before its own: it wins if its reading beats every finalist's reading, like against like.
4. Without a final the fastest reading wins; of one candidate's readings the latest counts. A final without
   an id of which one record is left (older versions pruned them) compares nothing: its time is a reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hbtvm.logs.record import Record, canonical

Candidate = tuple[str, str]
"""A strategy, and a configuration of it as canonical JSON."""


def final_mark(ident: str, reading: float | None) -> dict[str, Any]:
    """The ``extra`` field of a record that was measured in a final.

    Parameters
    ----------
    ident
        The final's id, unique among all logs.
    reading
        Seconds that the search had measured; None where unknown.
    """
    known = {} if reading is None or not math.isfinite(reading) else {"reading": reading}
    return {"final": {"id": ident, **known}}


def is_final(record: Record) -> bool:
    """Whether a record was measured in a final, and so is no trial of a search."""
    return bool(record.extra.get("final"))


def ranking(records: Iterable[Record]) -> list[Record]:
    """The candidates of one workload and target that work, the best first, by this module's rule.

    Parameters
    ----------
    records
        Of any strategies that are alternatives to each other, in the order in which they were written.

    Returns
    -------
    One record for each candidate: that of its final if it was in one that counts, else its latest reading.
    Empty configurations are left out.
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
    """The records of finals that `ranking` goes by, failures included: what a smaller log must keep."""
    return [record for final in _Seen(records).standing for record in final.records.values()]


@dataclass
class _Final:
    """One run's final: its finalists' records, and the place of the last of them."""

    records: dict[Candidate, Record] = field(default_factory=dict)
    place: int = 0

    @property
    def winner(self) -> Candidate | None:
        """The fastest finalist; None if all failed."""
        working = {key: record for key, record in self.records.items() if record.times}
        return min(working, key=lambda key: working[key].cost, default=None)


class _Seen:
    """Records sorted into finals and readings.

    Attributes
    ----------
    latest
        Of each candidate that worked, its latest record; of equal ones, the first.
    first
        The place of a candidate's first record.
    failed
        Candidates that failed in their latest final.
    standing
        Finals with a winner that no later one replaces; without an id, only those of two candidates or more.
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
                self.standing = [one for one in self.standing if one.winner not in final.records]
                self.standing.append(final)

    def reading_of(self, record: Record) -> float:
        """Seconds of a finalist in its search; 0, which nothing beats, where that is unknown."""
        mark = record.extra["final"]
        if isinstance(mark, Mapping) and "reading" in mark:
            return float(mark["reading"])
        return self._readings.get((record.strategy, canonical(record.config)), 0.0)


def _ident(record: Record) -> str | None:
    mark = record.extra["final"]
    return str(mark["id"]) if isinstance(mark, Mapping) else None


def _cost(record: Record) -> float:
    return record.cost
