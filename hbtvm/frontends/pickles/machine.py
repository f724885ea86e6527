"""The stack machine of pickles, over inert values only."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import objects, wrapped
from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.objects import Draft, plain
from hbtvm.frontends.pickles.records import Global, Record, kind_of
from hbtvm.frontends.pickles.source import Source
from hbtvm.frontends.pickles.stack import Stack

_LARGE = 1 << 12  # strings of bytes from this size on are views of the file

LONGEST_NUMBER = 512
"""Bound of a whole number's bytes; the longest in models are the 16 bytes of random states."""


class Machine(Stack):
    """The state of a pickle's reader; see `operations.read`.

    `running`: whether the pickle's end is still ahead.
    """

    def __init__(
        self,
        source: Source,
        budget: Budget,
        buffers: Iterator[Any] | None = None,
        within: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(source, budget)
        self.running = True
        self._buffers = buffers
        # Reads a nested pickle at the current position; None within a nested pickle.
        self._within = within

    def number(self, code: str) -> Any:
        """Read a number of fixed size; `code` is `struct`'s."""
        return struct.unpack(code, self.source.read(struct.calcsize(code)))[0]

    def line(self) -> str:
        """Read a line of ASCII text."""
        return self.source.line().decode("ascii")

    def text(self, count: int) -> None:
        """Push a string of `count` bytes in UTF-8."""
        value = self.source.read(count).decode("utf-8", "surrogatepass")
        self.push(value, sys.getsizeof(value))

    def raw(self, count: int) -> None:
        """Push a string of bytes."""
        value = self.source.view(count)
        self.push(value if count >= _LARGE else bytes(value), 64 + min(count, _LARGE))

    def integer(self, count: int) -> None:
        """Push a whole number of `count` bytes, little-endian."""
        if count < 0 or count > LONGEST_NUMBER:
            raise ValueError(f"a number of {count} bytes")
        self.push(int.from_bytes(self.source.read(count), "little", signed=True), 32 + count)

    def old_text(self, content: bytes) -> None:
        """Push a string as Python 2 wrote it: text if it is ASCII, else bytes."""
        self.push(content.decode() if content.isascii() else content, 64 + len(content))

    def named(self, module: Any, name: Any) -> None:
        """Push the name of a class or function."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name is not a string")
        self.push(Global(module, name), 64)

    def tuple_of(self, count: int) -> None:
        """Push a tuple of the topmost values."""
        self.push(tuple(plain(value) for value in self.take(count)), 64 + 8 * count)

    def call(self) -> None:
        """Push the result of a call, see `objects.call`."""
        args = self.pop()
        function = self.pop()
        self.push_result(objects.call(function, args), args)

    def push_result(self, value: Any, args: Any) -> None:
        """Push the result of a call with some arguments."""
        if isinstance(value, Record) and self._within is not None:
            value = wrapped.draft(value) or value
        cost = 160
        for part in args if isinstance(args, tuple) else ():
            # Calls may copy their arguments, such as bytes in latin 1.
            cost += len(part) if isinstance(part, (str, bytes, memoryview)) else 0
        self._count(value)
        self.push(value, cost)

    def new(self, kwargs: Any = None) -> None:
        """Push an object of a class, created without a call."""
        args = self.pop()
        cls = self.pop()
        if not isinstance(args, tuple) or not (kwargs is None or isinstance(kwargs, dict)):
            raise TypeError("arguments are not a tuple")
        self.push_result(Record(cls, args, kwargs), None)

    def build(self) -> None:
        """Give the topmost object its state."""
        state = self.pop()
        owner = self.top()
        if isinstance(owner, Draft):
            self._build_draft(owner, state)
        elif isinstance(owner, Record):
            if owner.state is not None:
                raise ValueError(f"a {owner.kind} has two states")
            owner.state = state
        elif not isinstance(owner, (dict, list)):
            # Lists and dictionaries also stand for subclasses, whose attributes are ignored.
            raise TypeError(f"{kind_of(owner)} has a state")

    def _count(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.budget.arrays += value.nbytes
            self.budget.check(self.source.seen, self.size)

    def _build_draft(self, draft: Draft, state: Any) -> None:
        if isinstance(state, tuple):
            self.spend(sum(8 * len(part) for part in state if isinstance(part, (list, dict))))
            self.spend(sum(len(part) for part in state if isinstance(part, (bytes, memoryview))))
        value = draft.finish(state)
        self._count(value)
        if isinstance(value, wrapped.StoredArray):
            value = self._stored(value)
        self.budget.spent += 240
        self.finish(draft, value)

    def _stored(self, array: wrapped.StoredArray) -> Any:
        """Read an array that joblib wrote behind the current operation."""
        if array.of_objects:
            if self._within is None:
                raise ValueError("an array of objects lies within another")
            self.budget.check(self.source.seen, self.size)
            return self._within()
        return array.read(self.source)

    def append(self, values: list[Any]) -> None:
        """Append to the topmost list."""
        owner = self.top()
        self.spend(9 * len(values))
        if isinstance(owner, list):
            owner.extend(plain(value) for value in values)
        elif isinstance(owner, Record):
            if owner.items is None:
                owner.items = []
            owner.items.extend(values)
        else:
            raise TypeError(f"{kind_of(owner)} takes no items")

    def store(self, pairs: list[Any]) -> None:
        """Store keys and values in the topmost dictionary."""
        owner = self.top()
        if len(pairs) % 2:
            raise ValueError("a key has no value")
        self.spend(36 * len(pairs))
        if isinstance(owner, dict):
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                owner[self.budget.key(key)] = plain(value)
        elif isinstance(owner, Record):
            if owner.pairs is None:
                owner.pairs = []
            owner.pairs.extend(pairs)
        else:
            raise TypeError(f"{kind_of(owner)} takes no keys")

    def buffer(self) -> None:
        """Push bytes of an object in memory that are stored apart from its pickle."""
        if self._buffers is None:
            raise ValueError("its buffers are elsewhere")
        self.push(next(self._buffers, b""), 64)

    def stop(self) -> None:
        """End the program."""
        self.running = False

    def outside(self) -> NoReturn:
        """Refuse references to objects outside of the file."""
        raise ModelError(
            "the pickle refers to objects outside of the file (a persistent id or an extension code); models "
            "that libraries save do not."
        )
