"""The stack machine that pickles are programs for, over inert values only."""

from __future__ import annotations

import codecs
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import objects, wrapped
from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.objects import Draft, plain
from hbtvm.frontends.pickles.records import Global, Record, kind_of
from hbtvm.frontends.pickles.source import Source
from hbtvm.printable import shown

_CHECKED_EVERY = 1024
"""Operations between two looks at what the stack takes."""

_LARGE = 1 << 12
"""Bytes from which on a string of bytes is a view of the file and no copy."""

_LONGEST_NUMBER = 512
"""Longest whole number, in bytes; the longest in models are the 16 bytes of random states."""

_DAMAGE = (IndexError, KeyError, ValueError, TypeError, OverflowError, struct.error, AttributeError)
"""What Python raises where a damaged pickle asks for nonsense."""


class Machine:
    """Runs one pickle.

    Attributes
    ----------
    source
        Where the pickle is read from; it stands behind the pickle's end afterwards.
    budget
        What memory the values may take.
    """

    def __init__(
        self,
        source: Source,
        budget: Budget,
        buffers: Iterator[Any] | None = None,
        *,
        nested: bool = False,
    ) -> None:
        self.source = source
        self.budget = budget
        self._buffers = buffers
        self._nested = nested
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._far: dict[int, Any] = {}
        self._running = True

    def run(self) -> Any:
        """The value that the pickle makes.

        Raises
        ------
        ModelError
            If the file is no pickle, or damaged, or claims more than it has.
        """
        try:
            while self._running:
                for _ in range(_CHECKED_EVERY):
                    opcode = self.source.byte()
                    operation = _OPERATIONS.get(opcode)
                    if operation is None:
                        raise ValueError(f"{opcode:#04x} is no operation")
                    operation(self)
                    if not self._running:
                        break
                self.budget.check(self.source.seen, 9 * len(self._stack) + 40 * len(self._marks))
            return plain(self._stack.pop())
        except EOFError as error:
            raise ModelError("expected a pickled model, but the file ends too early.") from error
        except _DAMAGE as error:
            raise ModelError(
                f"expected a pickled model, but the file is damaged or none ({_reason(error)} at byte "
                f"{self.source.position})."
            ) from error
        except (MemoryError, RecursionError) as error:
            raise ModelError(
                "expected a pickled model, but the file needs more memory than it may."
            ) from error

    # Stack and memory.

    def push(self, value: Any, cost: int = 0) -> None:
        """Put a value that takes about `cost` bytes on the stack."""
        self._stack.append(value)
        self.budget.spent += cost

    def pop(self) -> Any:
        """Take the topmost value, but none from before the last mark."""
        if len(self._stack) <= self._bottom:
            raise IndexError("the stack is empty")
        return self._stack.pop()

    def top(self) -> Any:
        """The topmost value."""
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

    @property
    def _bottom(self) -> int:
        return self._marks[-1] if self._marks else 0

    def remember(self, key: int) -> None:
        """Keep the topmost value for later uses."""
        value = self.top()
        if isinstance(value, Draft):
            value.keys.append(key)
        # Nearly all pickles number the values that they keep one by one.
        if key == len(self._memo):
            self._memo.append(value)
            self.budget.spent += 9
        elif 0 <= key < len(self._memo):
            self._memo[key] = value
        else:
            self._far[key] = value
            self.budget.spent += 120

    def recall(self, key: int) -> None:
        """Put a kept value on the stack."""
        self._stack.append(self._memo[key] if 0 <= key < len(self._memo) else self._far[key])

    def number(self, code: str) -> Any:
        """A number of fixed size that follows in the file; `code` is `struct`'s."""
        return struct.unpack(code, self.source.read(struct.calcsize(code)))[0]

    def line(self) -> str:
        """A line of ASCII text that follows in the file."""
        return self.source.line().decode("ascii")

    # Values.

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
        if count < 0 or count > _LONGEST_NUMBER:
            raise ValueError(f"a number of {count} bytes")
        self.push(int.from_bytes(self.source.read(count), "little", signed=True), 32 + count)

    def old_text(self, content: bytes) -> None:
        """Push a string as Python 2 wrote it: text if it is ASCII, else bytes."""
        self.push(content.decode() if content.isascii() else content, 64 + len(content))

    def named(self, module: Any, name: Any) -> None:
        """Push the name of a class or function."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name is no string")
        self.push(Global(module, name), 64)

    def tuple_of(self, count: int) -> None:
        """Push a tuple of the topmost values."""
        if len(self._stack) - self._bottom < count:
            raise IndexError("the stack is empty")
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        self.push(values, 64 + 8 * count)

    def call(self) -> None:
        """Push what calling a name makes, see `objects.call`."""
        args = self.pop()
        function = self.pop()
        self.made(objects.call(function, args), args)

    def made(self, value: Any, args: Any) -> None:
        """Push a value that was made of arguments."""
        if isinstance(value, Record) and not self._nested:
            value = wrapped.draft(value) or value
        cost = 160
        for part in args if isinstance(args, tuple) else ():
            # Bytes of latin 1, for one, are copied.
            cost += len(part) if isinstance(part, (str, bytes, memoryview)) else 0
        self.push(value, cost)

    def new(self, kwargs: Any = None) -> None:
        """Push an object of a class that is not called."""
        args = self.pop()
        cls = self.pop()
        if not isinstance(args, tuple) or not (kwargs is None or isinstance(kwargs, dict)):
            raise TypeError("arguments are no tuple")
        self.made(Record(cls, args, kwargs), None)

    def build(self) -> None:
        """Give the topmost object its state."""
        state = self.pop()
        owner = self.top()
        if isinstance(owner, Draft):
            self._finish(owner, state)
        elif isinstance(owner, Record):
            if owner.state is not None:
                raise ValueError(f"a {owner.kind} has two states")
            owner.state = state
        elif not isinstance(owner, (dict, list)):
            # Lists and dictionaries stand for their subclasses, too, whose attributes don't matter.
            raise TypeError(f"{kind_of(owner)} has a state")

    def _finish(self, draft: Draft, state: Any) -> None:
        if isinstance(state, tuple):
            self.budget.spent += sum(8 * len(part) for part in state if isinstance(part, (list, dict)))
            self.budget.spent += sum(len(part) for part in state if isinstance(part, (bytes, memoryview)))
        value = draft.finish(state)
        if isinstance(value, wrapped.StoredArray):
            value = self._stored(value)
        self.budget.spent += 240
        self._stack[-1] = value
        for key in draft.keys:
            if key < len(self._memo) and self._memo[key] is draft:
                self._memo[key] = value
            elif self._far.get(key) is draft:
                self._far[key] = value

    def _stored(self, array: wrapped.StoredArray) -> Any:
        """An array that joblib wrote behind the operation that was just done."""
        if array.of_objects:
            self.budget.check(self.source.seen, 0)
            return Machine(self.source, self.budget, nested=True).run()
        return array.read(self.source)

    def append(self, values: list[Any]) -> None:
        """Append to the topmost list."""
        owner = self.top()
        self.budget.spent += 9 * len(values)
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
        self.budget.spent += 36 * len(pairs)
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
        """Push bytes of an object in memory that are no part of its pickle."""
        if self._buffers is None:
            raise ValueError("its buffers are elsewhere")
        self.push(next(self._buffers, b""), 64)

    def mark(self) -> None:
        """Mark the stack."""
        self._marks.append(len(self._stack))

    def stop(self) -> None:
        """End the program."""
        self._running = False

    def outside(self) -> NoReturn:
        """Refuse what refers to objects that the file does not hold."""
        raise ModelError(
            "the pickle refers to objects outside of the file (a persistent id or an extension code), as no "
            "model does that a library saves."
        )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(error)}" if str(error) else type(error).__name__


def _integer_line(machine: Machine) -> None:
    line = machine.line()
    if len(line) > _LONGEST_NUMBER:
        raise ValueError("a number is too long")
    flags = {"00": False, "01": True}
    machine.push(flags[line] if line in flags else int(line.rstrip("L")), 32 + len(line))


def _string_line(machine: Machine) -> None:
    line = machine.source.line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise ValueError("a string has no quotes")
    machine.old_text(codecs.escape_decode(line[1:-1])[0])


def _instance(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    args = tuple(machine.pop_to_mark())
    machine.made(objects.call(Global(module, name), args), args)


def _object(machine: Machine) -> None:
    cls, *args = machine.pop_to_mark()
    machine.made(objects.call(cls, tuple(args)), tuple(args))


def _pop(machine: Machine) -> None:
    # A mark may be the topmost thing.
    if machine._marks and machine._marks[-1] == len(machine._stack):
        machine._marks.pop()
    else:
        machine.pop()


def _new_with_names(machine: Machine) -> None:
    machine.new(machine.pop())


def _tuple_since_mark(machine: Machine) -> None:
    values = machine.pop_to_mark()
    machine.push(tuple(plain(value) for value in values), 56 + 8 * len(values))


def _list_since_mark(machine: Machine) -> None:
    values = machine.pop_to_mark()
    machine.push(values, 72 + 8 * len(values))


def _dict_since_mark(machine: Machine) -> None:
    pairs = machine.pop_to_mark()
    machine.push({}, 80)
    machine.store(pairs)


def _pair(machine: Machine) -> None:
    value = machine.pop()
    machine.store([machine.pop(), value])


def _global_of_stack(machine: Machine) -> None:
    name = machine.pop()
    machine.named(machine.pop(), name)


def _protocol(machine: Machine) -> None:
    version = machine.source.byte()
    if version > pickle.HIGHEST_PROTOCOL:
        raise ValueError(f"protocol {version} is not known")


_OPERATIONS: dict[int, Callable[[Machine], Any]] = {
    code[0]: operation
    for code, operation in {
        pickle.PROTO: _protocol,
        pickle.FRAME: lambda m: m.source.read(8),
        pickle.STOP: Machine.stop,
        pickle.MARK: Machine.mark,
        pickle.POP: _pop,
        pickle.POP_MARK: Machine.pop_to_mark,
        pickle.DUP: lambda m: m.push(m.top()),
        pickle.NONE: lambda m: m.push(None),
        pickle.NEWTRUE: lambda m: m.push(True),
        pickle.NEWFALSE: lambda m: m.push(False),
        pickle.INT: _integer_line,
        pickle.LONG: _integer_line,
        pickle.BININT: lambda m: m.push(m.number("<i"), 32),
        pickle.BININT1: lambda m: m.push(m.source.byte()),
        pickle.BININT2: lambda m: m.push(m.number("<H"), 32),
        pickle.LONG1: lambda m: m.integer(m.source.byte()),
        pickle.LONG4: lambda m: m.integer(m.number("<i")),
        pickle.FLOAT: lambda m: m.push(float(m.line()), 24),
        pickle.BINFLOAT: lambda m: m.push(m.number(">d"), 24),
        pickle.STRING: _string_line,
        pickle.BINSTRING: lambda m: m.old_text(m.source.read(m.number("<I"))),
        pickle.SHORT_BINSTRING: lambda m: m.old_text(m.source.read(m.source.byte())),
        pickle.UNICODE: lambda m: m.push(str(m.source.line(), "raw-unicode-escape"), 128),
        pickle.SHORT_BINUNICODE: lambda m: m.text(m.source.byte()),
        pickle.BINUNICODE: lambda m: m.text(m.number("<I")),
        pickle.BINUNICODE8: lambda m: m.text(m.number("<Q")),
        pickle.SHORT_BINBYTES: lambda m: m.raw(m.source.byte()),
        pickle.BINBYTES: lambda m: m.raw(m.number("<I")),
        pickle.BINBYTES8: lambda m: m.raw(m.number("<Q")),
        pickle.BYTEARRAY8: lambda m: m.raw(m.number("<Q")),
        pickle.NEXT_BUFFER: Machine.buffer,
        pickle.READONLY_BUFFER: Machine.top,
        pickle.EMPTY_TUPLE: lambda m: m.push(()),
        pickle.TUPLE1: lambda m: m.tuple_of(1),
        pickle.TUPLE2: lambda m: m.tuple_of(2),
        pickle.TUPLE3: lambda m: m.tuple_of(3),
        pickle.TUPLE: _tuple_since_mark,
        pickle.EMPTY_LIST: lambda m: m.push([], 88),
        pickle.LIST: _list_since_mark,
        pickle.APPEND: lambda m: m.append([m.pop()]),
        pickle.APPENDS: lambda m: m.append(m.pop_to_mark()),
        pickle.EMPTY_DICT: lambda m: m.push({}, 80),
        pickle.DICT: _dict_since_mark,
        pickle.SETITEM: _pair,
        pickle.SETITEMS: lambda m: m.store(m.pop_to_mark()),
        # Sets stand as lists of their members, which no front end needs hashed.
        pickle.EMPTY_SET: lambda m: m.push([], 88),
        pickle.ADDITEMS: lambda m: m.append(m.pop_to_mark()),
        pickle.FROZENSET: _list_since_mark,
        pickle.GLOBAL: lambda m: m.named(m.line(), m.line()),
        pickle.STACK_GLOBAL: _global_of_stack,
        pickle.REDUCE: Machine.call,
        pickle.NEWOBJ: Machine.new,
        pickle.NEWOBJ_EX: _new_with_names,
        pickle.INST: _instance,
        pickle.OBJ: _object,
        pickle.BUILD: Machine.build,
        pickle.PUT: lambda m: m.remember(int(m.line())),
        pickle.BINPUT: lambda m: m.remember(m.source.byte()),
        pickle.LONG_BINPUT: lambda m: m.remember(m.number("<I")),
        pickle.MEMOIZE: lambda m: m.remember(len(m._memo) + len(m._far)),
        pickle.GET: lambda m: m.recall(int(m.line())),
        pickle.BINGET: lambda m: m.recall(m.source.byte()),
        pickle.LONG_BINGET: lambda m: m.recall(m.number("<I")),
        pickle.PERSID: Machine.outside,
        pickle.BINPERSID: Machine.outside,
        pickle.EXT1: Machine.outside,
        pickle.EXT2: Machine.outside,
        pickle.EXT4: Machine.outside,
    }.items()
}
"""What each operation's byte does."""
