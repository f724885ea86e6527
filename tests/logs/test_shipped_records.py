"""The records that ship: there are some for each kind of machine, they fit this version, and are used."""

from __future__ import annotations

from collections import Counter

import pytest

from hbtvm.compiler.candidates.tasks import describe
from hbtvm.compiler.selection.choose import choose
from hbtvm.compiler.targets.target import resolve
from hbtvm.logs.query import best, shipped
from hbtvm.logs.record import Record
from hbtvm.strategies import STRATEGIES

RECORDS = shipped()
FEATURES = {"avx2": {"avx2"}, "avx512": {"avx2", "avx512f", "avx512bw", "avx512vl"}}


def of(machine: str) -> list[Record]:
    """Records of one kind of machine."""
    wanted = FEATURES[machine]
    others = FEATURES["avx512"] - wanted
    return [
        record
        for record in RECORDS
        if wanted <= set(record.target["features"]) and not others & set(record.target["features"])
    ]


def test_every_shipped_record_is_a_configuration_of_its_space() -> None:
    assert RECORDS
    stray: Counter[str] = Counter()
    for record in RECORDS:
        known = describe(record)
        assert record.strategy in STRATEGIES
        assert known is not None
        if not known[1].contains(dict(record.config)):
            stray[record.strategy] += 1
    assert not stray, f"make them anew with python -m benchmarks.records: {dict(stray)}"


@pytest.mark.parametrize("machine", FEATURES)
def test_they_cover_all_strategies_and_batch_sizes(machine: str) -> None:
    known = of(machine)
    assert len({record.workload_key for record in known}) >= 30
    tried = Counter((record.strategy, record.workload["rows"]) for record in known)
    assert {strategy for strategy, _ in tried} == set(STRATEGIES) - {
        "oblivious"
    }  # no model of them has such trees
    assert {rows for _, rows in tried} == {1, 100, 10_000}
    assert min(Counter(record.strategy for record in known).values()) >= 20


def test_every_record_is_of_one_of_these_machines() -> None:
    assert len(RECORDS) == sum(len(of(machine)) for machine in FEATURES)


@pytest.mark.parametrize("machine", FEATURES)
def test_a_model_of_a_shape_that_ships_gets_the_fastest_record(machine: str) -> None:
    level = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}[machine]
    target = resolve({"kind": "llvm", "mcpu": level})
    known = of(machine)
    workloads = {record.workload_key: dict(record.workload) for record in known}
    for workload in list(workloads.values())[::7]:
        winner = best(known, workload)
        assert winner is not None
        usable = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
        choice = choose(RECORDS, usable, workload, target)
        assert (choice.strategy, choice.config) == (winner.strategy, winner.config)
        assert choice.origin in ("log", "similar")  # the features of two such machines may differ a little
