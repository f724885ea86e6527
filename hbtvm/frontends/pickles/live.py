"""Objects in memory, read by way of their pickles."""

from __future__ import annotations

import copyreg
import io
import pickle
import types
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.objects import CALLS
from hbtvm.frontends.pickles.operations import read
from hbtvm.frontends.pickles.records import Global, Record
from hbtvm.frontends.pickles.source import Source
from hbtvm.words.printable import shown

_UNBOUNDED = 1 << 62  # the user's object may take any memory

_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def from_live(model: Any) -> Any:
    """Return an object as inert values, by way of its pickle.

    Its arrays are not copied. Parts that can't be pickled, such as functions defined within others,
    become a `Record` of their class with no state. Raises `ModelError` if it can't be pickled at all.
    """
    buffers: list[pickle.PickleBuffer] = []
    content = io.BytesIO()
    pickler = _Pickler(content, protocol=5, buffer_callback=buffers.append)
    try:
        pickler.dump(model)
        views = iter([buffer.raw() for buffer in buffers])
    except Exception as error:
        # The object's code may raise anything.
        reason = shown(str(error).splitlines()[0], 200) if str(error) else type(error).__name__
        raise ModelError(f"the {type(model).__name__} can't be pickled, so not read: {reason}.") from error
    token = _functions.set(pickler.functions)
    try:
        return read(Source(iter((content.getvalue(),))), Budget(_UNBOUNDED), views)
    finally:
        _functions.reset(token)


class LiveFunction(Global):
    """A function of a live object: its name, and the function itself."""

    __slots__ = ("function",)

    def __init__(self, module: str, name: str, function: Callable[..., Any]) -> None:
        super().__init__(module, name)
        self.function = function


_functions: ContextVar[Sequence[Callable[..., Any]]] = ContextVar("_functions", default=())
"""The functions of the live object whose pickle this thread reads; none while it reads a file."""


def named(module: str, name: str, function: int = -1) -> None:
    """Stand in a live object's pickle for a class or function; `_Pickler` writes calls of this."""


def lacking(module: str, name: str) -> None:
    """Stand in a live object's pickle for an object that can't be pickled."""


class _Pickler(pickle.Pickler):
    """Writes classes and functions as names, importable or not, and skips objects that can't be pickled."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.functions: list[Callable[..., Any]] = []

    def reducer_override(self, value: Any) -> Any:
        if value is named or value is lacking:
            return NotImplemented
        if isinstance(value, _NAMED):
            module = getattr(value, "__module__", None) or ""
            names = str(module), getattr(value, "__qualname__", None) or type(value).__qualname__
            if not isinstance(value, types.FunctionType | types.MethodType):
                return named, names
            self.functions.append(value)
            return named, (*names, len(self.functions) - 1)
        if type(value) in copyreg.dispatch_table:
            return NotImplemented
        try:
            reduced = value.__reduce_ex__(5)
        except Exception:
            kind = type(value)
            return lacking, (kind.__module__, kind.__qualname__)
        return (named, (str(type(value).__module__), reduced)) if isinstance(reduced, str) else reduced


def _name_of(function: Global, args: tuple[Any, ...]) -> Any:
    module, name, at = args if len(args) == 3 else (*args, -1)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ModelError("expected a pickled model, but it is damaged: a name is not a string.")
    functions = _functions.get()
    if isinstance(at, int) and 0 <= at < len(functions):
        return LiveFunction(module, name, functions[at])
    return Global(module, name)


def _lacking_one(function: Global, args: tuple[Any, ...]) -> Any:
    return Record(_name_of(function, args))


CALLS[__name__, "named"] = _name_of
CALLS[__name__, "lacking"] = _lacking_one
