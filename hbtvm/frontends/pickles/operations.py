"""The operations of pickles by their bytes, protocols 0 to 5, and the loop that runs them."""

from __future__ import annotations

import codecs
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import objects
from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.machine import LONGEST_NUMBER, Machine
from hbtvm.frontends.pickles.objects import plain
from hbtvm.frontends.pickles.records import Global
from hbtvm.frontends.pickles.source import Source
from hbtvm.words.printable import shown

_CHECKED_EVERY = 1024  # operations between two checks of memory

_DAMAGE = (IndexError, KeyError, ValueError, TypeError, OverflowError, struct.error, AttributeError)
"""Python's errors for damaged pickles."""


def read(
    source: Source, budget: Budget, buffers: Iterator[Any] | None = None, *, nested: bool = False
) -> Any:
    """Run a pickle over inert values.

    `source`: the pickle's bytes; read up to the pickle's end.
    `budget`: bound of the values' memory.
    `buffers`: bytes of an object in memory that are stored apart from its pickle, in order.
    `nested`: whether the pickle is within another, as joblib's arrays of objects are.
    Raises `ModelError` if the file is not a pickle, or is damaged, or claims more than it has.
    """
    within = None if nested else partial(read, source, budget, nested=True)
    machine = Machine(source, budget, buffers, within)
    try:
        while machine.running:
            for _ in range(_CHECKED_EVERY):
                opcode = source.byte()
                operation = _OPERATIONS.get(opcode)
                if operation is None:
                    raise ValueError(f"{opcode:#04x} is not an operation")
                operation(machine)
                if not machine.running:
                    break
            budget.check(source.seen, machine.size)
        return plain(machine.pop())
    except EOFError as error:
        raise ModelError("expected a pickled model, but the file ends too early.") from error
    except ModelError:  # a ValueError as well
        raise
    except _DAMAGE as error:
        raise ModelError(
            f"expected a pickled model, but the file is damaged or none ({_reason(error)} at byte "
            f"{source.position})."
        ) from error
    except (MemoryError, RecursionError) as error:
        raise ModelError("expected a pickled model, but the file needs more memory than it may.") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(error)}" if str(error) else type(error).__name__


def _integer_line(machine: Machine) -> None:
    line = machine.line()
    if len(line) > LONGEST_NUMBER:
        raise ValueError("a number is too long")
    flags = {"00": False, "01": True}
    machine.push(flags[line] if line in flags else int(line.rstrip("L")), 32 + len(line))


def _float_line(machine: Machine) -> None:
    line = machine.line()
    if len(line) > LONGEST_NUMBER:
        raise ValueError("a number is too long")
    machine.push(float(line), 24)


def _string_line(machine: Machine) -> None:
    line = machine.source.line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise ValueError("a string has no quotes")
    machine.old_text(codecs.escape_decode(line[1:-1])[0])


def _text_line(machine: Machine) -> None:
    text = str(machine.source.line(), "raw-unicode-escape")
    machine.push(text, sys.getsizeof(text))


def _instance(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    args = tuple(machine.pop_to_mark())
    machine.push_result(objects.call(Global(module, name), args), args)


def _object(machine: Machine) -> None:
    cls, *args = machine.pop_to_mark()
    machine.push_result(objects.call(cls, tuple(args)), tuple(args))


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
        pickle.POP: Machine.drop,
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
        pickle.FLOAT: _float_line,
        pickle.BINFLOAT: lambda m: m.push(m.number(">d"), 24),
        pickle.STRING: _string_line,
        pickle.BINSTRING: lambda m: m.old_text(m.source.read(m.number("<I"))),
        pickle.SHORT_BINSTRING: lambda m: m.old_text(m.source.read(m.source.byte())),
        pickle.UNICODE: _text_line,
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
        # Sets become lists of their members, as no front end needs them hashed.
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
        pickle.MEMOIZE: lambda m: m.remember(m.kept),
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
"""Operations by their bytes."""
