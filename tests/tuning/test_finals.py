"""Finals of a search: the fastest candidates measured anew, recorded and read back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hbtvm.logs.query import best
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.measuring.messages import Candidate
from hbtvm.tuning.measuring.noise import NoiseOptions
from hbtvm.tuning.result import Result
from tests.fake_tuning import (
    SPACE,
    InProcess,
    configs,
    run,
    task,
    winner,
)


def test_final_unmasks_a_lucky_reading() -> None:
    lucky: list[int] = []

    def noise(n: int) -> float:
        return 0.8 if n == 2 else 1.0  # the second measurement looks better than it is

    space = Space((Knob("a", (64, 32)), Knob("b", (4,)), Knob("unroll", (True,))))
    for seed in range(4):
        result = run(task(space=space), trials=2, machine=InProcess(noise=noise), seed=seed)
        assert winner(result)[1] == {"a": 64, "b": 4, "unroll": True}
        assert len(result.groups["1000 rows"].runners_up) == 1
        lucky.append(int(result.history[1].config["a"]))
    assert 32 in lucky


def test_candidate_that_fails_in_the_final_is_out() -> None:
    seen: list[Config] = []

    def before(candidate: Candidate) -> None:
        seen.append(candidate.config)
        if len(seen) > 40 and candidate.config == favourite:
            candidate.payload["wrong"] = favourite

    favourite = winner(run(trials=40))[1]
    result = run(trials=40, machine=InProcess(before))
    assert winner(result)[1] != favourite


def finals(result: Result) -> list[Record]:
    return [record for record in result.history if record.extra.get("final")]


def test_a_final_is_recorded_and_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")

    def noise(n: int) -> float:
        return 1.0 + 0.5 * ((n * 7) % 5) / 5  # readings are up to half as much again

    result = run(trials=40, log=log, machine=InProcess(noise=noise))
    held = finals(result)
    assert len(held) in (3, 4) and len({record.extra["final"]["id"] for record in held}) == 1
    assert [len(record.times) for record in held] == [FinalOptions.rounds] * len(held)
    readings = {SPACE.encode(dict(r.config)): r.cost for r in result.history if "final" not in r.extra}
    for record in held:
        assert record.extra["final"]["reading"] == readings[SPACE.encode(dict(record.config))]
    known = log.read().records
    said = best(known)
    assert said is not None and said.extra
    assert winner(result) == (said.strategy, said.config, said.cost)
    group = result.groups["1000 rows"]
    assert group.best is not None and group.best.final
    again = run(trials=40, log=log)
    assert finals(again) and configs(again) == []
    said = best(log.read().records)
    assert said is not None and winner(again) == (said.strategy, said.config, said.cost)


def test_a_final_is_held_where_one_candidate_is_far_ahead() -> None:
    space = Space((Knob("a", (64, 1)), Knob("b", (4,)), Knob("unroll", (True,))))
    result = run(task(space=space), trials=2)
    assert sorted(record.config["a"] for record in finals(result)) == [1, 64]
    alone = run(task(space=Space((Knob("a", (64,)), Knob("b", (4,))))), trials=2)
    assert [record.cost for record in finals(alone)] == [winner(alone)[2]]


@pytest.mark.parametrize("ended", ["stopped", "late"])
def test_rounds_of_a_final_that_does_not_end_are_recorded(ended: str, tmp_path: Path) -> None:
    """Ctrl-C, or the end of the time, in the third round: two rounds of all finalists count."""
    log = Log(tmp_path / "log.jsonl")
    turns: list[Config] = []
    clock = [0.0]

    def before(candidate: Candidate) -> None:
        if len(runner.measured) >= 40:
            turns.append(candidate.config)
            if len(turns) == 2 * len({str(turn) for turn in turns}) + 2:
                if ended == "stopped":
                    raise KeyboardInterrupt
                clock[0] = 1e9

    runner = InProcess(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hbtvm.tuning.final.time.monotonic", lambda: clock[0])
        quiet = NoiseOptions(every=0)  # no measurements of a reference in between
        result = run(trials=40, log=log, machine=runner, time_budget=1e6, noise=quiet)
    assert result.interrupted == (ended == "stopped")
    held = finals(result)
    assert len(held) >= 2 and {len(record.times) for record in held} == {2}
    assert [r.to_line() for r in log.read().records] == [r.to_line() for r in result.history]
    said = best(log.read().records)
    assert said is not None and winner(result) == (said.strategy, said.config, said.cost)


def test_the_winner_of_an_earlier_final_takes_part_in_the_next(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    first = run(trials=20, log=log)
    # From now on all single readings look much faster than the final's times.
    second = run(trials=40, log=log, machine=InProcess(noise=lambda n: 0.1 if n <= 20 else 1.0))
    assert winner(first)[1] in [record.config for record in finals(second)]
    said = best(log.read().records)
    assert said is not None and winner(second) == (said.strategy, said.config, said.cost)
    assert said.cost == min(record.cost for record in finals(second))


def test_time_budget_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only measurements move: the search leaves time to the final, and that ends in time."""
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in ("trials", "final", "result"):
        monkeypatch.setattr(f"hbtvm.tuning.{module}.time", clock)

    def before(candidate: Candidate) -> None:
        now[0] += 0.02

    result = run(trials=10**6, time_budget=1.0, machine=InProcess(before))
    assert result.stopped == "time"
    assert 30 < result.trials <= 45  # of 50 measurements, the final's aside
    assert 0.95 <= now[0] - 100 <= 1.02 + 1e-9
    assert result.seconds.total == pytest.approx(now[0] - 100)
    assert 3 <= len(finals(result)) <= 4  # the default, too
    assert result.groups["1000 rows"].best is not None
