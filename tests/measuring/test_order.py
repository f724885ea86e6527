"""In which order candidates are measured, and how they are chosen before any is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.measuring.archive import Trials
from hbtvm.measuring.order import Order
from hbtvm.schedules.space import Knob, Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.planning import neighbours
from hbtvm.tuning.session import plan
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import BEST, SPACE, START, task


def trials(groups: int, each: int) -> Trials:
    """Return an archive of two strategies for each group, whose candidates differ in one knob."""
    return Trials(
        {
            "tasks": [
                {"name": f"{g} {s}", "group": str(g), "strategy": str(s), "workload": {}, "data": 0}
                for g in range(groups)
                for s in range(2)
            ],
            "candidates": [
                {"task": 2 * g + s, "kernel": {"config": {"knob": at}}, "build_seconds": 0.0}
                for at in range(each)
                for s in range(2)
                for g in range(groups)
            ],
        },
        "digest",
        {},
    )


def test_every_candidate_comes_once_and_groups_take_turns() -> None:
    made = trials(3, 4)
    order, seen = Order(made), []
    while (one := order.next({})) is not None:
        seen.append(one)
        if len(seen) % 3 == 0:
            assert {order.group(last) for last in seen[-3:]} == {"0", "1", "2"}
    assert sorted(one.number for one in seen) == list(range(24))
    # Within a group, what comes first in the archive comes first.
    for group in "012":
        own = [one.number for one in seen if order.group(one) == group]
        assert own == sorted(own)


def test_what_is_measured_is_left_out() -> None:
    made = trials(2, 3)
    order, seen = Order(made, done=range(7)), set()
    assert order.left == 5
    while (one := order.next({})) is not None:
        seen.add(one.number)
    assert seen == set(range(7, 12))


def test_neighbours_of_the_fastest_come_early_and_hopeless_tasks_late() -> None:
    made = trials(1, 10)
    order = Order(made)
    best = next(one for one in made.candidates if one.task == 1 and one.config == {"knob": 9})
    seen = [order.next({"0": best}, behind={0}) for _ in range(20)]
    tasks = [one.task for one in seen if one is not None]
    assert tasks == [1] * 10 + [0] * 10
    assert best in seen[6:9]


def nothing(config: dict[str, Any]) -> Nest:
    return ()


def test_best_guesses_come_first_and_no_candidate_twice() -> None:
    tasks = [task("fast"), task("fast", group="1 row", rows=1)]
    chosen = plan(tasks, Settings(trials=60, transfer=False))
    assert [config for _, config in chosen[:2]] == [START, START]
    assert len({(one.name, SPACE.encode(config)) for one, config in chosen}) == len(chosen) == 60
    assert set(Counter(one.name for one, _ in chosen).values()) == {30}
    assert all(SPACE.contains(config) for _, config in chosen)


def test_a_small_space_leaves_its_share_to_others() -> None:
    few = Space((Knob("a", (1, 2, 4)),))
    tasks = [task("fast"), task("fast", group="1 row", rows=1, space=few)]
    counts = Counter(one.name for one, _ in plan(tasks, Settings(trials=40, transfer=False)))
    assert sorted(counts.values()) == [3, 37]


@pytest.mark.parametrize("cost_model", ["rank_process", "none"])
def test_a_second_round_goes_on_where_the_log_stops(tmp_path: Path, cost_model: str) -> None:
    log, one = Log(tmp_path / "log.jsonl"), task("fast")
    rng = np.random.default_rng(0)
    known = [BEST, *SPACE.sample(rng, 40)]
    for config in known:
        distance = sum(a != b for a, b in zip(SPACE.encode(config), SPACE.encode(BEST), strict=True))
        log.append(
            Record(
                workload=one.workload,
                strategy=one.strategy,
                target=one.target,
                config=config,
                times=(1e-6 * (1 + distance),),
            )
        )
    chosen = [
        config
        for _, config in plan(
            [one], Settings(trials=30, transfer=False, log=log, choices=Choices(cost_model=cost_model))
        )
    ]
    assert len(chosen) == 30 and not any(config in known for config in chosen)
    near = neighbours(SPACE, BEST)
    assert sum(config in near for config in chosen) >= 10


def test_neighbours_differ_in_one_knob() -> None:
    found = neighbours(SPACE, START)
    assert all(SPACE.contains(one) for one in found)
    assert all(sum(one[name] != START[name] for name in one) == 1 for one in found)
    assert len(found) == len({SPACE.encode(one) for one in found}) == 11 + 9 + 7 + 1
