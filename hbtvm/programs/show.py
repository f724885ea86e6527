"""One line of progress for a search of a tensor program."""

from __future__ import annotations

import sys
import time

from hbtvm.tuning.progress import Trial
from hbtvm.words.quantities import clock, duration

_EVERY = 10.0  # seconds between two lines where the line can't be overwritten


class Line:
    """Shows trials, the best time and failures; overwritten in a terminal, else printed now and then.

    `name`: the program's name.
    `trials`: trials in all.
    """

    def __init__(self, name: str, trials: int) -> None:
        self._name, self._trials = name, trials
        self._live = sys.stderr.isatty()
        self._text, self._shown, self._printed = "", time.monotonic(), True

    def __call__(self, trial: Trial) -> None:
        """Show a trial."""
        best = duration(trial.best.get(trial.group))
        failed = sum(trial.failures.values())
        stage = "final" if trial.final else f"{trial.trial:,} of {self._trials:,} trials"
        self._text = f"{self._name}: {stage}, best {best}, {failed:,} failed, {clock(trial.elapsed)}"
        self._printed = False
        if self._live:
            print(f"\r\x1b[K{self._text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._shown > _EVERY:
            self._print()

    def _print(self) -> None:
        print(self._text, file=sys.stderr, flush=True)
        self._shown, self._printed = time.monotonic(), True

    def close(self) -> None:
        """End the line."""
        if self._live:
            print(file=sys.stderr, flush=True)
        elif not self._printed:
            self._print()
