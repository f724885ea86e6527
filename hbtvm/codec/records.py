"""Forms of dataclasses and unions, by their fields' hints."""

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
    """The readers of a dataclass's fields, by name; built when a field first occurs, as most rarely do."""

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
        for field in fields(cls):
            if field.default is not MISSING:
                self.defaults[field.name] = field.default
            elif field.default_factory is not MISSING:
                self.defaults[field.name] = field.default_factory()
        # Annotations are strings, as modules import `annotations`.
        self.hints: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            names = vars(sys.modules[base.__module__])
            self.hints |= {name: (hint, names) for name, hint in get_annotations(base).items()}
        self.names = [
            field.name for field in fields(cls) if field.init and "SKIP" not in self.hints[field.name][0]
        ]
        self.needed = frozenset(self.names) - self.defaults.keys()

    def form(self, name: str) -> Form:
        """Return the form of a field."""
        hint, names = self.hints[name]
        return form(eval(hint, names))

    def write(self, value: Any, sink: Sink) -> dict[str, Any]:
        if type(value) is not self.cls:
            raise CodecError(f" is a {type(value).__name__}; expected a {self.cls.__name__}")
        values = {name: getattr(value, name) for name in self.names}
        for name in self.defaults.keys() & values.keys():
            if _same(values[name], self.defaults[name]):
                del values[name]
        calls = [self.form(name).write for name in values]
        result = dict(zip(values, each(values.values(), calls, sink, list(values)), strict=True))
        return {**result, "binding": binding(result)} if self.bound else result

    def read(self, data: Any, source: Any) -> Any:
        members = an_object(data)
        if self.bound:
            members = {name: member for name, member in members.items() if name != "binding"}
        if not self.needed <= members.keys():
            raise CodecError(f": the field {min(self.needed - members.keys())!r} is missing")
        readers, values, name = self.readers, {}, ""
        try:
            for name, member in members.items():
                values[name] = readers[name](member, source)
        except CodecError as error:
            raise error.within(f".{name:.100}" if name in readers else "") from None
        try:
            record = self.cls(**values)
            if self.validate is not None:
                self.validate(record)
        except CodecError:
            raise
        except ValueError as error:
            raise CodecError(f": {error}") from None
        if self.bound and data.get("binding") != binding(members):
            raise CodecError(" was changed after it was written: its hash does not match")
        return record


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
    """Return the form of an object of one of several dataclasses."""

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
    """Return the form of an object that the document lists once: its number."""
    pool = kinds(KINDS)

    def write(value: Any, sink: Sink) -> int:
        if id(value) not in sink.at:
            data = pool.write(value, sink)  # before it is numbered, as it refers to earlier objects
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
    """Return the form of a value of several types, which JSON tells apart."""
    records: dict[str, Any] = {hint.__name__: hint for hint in hints if is_dataclass(hint)}  # type: ignore[union-attr]
    literals = tuple(value for hint in hints if get_origin(hint) is Literal for value in get_args(hint))
    rest = [hint for hint in hints if not is_dataclass(hint) and get_origin(hint) is not Literal]
    forms = [form(hint) for hint in sorted(rest, key=lambda hint: hint is float)]  # an int is not a float
    forms += [values.choice(literals)] if literals else []
    forms += [kinds(records) if len(records) > 1 else form(next(iter(records.values())))] if records else []
    by_type = {kind: known for known in reversed(forms) for kind in known.takes}

    def write(value: Any, sink: Sink) -> Any:
        likely = by_type.get(type(value))
        reason = CodecError(f" is {value!r:.100}; JSON has no {type(value).__name__}")
        for candidate in forms if likely is None else (likely, *forms):
            try:
                return candidate.write(value, sink)
            except CodecError as error:
                # Report the form that the value's type chooses, or one that failed inside of the value.
                reason = error if error.path or candidate is likely else reason
            except (AttributeError, TypeError):
                pass
        raise reason

    def read(data: Any, source: Source) -> Any:
        known = by_type.get(type(data))
        if known is None:
            raise wrong(data, " or ".join(NAMES.get(kind, kind.__name__) for kind in by_type))
        return known.read(data, source)

    whole = frozenset(kind for kind, known in by_type.items() if kind in known.whole)
    return Form(write, read, tuple(by_type), whole)


def form(hint: Any) -> Form:
    """Return the form of a hint's values.

    Raises `TypeError` if the codec has none.
    """
    return _form(hint)


@cache
def _form(hint: Any) -> Form:
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
