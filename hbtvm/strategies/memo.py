"""Results that strategies keep with an operand, in its `memo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def remembered(memo: dict[str, Any], key: str, make: Callable[[], T]) -> T:
    """Return what `make` returns; it is called once for each key of a memo."""
    if key not in memo:
        memo[key] = make()
    result: T = memo[key]
    return result
