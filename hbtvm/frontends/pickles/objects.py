"""Results of a pickle's calls: plain values and arrays for known names, else a `Record`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import arrays
from hbtvm.frontends.pickles.records import Global, Record, kind_of

ARRAY_CLASSES = ("ndarray", "memmap", "matrix")  # classes of numpy that become plain arrays

LATIN = ("latin1", "latin-1", "iso-8859-1")


class Draft:
    """A value that a pickle creates in two steps: a call, and the state that follows.

    The machine replaces all references to the draft when the state is known.

    `value`: the value if no state follows.
    `finish`: from the state to the value.
    `keys`: its numbers in the machine's memo.
    """

    __slots__ = ("finish", "keys", "value")

    def __init__(self, value: Any, finish: Callable[[Any], Any]) -> None:
        self.value = value
        self.finish = finish
        self.keys: list[int] = []


def plain(value: Any) -> Any:
    """Return a value; a draft's present value."""
    return value.value if isinstance(value, Draft) else value


def call(function: Any, args: Any) -> Any:
    """Return the result of a call; an inert `Record` unless the name is in `CALLS`.

    Raises `ModelError` if the arguments are not those that the libraries write.
    """
    if not isinstance(args, tuple):
        raise ModelError(f"expected a pickled model, but it is damaged: arguments are {kind_of(args)}.")
    if isinstance(function, Global):
        make = CALLS.get((_renamed(function.module), function.name))
        if make is not None:
            return make(function, tuple(plain(value) for value in args))
    return Record(function, args)


def _renamed(module: str) -> str:
    """Return a module's name in the newest Python and numpy."""
    if module.startswith("numpy.core."):
        return "numpy._core." + module[len("numpy.core.") :]
    return {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)


def _dtype(function: Global, args: tuple[Any, ...]) -> Any:
    dtype = arrays.base_dtype(args[0]) if args else None
    if dtype is None:
        return Record(function, args)
    base = dtype

    def finish(state: Any) -> Any:
        result = arrays.with_state(base, tuple(map(plain, state)) if isinstance(state, tuple) else state)
        return Record(function, args) if result is None else result

    return Draft(dtype, finish)


def _reconstruct(function: Global, args: tuple[Any, ...]) -> Any:
    kind = args[0] if args else None
    if not (isinstance(kind, Global) and kind.library == "numpy" and kind.name in ARRAY_CLASSES):
        return Record(function, args)
    return Draft(None, _array)


def _array(state: Any) -> Any:
    if not isinstance(state, tuple) or len(state) not in (4, 5):
        raise ModelError("expected a pickled model, but it is damaged: an array's state cannot be.")
    shape, dtype, fortran, content = (plain(part) for part in state[-4:])
    return array_of(content, dtype, shape, fortran)


def array_of(content: Any, dtype: Any, shape: Any, order: Any) -> Any:
    """Return an array of bytes, or of a list of objects; inert if its type is unsupported."""
    if isinstance(dtype, Record):
        return Record(Global("numpy", "ndarray"), (shape, dtype, order, content))
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return arrays.of_objects(content, shape)
    return arrays.from_bytes(content, dtype, shape, order)


def _scalar(function: Global, args: tuple[Any, ...]) -> Any:
    if len(args) != 2 or isinstance(args[0], Record):
        return Record(function, args)
    return arrays.scalar(*args)


def _from_buffer(function: Global, args: tuple[Any, ...]) -> Any:
    if not 4 <= len(args) <= 5 or isinstance(args[1], Record):
        return Record(function, args)
    content, dtype, shape, order = args[:4]
    axes = args[4] if len(args) == 5 else None
    array = arrays.from_bytes(content, dtype, shape, order)
    if order != "K" or axes is None:
        return array
    axes = arrays.checked_shape(axes)
    if sorted(axes) != list(range(array.ndim)):
        raise ModelError("expected a pickled model, but it is damaged: an array's axes cannot be.")
    return array.transpose(axes)


def _encode(function: Global, args: tuple[Any, ...]) -> Any:
    if len(args) == 2 and isinstance(args[0], str) and args[1] in LATIN:
        return args[0].encode("latin1")
    return Record(function, args)


def _bytes(function: Global, args: tuple[Any, ...]) -> Any:
    if not args:
        return b""
    if len(args) == 1 and isinstance(args[0], (bytes, bytearray, memoryview)):
        return args[0]
    if len(args) == 2 and isinstance(args[0], str) and args[1] in LATIN:
        return args[0].encode("latin1")
    return Record(function, args)


def _complex(function: Global, args: tuple[Any, ...]) -> Any:
    if 0 < len(args) <= 2 and all(isinstance(part, (int, float)) for part in args):
        return complex(*args)
    return Record(function, args)


def _dict(function: Global, args: tuple[Any, ...]) -> Any:
    """Return an ordered dictionary; an inert record if its pairs are an argument."""
    return Record(function, args) if args else {}


def _default_dict(function: Global, args: tuple[Any, ...]) -> Any:
    # The factory of defaults is a name; no front end needs the defaults.
    return {} if len(args) <= 1 else Record(function, args)


def _set(function: Global, args: tuple[Any, ...]) -> Any:
    """Return a set of protocols before 4 as the list of its members."""
    if not args:
        return []
    return args[0] if len(args) == 1 and isinstance(args[0], list) else Record(function, args)


def _reconstructor(function: Global, args: tuple[Any, ...]) -> Any:
    """Return an object of protocols 0 and 1: its class, and a base class that stores something."""
    return Record(args[0], args[2:]) if len(args) == 3 else Record(function, args)


def _new_object(function: Global, args: tuple[Any, ...]) -> Any:
    return Record(args[0], args[1:]) if args else Record(function, args)


CALLS: dict[tuple[str, str], Callable[[Global, tuple[Any, ...]], Any]] = {
    ("numpy", "dtype"): _dtype,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "complex"): _complex,
    ("builtins", "set"): _set,
    ("builtins", "frozenset"): _set,
    ("collections", "OrderedDict"): _dict,
    ("collections", "defaultdict"): _default_dict,
    ("copyreg", "_reconstructor"): _reconstructor,
    ("copyreg", "__newobj__"): _new_object,
}
"""The names whose calls give values, by functions of this module."""
