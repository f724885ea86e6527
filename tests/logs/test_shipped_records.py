"""The records that ship still fit the spaces of this version."""

from __future__ import annotations

from collections import Counter

from hbtvm.compiler.candidates.tasks import describe
from hbtvm.logs.query import shipped
from hbtvm.strategies import STRATEGIES


def test_every_shipped_record_is_a_configuration_of_its_space() -> None:
    stray: Counter[str] = Counter()
    for record in shipped():
        known = describe(record)
        assert record.strategy in STRATEGIES
        assert known is not None
        if not known[1].contains(dict(record.config)):
            stray[record.strategy] += 1
    assert not stray, f"make them anew with python -m benchmarks.records: {dict(stray)}"
