"""Ctrl-C that Python cannot pass on, and Ctrl-C that it can."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from hbtvm.tuning.interrupts import NotedInterrupt
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import task


class Finalized:
    """Ctrl-C comes while it is taken down: Python drops what is raised there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_a_finalizer_ends_a_search() -> None:
    seen: list[Any] = []

    def progress(event: Any) -> None:
        seen.append(event)
        if len(seen) == 3:
            Finalized()

    result = tune([task()], Settings(trials=10**5, progress=progress, experience=[], batch=4))
    assert result.stopped == "interrupted" and 3 <= len(seen) < 12
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_others_stay() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with NotedInterrupt() as interrupt:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            interrupt.check()
    finally:
        signal.signal(signal.SIGINT, before)
    with NotedInterrupt() as interrupt:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    assert signal.getsignal(signal.SIGINT) is before
