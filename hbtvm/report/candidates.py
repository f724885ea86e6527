"""Tables of single candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.logs.record import Record
from hbtvm.report.parts import table
from hbtvm.report.story import Chapter
from hbtvm.report.style import text
from hbtvm.words.quantities import config, count, duration


def is_busy(record: Record) -> bool:
    """Return whether the tuner marked the machine as busy during a measurement."""
    return "waited" in record.extra or "drift" in record.extra


def every_candidate(chapter: Chapter) -> str:
    """Return a collapsed table of a workload's records in the order of measurement."""
    rows: list[tuple[str, ...]] = []
    number = 0
    for record in chapter.records:
        final = bool(record.extra.get("final"))
        if final and rows and "calls" in record.extra:  # it repeats the winner's record
            continue
        number += not final
        if record.error is None:
            spread = f"{duration(min(record.times))} to {duration(max(record.times))}"
            came = (duration(record.cost), spread if len(record.times) > 1 else "")
        else:
            came = ("failed", text(record.error["kind"], 60))
        rows.append(
            (
                "final" if final else f"{number:,}",
                text(record.strategy),
                *came,
                _remark(record.extra),
                f"<code>{text(config(record.config), 2000)}</code>",
            )
        )
    heads = ("trial", "strategy", "kernel", "its repeats", "remark", "schedule")
    finals = len(rows) - number
    counts = count(number, "candidate")
    if finals:
        counts += f", and {count(finals, 'repeated measurement')} of the fastest"
    listed = table(heads, rows, numbers=(0, 2))
    return f"<details><summary>All {counts}</summary>{listed}</details>"


def _remark(extra: Mapping[str, Any]) -> str:
    """Return a record's marks in words."""
    words = []
    if "waited" in extra:
        words.append(f"busy: waited {extra['waited']:.0%} of its time")
    if "drift" in extra:
        words.append(f"busy: reference {extra['drift']:.2f} times as slow")
    return ", ".join(words)
