"""Measured times of whole calls, beside those of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbtvm import codec
from hbtvm.words.names import CONTAINERS
from hbtvm.words.quantities import duration


@codec.bound
@dataclass(frozen=True)
class CallTimes:
    """Times of calls of ``predict`` or ``transform``, with reading of the rows."""

    rows: codec.Count  # rows (or structures) of a call
    seconds: Mapping[str, codec.Seconds]  # median seconds by container (`CONTAINERS`)


def call_heads(calls: Sequence[CallTimes]) -> dict[str, str]:
    """Return the measured containers and their headings, in the order of columns."""
    return {kind: head for kind, head in CONTAINERS.items() if any(kind in call.seconds for call in calls)}


def call_cells(calls: Sequence[CallTimes], rows: int | None) -> tuple[str, ...]:
    """Return the times of calls of `rows` rows in words, one for each of `call_heads`."""
    times = next((call.seconds for call in calls if call.rows == rows), {})
    return tuple(duration(times.get(kind)) for kind in call_heads(calls))
