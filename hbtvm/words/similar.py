"""Suggest a known name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 1000  # most names to compare


def misspelt(name: str, present: Iterable[object]) -> str:
    """Return a hint that a missing name may be misspelt as a present one; empty if none is similar."""
    from difflib import get_close_matches  # seldom needed

    by_lower: dict[str, str] = {}
    for other, _ in zip(present, range(_MOST), strict=False):
        if isinstance(other, str):
            by_lower.setdefault(other.lower(), other)
    matches = get_close_matches(name.lower(), by_lower, 1, 0.75)
    return f"; did you mean {name!r} by {by_lower[matches[0]]!r}?" if matches else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the most similar known word; empty if none is similar."""
    from difflib import get_close_matches  # seldom needed

    matches = get_close_matches(word, list(known), 1)
    return f"; did you mean {matches[0]}?" if matches else ""
