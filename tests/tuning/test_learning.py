"""What a run learns from: its history, when it fits, and which of other workloads' records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.logs.record import Record
from hbtvm.logs.store import Log, LogError
from hbtvm.schedules.space import Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.database import Database
from hbtvm.tuning.explorers.base import BatchScore
from hbtvm.tuning.learning.history import History
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.learning.lessons import lessons
from hbtvm.tuning.learning.policy import FEWEST, FEWEST_MORE, FittingPolicy
from hbtvm.tuning.learning.tables import Tables
from hbtvm.tuning.state import TaskState
from tests.fake_programs import cost
from tests.fake_tuning import SPACE, loops, task


def record(rows: int, config: dict[str, Any], **changes: Any) -> Record:
    one = task(rows=rows)
    fields = {"workload": one.workload, "strategy": one.strategy, "target": one.target, "config": config}
    return Record(**{**fields, "times": (cost(config),), **changes})


def records(rows: int, count: int) -> list[Record]:
    return [record(rows, config) for config in SPACE.sample(np.random.default_rng(rows), count)]


def describe(entry: Record) -> tuple[Any, Space] | None:
    return loops, SPACE


def test_history_knows_whose_and_which_is_fastest() -> None:
    history = History()
    assert len(history) == 0 and history.fastest(0) is None
    history.add(1, np.array([[1, 2], [3, 4]], np.float32), [2.0, 1.0])
    history.add(0, np.array([[5, 6]], np.float32), [np.inf])
    features, costs, tasks = history.arrays()
    assert features.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (costs.tolist(), tasks.tolist()) == ([2.0, 1.0, np.inf], [1, 1, 0])
    fastest = history.fastest(1)
    assert fastest is not None and fastest.tolist() == [[3, 4]]
    assert history.fastest(2) is None


def test_fits_become_rarer_as_measurements_add_up() -> None:
    policy = FittingPolicy()
    assert not policy.due(FEWEST - 1, taught=False) and policy.due(FEWEST_MORE, taught=True)
    fits = []
    for count in range(1, 401):
        if policy.due(count, taught=False):
            policy.fitted(count)
            fits.append(count)
    assert fits[:3] == [FEWEST, FEWEST + 1, FEWEST + 2]
    assert len([count for count in fits if count > 200]) <= 20
    assert not policy.due(fits[-1], taught=False)


def test_lessons_are_of_workloads_with_enough_to_tell() -> None:
    tables = Tables("knobs", [task()])
    failed: list[Exception] = []
    known = [*records(500, 40), *records(250, 5), *records(125, 12)]
    found = lessons(known, [task()], tables, describe, failed.append)
    assert found is not None and not failed
    assert found.features.shape == (52, sum(tables.widths))
    assert np.bincount(found.groups).tolist() == [40, 12]  # the nearest first; five winners show no contrast
    assert lessons(records(250, 5), [task()], tables, describe, failed.append) is None


def test_what_a_log_holds_that_cannot_be_understood_is_told() -> None:
    def odd(entry: Record) -> tuple[Any, Space] | None:
        if entry.workload["rows"] == 500:
            raise KeyError("trees")
        return describe(entry)

    failed: list[Exception] = []
    known = [*records(500, 40), *records(125, 12)]
    found = lessons(known, [task()], Tables("knobs", [task()]), odd, failed.append)
    assert found is not None and len(found.costs) == 12
    assert [type(error) for error in failed] == [KeyError]


@pytest.mark.parametrize("model", ["rank_process", "gaussian_process", "rank", "regression"])
def test_a_log_ranks_the_first_batch(model: str) -> None:
    """Before anything was measured, scores are those of the log, and order candidates well."""
    learner = Learner([task()], Choices(cost_model=model))
    assert learner.score(0) is None and not learner.taught
    assert learner.learn_from([*records(500, 60), *records(2000, 60)], describe) == 120
    assert learner.taught and not learner.failures
    score = learner.score(0)
    assert score is not None
    configs = SPACE.sample(np.random.default_rng(9), 60)
    merits, costs = score(configs), np.array([cost(config) for config in configs])
    assert costs[np.argsort(-merits)[:10]].mean() < 0.7 * costs.mean()


def test_batches_of_the_default_tell_different_things() -> None:
    learner = Learner([task()], Choices())
    configs = SPACE.sample(np.random.default_rng(0), 40)
    learner.add(0, configs[:20], [cost(config) for config in configs[:20]])
    assert learner.fit()
    score = learner.score(0)
    assert isinstance(score, BatchScore)
    picked = score.pick([configs[30], configs[30], configs[31]], 2)
    assert picked is not None and len({min(i, 1) if i < 2 else i for i in picked}) == 2


def test_a_database_tells_own_records_from_others(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    outside = record(1000, {**next(iter(SPACE)), "a": 3})
    known = [*records(1000, 3), *records(500, 2), outside]
    for entry in known:
        log.append(entry)
    from hbtvm.tuning.explorers.random_search import RandomExplorer

    one = task()
    state = TaskState(0, one, RandomExplorer(one.space, np.random.default_rng(0)))
    database = Database(log, {known[0].task: state})
    assert database.resumed == known[:3] and database.foreign == known[3:5]
    assert len(state.measured) == 3
    new = records(1000, 7)[-1]
    database.add(new)
    assert database.records == [*known[:3], new] and database.history == [new]
    assert log.read().records[-1] == new
    # A log that cannot be written loses nothing of the run.
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(LogError):
        database.add(known[0])
    assert database.history == [new, known[0]]
