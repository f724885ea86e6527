"""Strategies whose builds take out of proportion long are left."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hbtvm.tuning.build_cost import out_of_proportion
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Candidate, Failure
from tests.fake_tuning import (
    InProcess,
    run,
    task,
)


class Compiling(InProcess):
    """Builds of some strategies take so many processor seconds, or so they say."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__()
        self._seconds = seconds

    def _build(self, candidate: Candidate) -> BuiltLibrary | Failure:
        library = super()._build(candidate)
        assert isinstance(library, BuiltLibrary)
        seconds = self._seconds[candidate.payload["called"]]
        if math.isinf(seconds):
            self.discard(library)
            return Failure("build_timeout", "it took too long")
        return replace(library, seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(22.0, True), (math.inf, True), (6.0, False), (1.0, False)],
    ids=["far", "stopped", "four times", "like the others"],
)
def test_a_strategy_whose_builds_are_out_of_proportion_is_left(seconds: float, left: bool) -> None:
    tasks = [task(name, called=name, scale=1e-3) for name in ("cheap", "dear")]
    result = run(*tasks, trials=60, machine=Compiling({"cheap": 1.5, "dear": seconds}))
    tried = sum(record.strategy == "dear" and "final" not in record.extra for record in result.history)
    assert result.trials == 60
    assert (tried <= 8) == left, tried
    assert len(result.warnings) == left
    if left:
        assert "dear 1000 rows was left after" in result.warnings[0]


def test_a_group_keeps_what_it_has_no_alternative_to() -> None:
    tasks = [
        task(name, called=name, group=f"{rows} rows", rows=rows) for name, rows in (("cheap", 1), ("dear", 9))
    ]
    result = run(*tasks, trials=60, machine=Compiling({"cheap": 1.5, "dear": 22.0}))
    assert result.warnings == []
    assert result.groups["9 rows"].trials > 20


def test_builds_are_compared_with_those_of_the_other_tasks() -> None:
    assert out_of_proportion([[22.0] * 3, [0.5] * 8, [1.5] * 3]) == [0]
    assert out_of_proportion([[22.0] * 2, [0.5] * 8]) == []  # too few
    assert out_of_proportion([[22.0] * 9]) == out_of_proportion([[22.0] * 3, [0.5] * 2]) == []
    assert out_of_proportion([[22.0, 22.0, 3.0], [0.5] * 8]) == []  # one of them was cheap
    assert out_of_proportion([[4.0] * 3, [0.1] * 8]) == []  # cheap enough anyway
    assert out_of_proportion([]) == []
