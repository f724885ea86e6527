"""What the search gained: the default schedules against the fastest."""

from __future__ import annotations

from collections.abc import Mapping

from hbtvm.logs.ranking import is_final
from hbtvm.logs.record import Record
from hbtvm.report.parts import table
from hbtvm.report.story import Story
from hbtvm.report.style import text
from hbtvm.words.quantities import duration


def gains(story: Story) -> str:
    """Return a table of the kernels' times by default and tuned; empty if no candidate worked."""
    rows = []
    for index, chapter in enumerate(story.chapters):
        winner = chapter.winner()
        if winner is None:
            continue
        default = story.defaults.get(index)
        tuned = winner.cost if default is None else _comparable(winner, default)
        gain = "-" if default is None else f"<b>{default.cost / tuned:.2f}×</b>"
        rows.append(
            (
                text(chapter.name),
                gain,
                chapter.size,
                "not measured" if default is None else duration(default.cost),
                duration(tuned),
                text(winner.strategy),
            )
        )
    if not rows:
        return ""
    heads = ("model", "speed-up", "call size", "default kernel", "tuned kernel", "tuned strategy")
    note = "<p>Medians of the final; readings of the search where the default did not reach the final.</p>"
    return f"<h2>Default against tuned</h2>{note}{table(heads, rows, numbers=(1, 2, 3, 4))}"


def _comparable(winner: Record, default: Record) -> float:
    """Return the winner's seconds in the part of the search in which the default was measured."""
    final = winner.extra.get("final")
    if is_final(default) or not isinstance(final, Mapping):
        return winner.cost
    return float(final.get("reading", winner.cost))
