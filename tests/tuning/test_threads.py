"""Planning takes one thread of the numerical libraries, and gives the others back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xgboost  # noqa: F401 (brings an OpenMP of its own)
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from hbtvm.cost_model import RankModel
from hbtvm.tuning.learning import threads
from hbtvm.tuning.learning.threads import one_thread
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import InProcess, task


def counts() -> list[int]:
    """Threads of each numerical library here that has any."""
    np.ones((4, 4)) @ np.ones((4, 4))
    found = [int(library["num_threads"]) for library in threadpool_info()]
    assert len(found) >= 2
    return found


@pytest.fixture(autouse=True)
def three_threads() -> Any:
    with threadpool_limits(3):
        yield


def test_all_libraries_are_held_and_given_back() -> None:
    before = counts()
    with pytest.raises(RuntimeError), one_thread():
        assert set(counts()) == {1}
        with one_thread():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
        raise RuntimeError
    assert counts() == before


def test_libraries_are_looked_for_where_no_signal_can_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions in callbacks from C are dropped, that of Ctrl-C too; signals reach the main thread alone."""
    by: list[threading.Thread] = []

    class Watched(ThreadpoolController):  # type: ignore[misc]
        def __init__(self) -> None:
            by.append(threading.current_thread())
            super().__init__()

    monkeypatch.setattr(threads, "_found", None)
    monkeypatch.setattr(threads, "ThreadpoolController", Watched)
    for _ in range(3):
        with one_thread():
            assert set(counts()) == {1}
    assert len(by) == 1 and by[0] is not threading.main_thread()
    monkeypatch.setitem(sys.modules, "a_library_that_was_just_imported", sys)
    with one_thread():
        pass
    assert len(by) == 2


def test_overlapping_threads_leave_nothing_behind() -> None:
    before = counts()
    inside, leave = threading.Event(), threading.Event()
    seen: list[list[int]] = []

    def other() -> None:
        with one_thread():
            seen.append(counts())
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(60)
    leave.set()
    thread.join()
    assert set(seen[0]) == {1}
    assert counts() == before


def test_a_search_plans_with_one_thread() -> None:
    seen: list[set[int]] = []

    class Watched(RankModel):
        def fit(self, *args: Any, **more: Any) -> None:
            seen.append(set(counts()))
            super().fit(*args, **more)

        def predict(self, features: Any) -> Any:
            seen.append(set(counts()))
            return super().predict(features)

    class Runner(InProcess):
        def build(self, candidates: Sequence[Any], until: float) -> Any:
            built.append(counts())
            return super().build(candidates, until)

    built: list[list[int]] = []
    before = counts()
    tune([task()], Settings(trials=24, experience=[], make_model=lambda: Watched(rounds=5)), Runner())
    assert len(seen) > 4 and all(found == {1} for found in seen)
    assert all(found == before for found in built)
    assert counts() == before
