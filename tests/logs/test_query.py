"""Questions to many records, and logs made from logs."""

import multiprocessing

import pytest

from hbtvm.logs import Log, LogError, best, merge, prune, shipped, stats
from tests.logs.test_record import record

FAILURE = {"times": [], "error": {"kind": "timeout", "message": "10 s"}}


def timed(seconds, **changes):
    return record(times=[seconds], **changes)


def written(path, records):
    for entry in records:
        Log(path).append(entry)
    return path


def test_best_is_the_fastest_that_matches():
    other = {"kind": "llvm", "features": ["avx512f"], "cores": 2}
    records = [
        timed(0.5),
        timed(0.3, strategy="gemm"),
        timed(0.2, workload={"trees": 1}),
        timed(0.1, target=other),
        timed(0.01, config={}),
        record(**FAILURE),
    ]
    assert best(records) is records[3]
    assert best(records, target={"kind": "llvm", "mattr": ["+avx2"], "num-cores": 2}) is records[2]
    assert best(records, workload={"batch": 10240, "trees": 500}, target=records[0].target) is records[1]
    assert (
        best(records, strategy="bitvector", workload=records[0].workload, target=records[0].target)
        is records[0]
    )
    assert best(records, strategy="none") is None
    assert best([]) is None


def test_the_earlier_of_equals_is_best():
    records = [timed(0.5, session="a"), timed(0.5, session="b")]
    assert best(records).session == "a"


def test_stats_count():
    records = [
        timed(0.5, date="2025-01-02T00:00:00Z"),
        timed(0.4, date="2025-01-01T00:00:00.5Z"),
        timed(0.9, strategy="gemm", date="2025-01-01T00:00:00Z"),
        record(**FAILURE, strategy="ptt", date="2025-01-03T00:00:00Z"),
    ]
    found = stats(records, skipped=3)
    assert (found.records, found.failed, found.skipped) == (4, 1, 3)
    assert found.strategies == {"bitvector": 2, "gemm": 1, "ptt": 1}
    assert found.workloads == {records[0].workload_key: 4}
    assert found.targets == {records[0].target_key: 4}
    assert found.failures == {"timeout": 1}
    assert found.best == {records[1].task: records[1], records[2].task: records[2]}
    assert (found.first, found.last) == ("2025-01-01T00:00:00Z", "2025-01-03T00:00:00Z")
    assert stats([]).first is None


def test_merge_joins_sorts_and_drops_repetitions(tmp_path):
    dates = [f"2025-01-0{day}T00:00:00Z" for day in range(1, 5)]
    a = written(tmp_path / "a", [timed(3, date=dates[2]), timed(1, date=dates[0])])
    b = written(tmp_path / "b", [timed(1, date=dates[0]), timed(2, date=dates[1]), timed(4, date=dates[1])])
    with open(a, "a") as file:
        file.write("torn")
    result = merge([a, b], tmp_path / "out")
    assert (result.written, result.duplicates, result.skipped) == (4, 1, 1)
    assert [entry.cost for entry in Log(tmp_path / "out").read().records] == [1, 2, 4, 3]
    # The output may be one of the inputs, and merging again changes nothing.
    before = (tmp_path / "out").read_bytes()
    assert merge([tmp_path / "out", b], tmp_path / "out").written == 4
    assert (tmp_path / "out").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a",
        "a.lock",
        "b",
        "b.lock",
        "out",
        "out.lock",
    ]


def test_a_merge_that_fails_leaves_the_output_alone(tmp_path):
    out = written(tmp_path / "out", [record()])
    before = out.read_bytes()
    with pytest.raises(LogError, match="does not exist"):
        merge([out, tmp_path / "none"], out)
    assert out.read_bytes() == before


def test_prune_keeps_the_best_and_a_spread_of_others(tmp_path):
    fast = [timed(1 + number, strategy=name) for number in range(50) for name in ("gemm", "ptt")]
    failed = [record(**FAILURE, date=f"2025-01-{day:02}T00:00:00Z", strategy="ptt") for day in range(1, 11)]
    path = written(tmp_path / "log", [*failed, *reversed(fast)])
    result = prune(path, keep=5, others=4, errors=2)
    assert (result.kept, result.dropped, result.skipped) == (20, 90, 0)
    records = Log(path).read().records
    assert [entry.date[8:10] for entry in records if entry.error] == ["09", "10"]
    costs = [entry.cost for entry in records if entry.strategy == "gemm"]
    assert costs == sorted(costs, reverse=True)
    assert costs[-5:] == [5, 4, 3, 2, 1]
    assert costs[:4] == [45, 34, 22, 11]
    assert prune(path, keep=5, others=4, errors=2).dropped == 0


def test_prune_to_nothing_and_of_nothing(tmp_path):
    path = written(tmp_path / "log", [record(), record(**FAILURE)])
    assert prune(path, keep=0, others=0, errors=0).kept == 0
    assert Log(path).read().records == []
    with pytest.raises(LogError, match="does not exist"):
        prune(tmp_path / "none")
    with pytest.raises(ValueError, match="negative"):
        prune(path, keep=-1)


def append_some(path):
    for number in range(300):
        Log(path).append(record(session=str(number)))


def test_prune_loses_nothing_that_is_appended_meanwhile(tmp_path):
    path = written(tmp_path / "log", [record()])
    child = multiprocessing.get_context("fork").Process(target=append_some, args=(path,))
    child.start()
    while child.is_alive():
        prune(path, keep=10**6)
    child.join()
    assert len(Log(path).read().records) == 301


def test_shipped_records_are_whole():
    assert all(entry.times and entry.config for entry in shipped())
