"""The replay bench on a made-up space: what it replays must be what was measured."""

from __future__ import annotations

import lzma
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.packed import pack
from benchmarks.search import measure as measuring
from benchmarks.search import replay as replaying
from benchmarks.search.machines import MACHINES, drawn_spaces
from benchmarks.search.quality import quality
from benchmarks.search.replay import MeasuredSpace, Recorded, Run, Variant, experience, load, replay, whole
from benchmarks.search.report import by_space, table
from benchmarks.search.spaces import SPOTS, UNSEEN, Spot
from benchmarks.search.studies import STUDIES, Results
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.store import Log
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.session import packaged
from hbtvm.tuning.settings import Settings
from tests.fake_programs import cost
from tests.fake_tuning import SPACE, START, loops

SPOT = Spot("a", "fast", 7)
BROKEN = SPACE.encode(START)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replaying, "describe", lambda record: (loops, SPACE))
    for spot, scale in ((SPOT, 1.0), (Spot("b", "fast", 9), 3.0), (Spot("a", "odd", 7), 1.0)):
        log = measuring.log_of(tmp_path, spot)
        configs = SPACE.sample(np.random.default_rng(spot.rows), 200)
        if START not in configs:
            configs.append(START)
        log.replace(record(spot, config, scale) for config in configs)
    return tmp_path


def record(spot: Spot, config: dict, scale: float) -> Record:
    failed = SPACE.encode(config) == BROKEN
    return Record(
        workload={"rows": spot.rows, "trees": 10},
        strategy=spot.strategy,
        target={"kind": "llvm"},
        config=config,
        times=() if failed else (scale * cost(config),),
        error={"kind": "build", "message": "no"} if failed else None,
    )


def recorded(folder: Path, spot: Spot = SPOT) -> Recorded:
    found = load(folder, spot)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["annealing", "random", "grid", "genetic"])
def test_a_replay_asks_only_for_what_was_measured(folder: Path, kind: str) -> None:
    space = recorded(folder)
    run = replay([space], Variant(kind, Choices(kind)), 0, 300)
    assert run.curve[-1] == 1.0  # it ends as soon as it has found the best
    assert run.curve == sorted(run.curve)
    assert len(run.curve) <= 201 + 7
    again = replay([space], Variant(kind, Choices(kind)), 0, 300)
    assert again.curve == run.curve


def test_a_whole_run_lets_strategies_compete(folder: Path) -> None:
    spaces = [recorded(folder, Spot(*key)) for key in (("a", "fast", 7), ("b", "fast", 9), ("a", "odd", 7))]
    own = whole(spaces, "a")
    assert [(one.name, one.task.group) for one in own] == [("fast-a-7", "7 rows"), ("odd-a-7", "7 rows")]
    run = replay(own, Variant(""), 0, 100)
    assert run.curve == sorted(run.curve)
    assert run.curve[-1] == 1.0 and len(run.curve) < 100
    # Two groups are found when both of their best are.
    apart = [own[0], replace(own[1], task=replace(own[1].task, group="other"))]
    both = replay(apart, Variant(""), 0, 200)
    assert both.curve[-1] == 1.0 and len(both.curve) > len(run.curve)


def test_a_space_that_was_never_measured(tmp_path: Path) -> None:
    assert load(tmp_path, SPOT) is None


def test_measured_space_stays_within_the_sample(folder: Path) -> None:
    space = recorded(folder).task.space
    assert isinstance(space, MeasuredSpace)
    assert space.size == len(list(space)) == 201
    rng = np.random.default_rng(0)
    config = space.sample(rng, 1)[0]
    step = space.mutate(config, rng)
    assert step != config
    assert space.contains(step)
    assert space.repair(config, rng) == config
    outside = next(c for c in SPACE if not space.contains(c))
    near = space.repair(outside, rng)
    assert near is not None and space.contains(near)


def test_who_learns_from_whom(folder: Path) -> None:
    spaces = [recorded(folder, Spot(*key)) for key in (("a", "fast", 7), ("b", "fast", 9), ("a", "odd", 7))]
    assert experience(spaces[0], spaces, "", 0) == []
    assert {r.workload["rows"] for r in experience(spaces[0], spaces, "same", 0)} == {9}
    assert {r.strategy for r in experience(spaces[0], spaces, "other", 0)} == {"odd"}
    straight = {SPACE.encode(dict(r.config)): r.cost for r in experience(spaces[0], spaces, "same", 0)}
    misled = {SPACE.encode(dict(r.config)): r.cost for r in experience(spaces[0], spaces, "misleading", 0)}
    assert min(straight, key=straight.__getitem__) == max(misled, key=misled.__getitem__)
    needed = {
        source: [
            replay(spaces[:1], Variant("", source=source), seed, 60, known).needed() for seed in range(3)
        ]
        for source in ("", "same")
        for known in [experience(spaces[0], spaces, source, 0)]
    }
    assert np.median(needed["same"]) < np.median(needed[""])


def test_runs_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = recorded(folder)
    variant = Variant("random", Choices("random"))
    path = folder / "runs.jsonl"
    run = Results(path).run([space], [space], variant, 3, 20)
    monkeypatch.setattr("benchmarks.search.studies.replay", None)
    assert Results(path).run([space], [space], variant, 3, 20) == run


def test_tables_say_who_was_faster() -> None:
    quick, slow = Run([0.5, 1.0], 0.1, 0.2), Run([0.5] * 8, 0.1, 0.2)
    assert (quick.needed(), slow.needed()) == (2, math.inf)
    assert quick.padded(4).tolist() == [0.5, 1.0, 1.0, 1.0]
    runs = {"quick": {"x": [quick, quick]}, "slow": {"x": [slow, slow]}}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(runs, 8).splitlines()[2:]]
    assert [row[:3] for row in rows] == [["quick", "2.0", "1.00"], ["slow", "16.0", "8.00"]]
    assert by_space(runs, 8).splitlines()[2].replace("|", " ").split() == ["x", "2", "16"]


def test_ranking_quality_of_a_model(folder: Path) -> None:
    found = quality([recorded(folder)], "rank", "relation", 2)
    assert found.accuracy > 0.8
    assert 0 < found.recall <= 1


def test_tables_have_a_column_for_each_set_of_spaces() -> None:
    quick, slow = Run([0.5, 1.0], 0.1, 0.2), Run([0.5] * 8, 0.1, 0.2)
    runs = {"one": {"x": [quick], "y": [slow], "z": [slow]}}
    sets = {"first": ["x", "other"], "unseen": ["y", "z"], "none": ["w"]}
    header, _, row = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table(runs, 8, sets).splitlines()
    )
    assert header[3:5] == ["first", "unseen"] and row[3:5] == ["2.0", "16.0"]


def test_unseen_spaces_are_of_models_of_their_own() -> None:
    assert len(SPOTS) >= 24 and len({spot.name for spot in SPOTS}) == len(SPOTS)
    assert len(UNSEEN) >= 6
    seen = {spot.shape for spot in SPOTS if spot not in UNSEEN}
    assert not seen & {spot.shape for spot in UNSEEN}


def test_what_was_measured_is_packed(folder: Path, tmp_path: Path) -> None:
    records = Log(measuring.log_of(folder, SPOT).path).read().records
    pack(records, tmp_path / "some.jsonl.xz", {"drawn": True})
    lines = lzma.decompress((tmp_path / "some.jsonl.xz").read_bytes()).splitlines()
    again = [Record.from_line(line) for line in lines]
    assert [(r.config, r.workload, bool(r.error)) for r in again] == [
        (r.config, r.workload, bool(r.error)) for r in records
    ]
    costs = [(r.cost, min(old.times)) for r, old in zip(again, records, strict=True) if r.times]
    np.testing.assert_allclose(*zip(*costs, strict=True), rtol=1e-4)
    assert all(r.extra == {"drawn": True} for r in again)


def test_studies_have_names_of_their_own() -> None:
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    for study in STUDIES:
        assert len({variant.name for variant in study.variants}) == len(study.variants)


def test_measuring_goes_on_until_there_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from tests.fake_tuning import InProcess, task

    calls: list[int] = []

    def tune(tasks: list, settings: Settings) -> object:
        trials = settings.trials
        calls.append(trials)
        # As if time ran out after ten new ones.
        fewer = replace(settings, trials=min(trials, 10 * len(calls)), time_budget=None)
        result = real(tasks, fewer, machine=InProcess())
        object.__setattr__(result, "stopped", "time" if result.trials < trials else "trials")
        return result

    @contextmanager
    def fake_task(spot: Spot):
        yield task()

    real = measuring.tune
    monkeypatch.setattr(measuring, "tune", tune)
    monkeypatch.setattr(measuring, "task", fake_task)
    spot = Spot("b", "new", 7)
    measuring.measure([spot], folder, enough=25, lock=folder / "lock")
    assert len(calls) == 3
    records = Log(folder / f"{spot.name}.jsonl").read().records
    assert len({SPACE.encode(dict(record.config)) for record in records}) == 25


def test_the_records_that_ship_are_of_this_versions_spaces(tmp_path: Path) -> None:
    found = [space for spot in SPOTS if (space := load(tmp_path, spot)) is not None]
    assert [space.name for space in found] == [spot.name for spot in SPOTS]
    assert sum(len(space.costs) >= 1000 for space in found) >= 8
    assert all(len(space.costs) >= 350 and math.isfinite(space.best) for space in found)


@pytest.mark.parametrize(("bits", "other"), [(512, 256), (256, 512)])
def test_records_of_another_machine_are_of_the_other_vectors(folder: Path, bits: int, other: int) -> None:
    space = recorded(folder)
    own = replace(space, task=replace(space.task, target={"kind": "llvm", "vector_bits": bits}))
    known = experience(own, [own], "machine", 0)
    assert {record.target["vector_bits"] for record in known} == {other}
    assert {record.target["kind"] for record in known} == {"llvm"} and len(known) > 1000


@pytest.mark.parametrize("name", MACHINES)
def test_spaces_of_machines_are_of_the_random_candidates_that_ship(name: str) -> None:
    spaces = drawn_spaces(name)
    assert len({space.name for space in spaces}) == len(spaces) >= 20
    assert {space.task.target["vector_bits"] for space in spaces} == {MACHINES[name]}
    assert all(16 <= len(space.costs) <= 32 and math.isfinite(space.best) for space in spaces)
    key = canonical(spaces[0].task.workload)
    others = experience(spaces[0], spaces, "machine", 0)
    assert {record.target["vector_bits"] for record in others} == {768 - MACHINES[name]}
    assert key not in {record.workload_key for record in others}
    assert key in {record.workload_key for record in packaged(Choices())}
