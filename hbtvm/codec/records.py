"""Forms of dataclasses and of unions, by their fields' hints."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import get_annotations
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from hbtvm.codec import values
from hbtvm.codec.hints import BOUND, FAMILIES, KINDS, CodecError, Member, Via, Within, binding
from hbtvm.codec.values import NAMES, Form, Sink, Source, an_object, each, wrong


class _Readers(dict[str, Callable[[Any, Any], Any]]):
    """What reads the fields of a dataclass, by name; made for those that occur, as most rarely do."""

    def __init__(self, record: _Record) -> None:
        super().__init__()
        self.record = record

    def __missing__(self, name: str) -> Callable[[Any, Any], Any]:
        if name not in self.record.names:
            raise CodecError(f": the field {name!r:.100} is unknown")
        self[name] = self.record.form(name).read
        return self[name]


class _Record:
    """A dataclass. A field's hint is evaluated when the field first occurs: `load` needs few of them."""

    def __init__(self, cls: type) -> None:
        self.cls, self.bound = cls, cls in BOUND
        self.validate = getattr(cls, "validate", None)
        self.readers = _Readers(self)
        self.defaults: dict[str, Any] = {}
        for one in fields(cls):
            if one.default is not MISSING:
                self.defaults[one.name] = one.default
            elif one.default_factory is not MISSING:
                self.defaults[one.name] = one.default_factory()
        # Annotations are texts, as modules import `annotations`.
        self.hints: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            names = vars(sys.modules[base.__module__])
            self.hints |= {name: (hint, names) for name, hint in get_annotations(base).items()}
        self.names = [one.name for one in fields(cls) if one.init and "SKIP" not in self.hints[one.name][0]]
        self.needed = frozenset(self.names) - self.defaults.keys()

    def form(self, name: str) -> Form:
        """Return how a field is written and read."""
        hint, names = self.hints[name]
        return form(eval(hint, names))

    def write(self, value: Any, sink: Sink) -> dict[str, Any]:
        if type(value) is not self.cls:
            raise CodecError(f" is a {type(value).__name__}; expected a {self.cls.__name__}")
        given = {name: getattr(value, name) for name in self.names}
        for name in self.defaults.keys() & given.keys():
            if _same(given[name], self.defaults[name]):
                del given[name]
        calls = [self.form(name).write for name in given]
        result = dict(zip(given, each(given.values(), calls, sink, list(given)), strict=True))
        return {**result, "binding": binding(result)} if self.bound else result

    def read(self, data: Any, source: Any) -> Any:
        given = an_object(data)
        if self.bound:
            given = {name: one for name, one in given.items() if name != "binding"}
        if not self.needed <= given.keys():
            raise CodecError(f": the field {min(self.needed - given.keys())!r} is missing")
        readers, values, name = self.readers, {}, ""
        try:
            for name, one in given.items():
                values[name] = readers[name](one, source)
        except CodecError as error:
            raise error.within(f".{name:.100}" if name in readers else "") from None
        try:
            made = self.cls(**values)
            if self.validate is not None:
                self.validate(made)
        except CodecError:
            raise
        except ValueError as error:
            raise CodecError(f": {error}") from None
        if self.bound and data.get("binding") != binding(given):
            raise CodecError(" is not as it was when it was bound: it has another hash")
        return made


_RECORDS: dict[Any, Form] = {}


def _record(cls: Any) -> Form:
    if cls not in _RECORDS:
        record = _Record(cls)
        _RECORDS[cls] = Form(record.write, record.read, (dict,))
    return _RECORDS[cls]


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and not isinstance(value, np.ndarray) and bool(value == default)


def kinds(classes: Mapping[str, type]) -> Form:
    """One of several dataclasses."""

    def write(value: Any, sink: Sink) -> dict[str, Any]:
        kind = type(value).__name__
        if classes.get(kind) is not type(value):
            raise CodecError(f" is a {kind}, which has no form")
        return {"kind": kind, **_record(type(value)).write(value, sink)}

    def read(data: Any, source: Any) -> Any:
        data = dict(an_object(data))
        kind = data.pop("kind", None)
        if type(kind) is not str or kind not in classes:
            raise CodecError(f".kind is {kind!r:.60}, which this version of hbtvm does not know")
        return _record(classes[kind]).read(data, source)

    return Form(write, read, (dict,))


def _shared(base: type) -> Form:
    """An object that is listed once, by its number."""
    pool = kinds(KINDS)

    def write(value: Any, sink: Sink) -> int:
        if id(value) not in sink.at:
            data = pool.write(value, sink)  # first, as it refers to earlier objects
            sink.at[id(value)] = len(sink.shared)
            sink.shared.append(data)
        return sink.at[id(value)]

    def read(data: Any, source: Source) -> Any:
        value = source.shared[data] if type(data) is int and 0 <= data < len(source.shared) else None
        if not isinstance(value, base):
            raise wrong(data, f"the number of a {base.__name__} in shared")
        return value

    return Form(write, read, (int,))


def _union(hints: tuple[Any, ...]) -> Form:
    """One of several types, which JSON tells apart."""
    records: dict[str, Any] = {one.__name__: one for one in hints if is_dataclass(one)}  # type: ignore[union-attr]
    literals = tuple(value for one in hints if get_origin(one) is Literal for value in get_args(one))
    rest = [one for one in hints if not is_dataclass(one) and get_origin(one) is not Literal]
    forms = [form(one) for one in sorted(rest, key=lambda one: one is float)]  # an int is not a float
    forms += [values.choice(literals)] if literals else []
    forms += [kinds(records) if len(records) > 1 else form(next(iter(records.values())))] if records else []
    by_type = {kind: one for one in reversed(forms) for kind in one.takes}

    def write(value: Any, sink: Sink) -> Any:
        likely = by_type.get(type(value))
        reason = CodecError(f" is {value!r:.100}; JSON has no {type(value).__name__}")
        for one in forms if likely is None else (likely, *forms):
            try:
                return one.write(value, sink)
            except CodecError as error:
                # Of the form that the value's type chooses, or that took most of the value.
                reason = error if error.path or one is likely else reason
            except (AttributeError, TypeError):
                pass
        raise reason

    def read(data: Any, source: Source) -> Any:
        found = by_type.get(type(data))
        if found is None:
            raise wrong(data, " or ".join(NAMES.get(kind, kind.__name__) for kind in by_type))
        return found.read(data, source)

    whole = frozenset(kind for kind, one in by_type.items() if kind in one.whole)
    return Form(write, read, tuple(by_type), whole)


def form(hint: Any) -> Form:
    """Return how values of a hint are written and read."""
    return _made(hint)


@cache
def _made(hint: Any) -> Form:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(*arguments)
    if origin is Literal:
        return values.choice(arguments)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[-1] is ...:
        return values.items(form(arguments[0]))
    if origin is tuple:
        return values.fixed(tuple(map(form, arguments)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return (
            values.named(form(arguments[1])) if arguments[0] is str else values.pairs(*map(form, arguments))
        )
    if hint in FAMILIES:
        return _shared(hint)
    if is_dataclass(hint):
        return _record(hint)
    if hint in NAMES:
        return values.exact(hint)
    if hint in (int, float):
        return values.integer() if hint is int else values.floating()
    if hint is np.ndarray:
        return values.member(hint, "tables")
    if hint is Any:
        return values.anything()
    raise TypeError(f"the codec has no form for {hint!r}")


def _annotated(hint: Any, *notes: Any) -> Form:
    for note in notes:
        if isinstance(note, Within):
            return (values.integer if hint is int else values.floating)(note.least, note.below)
        if isinstance(note, Member):
            return values.member(hint, note.folder)
        if isinstance(note, Via):
            return values.via(form(note.hint), note)
    return form(hint)
