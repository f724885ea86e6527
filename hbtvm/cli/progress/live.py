"""Progress of ``hbtvm tune``: a live bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, Any, Protocol

from hbtvm.cli.progress.pace import Pace
from hbtvm.cli.progress.trend import Courses, bars, times
from hbtvm.cli.show import fold, is_terminal, print_line
from hbtvm.tuning.progress import Trial
from hbtvm.words.printable import shown
from hbtvm.words.quantities import clock, count, duration

_TREND = 24  # characters of a trend
_BAR = 30  # characters of the bar
_STOP = "  Ctrl-C stops here and packages the best so far"
_UNLIMITED = 10**9  # number of trials that means no limit


class Watcher(Protocol):
    """Shows trials within a ``with`` block."""

    def __enter__(self) -> Watcher: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, trial: Trial) -> None:
        """Show a trial (a `hbtvm.tuning.progress.Progress`)."""


def watcher(title: str, stream: IO[str] | None = None) -> Watcher:
    """Return the display for a stream; by default, standard error."""
    stream = stream or sys.stderr
    return Live(title, stream) if is_terminal(stream) else Plain(title, stream)


class Estimate:
    """Estimates a run's progress and remaining time from its trials."""

    def __init__(self) -> None:
        self._first: Trial | None = None

    def update(self, trial: Trial) -> None:
        """Take note of a trial."""
        self._first = self._first or trial

    def left(self, trial: Trial) -> float:
        """Return the seconds until the last trial, or the end of the time budget."""
        # Trials in the log took no time: use this run's pace.
        done = trial.trial - (self._first or trial).trial + 1
        by_pace = trial.elapsed / done * (trial.total - trial.trial)
        return max(by_pace if trial.remaining is None else min(by_pace, trial.remaining), 0.0)

    @staticmethod
    def share(trial: Trial) -> float:
        """Return the share of trials or of time that is done, whichever is larger, 0 to 1."""
        shares = [trial.trial / max(trial.total, 1)]
        if trial.remaining is not None:
            shares.append(trial.elapsed / max(trial.elapsed + trial.remaining, 1e-9))
        return min(max(shares), 1.0)


class Plain:
    """Prints a line at the start and whenever `hbtvm.cli.progress.pace.Pace` says so."""

    def __init__(self, title: str, stream: IO[str]) -> None:
        self._title = title
        self._stream = stream
        self._estimate = Estimate()
        self._pace = Pace()
        self._busy = False
        self._last: Trial | None = None

    def __enter__(self) -> Plain:
        self._print(f"tuning {self._title}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._line(self._last)

    def __call__(self, trial: Trial) -> None:
        """Print a line if it is due."""
        self._estimate.update(trial)
        if trial.busy and not self._busy:
            self._print(f"{clock(trial.elapsed):>8}: {trial.busy}; times measured now may be too long")
        self._busy = self._busy or bool(trial.busy)
        if self._pace.due(self._estimate.share(trial), trial.elapsed):
            self._line(trial)
        else:
            self._last = trial

    def _line(self, trial: Trial) -> None:
        self._last = None
        parts = [_trials(trial)]
        failed = sum(trial.failures.values())
        if failed:
            parts.append(f"{failed} failed")
        parts += [f"{group} {duration(best)}" for group, best in trial.best.items()]
        left = self._estimate.left(trial)
        if trial.final:
            parts.append("comparing the fastest")
        elif left >= 1:
            parts.append(f"about {clock(left)} left")
        self._print(f"{clock(trial.elapsed):>8}: {', '.join(parts)}")

    def _print(self, text: str) -> None:
        print_line(text, self._stream, indent=" " * 10)
        self._stream.flush()


class Live:
    """A bar, and each batch size's strategies with trials, best times, trends and failures.

    It redraws once a second, not in `__call__`, so as not to disturb measurements.
    """

    def __init__(self, title: str, stream: IO[str], hint: str = _STOP, *, width: int | None = None) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._title = title
        self._estimate = Estimate()
        self._courses = Courses()
        self._trial: Trial | None = None
        self._start = self._updated = time.monotonic()
        self._hint = hint
        self._console = Console(file=stream, width=width, force_jupyter=False)
        self._live = RichLive(
            console=self._console, get_renderable=self._render, refresh_per_second=1, transient=True
        )

    def __enter__(self) -> Live:
        self._start = time.monotonic()
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, trial: Trial) -> None:
        """Store a trial for the next redraw."""
        self._estimate.update(trial)
        self._courses.update(trial)
        self._trial, self._updated = trial, time.monotonic()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        trial = self._trial
        width = self._console.width
        title, progress = f"tuning {shown(self._title)}", self._progress(trial, time.monotonic())
        bar = ProgressBar(total=1.0, completed=Estimate.share(trial) if trial else 0.0, width=_BAR)
        # Side by side if there is room, else stacked.
        head = Table.grid(padding=(0, 2))
        beside = _BAR + len(progress) + 2 <= width
        if len(title) + _BAR + len(progress) + 4 <= width:
            head.add_row(Text(title, style="bold"), bar, Text(progress))
            lines: list[Any] = [head]
        else:
            head.add_row(bar, Text(progress)) if beside else head.add_row(bar)
            lines = [Text(fold(title, width), style="bold"), head]
            if not beside:
                lines.append(Text(fold(progress, width)))
        lines += self._courses_lines(width)
        if trial and trial.failures:
            kinds = ", ".join(f"{number} {kind}" for kind, number in trial.failures.items())
            lines.append(Text(fold(shown(f"  failed: {kinds}", 300), width), style="yellow"))
        if trial and trial.busy:
            lines.append(Text(fold(shown(f"  {trial.busy}", 300), width), style="yellow"))
        for hint in (
            "  times are of kernels, the fastest readings; a final comparison decides",
            self._hint,
        ):
            lines.append(Text(fold(hint, width), style="dim"))
        return Group(*lines)

    def _courses_lines(self, width: int) -> list[Any]:
        """Return a line for each strategy of each batch size, as wide as there is room."""
        from rich.text import Text

        lines: list[tuple[str, ...]] = []
        styles: list[str] = []
        # Another thread adds trials.
        for group, courses in list(self._courses.by_group.items()):
            known = list(courses.items())
            seconds = times([course for _, course in known])
            fastest = min((best for best in seconds if best is not None), default=0.0)
            for i, ((strategy, course), best) in enumerate(zip(known, seconds, strict=True)):
                trend, style = "", ""
                if best is not None:
                    trend = bars(list(course.best) or [best], fastest, _TREND)
                    style = "green" if best == fastest else ""
                tried = count(course.trials, "trial")
                lines.append(("" if i else shown(group), shown(strategy), tried, duration(best), trend))
                styles.append(style)
        if not lines:
            return []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        total = sum(widths[:4]) + 4 * 2
        apart = total > width  # groups get separate lines
        texts = []
        for (group, strategy, tried, taken, trend), style in zip(lines, styles, strict=True):
            if apart and group:
                texts.append(Text(f"  {group}"))
            start = "    " if apart else f"  {group:>{widths[0]}}  "
            text = Text(f"{start}{strategy:{widths[1]}}  {tried:>{widths[2]}}  ", no_wrap=True)
            text.append(f"{taken:>{widths[3]}}", style=style)
            if total + 2 + widths[4] <= width:
                text.append(f"  {trend}", style=style or "dim")
            texts.append(text)
        return texts

    def _progress(self, trial: Trial | None, now: float) -> str:
        elapsed = clock(now - self._start)
        if trial is None:
            return f"starting, {elapsed}"
        text = f"{_trials(trial)}, {elapsed}"
        if trial.final or trial.trial >= trial.total:
            return f"{text}, comparing the fastest"
        left = self._estimate.left(trial) - (now - self._updated)  # the estimate is as old as the trial
        return f"{text}, about {clock(left)} left" if left >= 1 else text


def _trials(trial: Trial) -> str:
    if trial.total >= _UNLIMITED:
        return count(trial.trial, "trial")
    return f"{trial.trial:,}/{count(trial.total, 'trial')}"
