"""The stack and the memo of the machine that runs pickles."""

from __future__ import annotations

from typing import Any

from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.objects import Draft
from hbtvm.frontends.pickles.source import Source

_LARGE = 1 << 16  # values from this size on are checked against the budget at once


class Stack:
    """Values on a stack with marks, and values kept by number.

    Invalid operations raise `IndexError` or `KeyError`.

    `source`: the pickle's bytes.
    `budget`: bound of the values' memory.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source = source
        self.budget = budget
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._far: dict[int, Any] = {}

    @property
    def size(self) -> int:
        """Bytes of the stack."""
        return 9 * len(self._stack) + 40 * len(self._marks)

    @property
    def kept(self) -> int:
        """Number of values kept by number."""
        return len(self._memo) + len(self._far)

    def push(self, value: Any, cost: int = 0) -> None:
        """Push a value of about `cost` bytes."""
        self._stack.append(value)
        self.spend(cost)

    def spend(self, cost: int) -> None:
        """Count bytes of a value; large values are checked at once, others now and then."""
        self.budget.spent += cost
        if cost >= _LARGE:
            self.budget.check(self.source.seen, self.size)

    def pop(self) -> Any:
        """Take the topmost value above the last mark."""
        if len(self._stack) <= self._bottom:
            raise IndexError("the stack is empty")
        return self._stack.pop()

    def top(self) -> Any:
        """Return the topmost value above the last mark."""
        if len(self._stack) <= self._bottom:
            raise IndexError("the stack is empty")
        return self._stack[-1]

    def pop_to_mark(self) -> list[Any]:
        """Take the values since the last mark, and the mark."""
        if not self._marks:
            raise IndexError("there is no mark")
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def take(self, count: int) -> list[Any]:
        """Take the topmost values."""
        if len(self._stack) - self._bottom < count:
            raise IndexError("the stack is empty")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def mark(self) -> None:
        """Mark the stack."""
        self._marks.append(len(self._stack))

    def drop(self) -> None:
        """Drop the topmost value, or a topmost mark."""
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self.pop()

    @property
    def _bottom(self) -> int:
        return self._marks[-1] if self._marks else 0

    def remember(self, key: int) -> None:
        """Keep the topmost value by number."""
        value = self.top()
        if isinstance(value, Draft):
            value.keys.append(key)
        # Nearly all pickles number the values consecutively.
        if key == len(self._memo):
            self._memo.append(value)
            self.budget.spent += 9
        elif 0 <= key < len(self._memo):
            self._memo[key] = value
        else:
            self._far[key] = value
            self.budget.spent += 120

    def recall(self, key: int) -> None:
        """Push a kept value."""
        self._stack.append(self._memo[key] if 0 <= key < len(self._memo) else self._far[key])

    def finish(self, draft: Draft, value: Any) -> None:
        """Replace a draft by its value, on top of the stack and in the memo."""
        self._stack[-1] = value
        for key in draft.keys:
            if key < len(self._memo) and self._memo[key] is draft:
                self._memo[key] = value
            elif self._far.get(key) is draft:
                self._far[key] = value
