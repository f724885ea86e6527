"""The records with contrast that ship: they fit this version, show slow candidates too, and are small."""

from __future__ import annotations

import json
import lzma
from collections import Counter, defaultdict
from importlib import resources

import numpy as np
import pytest

from hbtvm.compiler.candidates.tasks import describe
from hbtvm.logs.query import best, contrast, drawn, shipped
from hbtvm.logs.record import Record
from hbtvm.strategies import STRATEGIES
from hbtvm.tuning.learning.transfer import seeds
from tests.fake_tuning import SPACE, START, task

RECORDS = contrast()
CPU = [record for record in RECORDS if record.target["kind"] == "llvm"]


def test_every_one_is_a_configuration_of_its_space_and_marked() -> None:
    assert RECORDS
    stray: Counter[str] = Counter()
    for record in RECORDS:
        known = describe(record)
        assert known is not None and drawn(record)
        stray[record.strategy] += not known[1].contains(dict(record.config))
    again = "make them anew with python -m benchmarks.contrast, or benchmarks.gpu.contrast"
    assert not any(stray.values()), f"{again}: {dict(stray)}"
    assert not any(drawn(record) for record in shipped())


def test_there_are_hundreds_of_each_strategy_for_each_kind_of_machine() -> None:
    count = Counter((record.target["mcpu"], record.strategy) for record in CPU)
    machines = {machine for machine, _ in count}
    assert machines == {"x86-64-v3", "x86-64-v4"}
    assert set(count) == {(machine, name) for machine in machines for name in set(STRATEGIES) - {"oblivious"}}
    assert min(count.values()) >= 200


def test_each_workload_shows_fast_and_slow_ones() -> None:
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for record in CPU:
        groups[record.task].append(record.cost)
    for costs in groups.values():
        assert len(costs) >= 16
        finite = np.array([cost for cost in costs if np.isfinite(cost)])
        assert finite.max() > 1.3 * finite.min()


def test_a_gpu_measured_each_of_its_strategies_many_times() -> None:
    """A single reading of microseconds is mostly the launch: no record has one."""
    records = [record for record in RECORDS if record.target["kind"] == "cuda"]
    assert {record.target["arch"] for record in records} == {"sm_90"}
    count = Counter((record.strategy, record.workload["rows"]) for record in records)
    assert {rows for _, rows in count} >= {1000, 10_000, 100_000, 1_000_000}
    assert {name for name, _ in count} >= {
        "bitvector",
        "ranked_traversal",
        "perfect_tree_traversal",
        "tree_traversal",
    }
    assert min(number for (_, rows), number in count.items() if rows >= 10_000) >= 5
    assert all(len(record.times) > 1 or record.cost > 1e-4 for record in records)


def test_they_are_small() -> None:
    folder = resources.files("hbtvm.logs") / "records"
    files = [file for file in folder.iterdir() if file.name.endswith(".jsonl.xz")]
    assert sum(len(file.read_bytes()) for file in files) < 200_000
    for file in files:
        lines = lzma.decompress(file.read_bytes()).splitlines()
        assert all(json.loads(line)["drawn"] is True for line in lines)


def test_the_best_of_a_few_random_draws_is_no_first_guess() -> None:
    """What was searched for is tried first; what was drawn only teaches."""

    def records(**extra: bool) -> list[Record]:
        one = task(rows=500)
        return [
            Record(
                workload=one.workload,
                strategy=one.strategy,
                target=one.target,
                config=config,
                times=(seconds,),
                extra=extra,
            )
            for config, seconds in ((START, 1.0), (next(iter(SPACE)), 2.0))
        ]

    assert seeds(task(), records(), 2) == [START]
    assert seeds(task(), records(drawn=True), 2) == []
    found = best(records(drawn=True))
    assert found is not None and found.config == START


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense"])
def test_files_of_other_versions_are_passed_over(
    line: bytes, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "records"
    folder.mkdir()
    content = line + b"\n" + RECORDS[0].to_line().encode()
    (folder / "contrast-new.jsonl.xz").write_bytes(lzma.compress(content))
    monkeypatch.setattr("hbtvm.logs.query.resources.files", lambda _: Path(str(tmp_path)))
    assert contrast() == RECORDS[:1]
