"""Inert values for the objects of a pickle: names, arguments and states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.words.printable import shown

_MISSING: Any = object()


class Global:
    """The name of a class or a function, which is never looked up.

    `module`, `name`: as in the file; the name may have dots.
    """

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def library(self) -> str:
        """The package that the module belongs to."""
        return self.module.partition(".")[0]


@dataclass(eq=False, slots=True)
class ObjectArray:
    """A numpy array of objects."""

    shape: tuple[int, ...]  # its product is the number of items
    items: list[Any]  # any values of the pickle, in the array's order

    def array(self) -> np.ndarray:
        """Return the items as a numpy array of objects.

        Raises `ModelError` for items that are not plain values, as arrays must not nest.
        """
        result = np.empty(len(self.items), object)
        for index, item in enumerate(self.items):
            if item is not None and not isinstance(item, (str, bytes, int, float, complex, np.generic)):
                raise ModelError(f"an array holds {kind_of(item)}, expected a number or a string.")
            result[index] = item
        return result.reshape(self.shape)


class Record:
    """An object of a class: the calls by which the file creates it, which are never made.

    The typed accessors raise a `ModelError` that names the object and the attribute if a damaged file has a
    value of another type.

    `cls`: the class or function that the file calls, usually a `Global`.
    `args`, `kwargs`: the arguments of the call.
    `state`: the object's state; usually a dictionary of attributes.
    `items`, `pairs`: values to append to it, or to store by key.
    """

    __slots__ = ("_attributes", "args", "cls", "items", "kwargs", "pairs", "state")

    def __init__(self, cls: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.state: Any = None
        self.items: list[Any] | None = None
        self.pairs: list[Any] | None = None
        self._attributes: dict[str, Any] | None = None

    @property
    def library(self) -> str:
        """The package of the class; empty if it has no name."""
        return self.cls.library if isinstance(self.cls, Global) else ""

    @property
    def kind(self) -> str:
        """The class's name without the module, for messages."""
        return shown(self.cls.name) if isinstance(self.cls, Global) else "object without a class"

    def is_a(self, library: str, *names: str) -> bool:
        """Return whether the class belongs to a library, in any module."""
        return isinstance(self.cls, Global) and self.cls.library == library and self.cls.name in names

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the state, from ``__dict__`` and ``__slots__``."""
        if self._attributes is None:
            # A pair holds the states of __dict__ and of __slots__.
            state = self.state
            parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
            attributes: dict[str, Any] = {}
            for part in parts:
                if isinstance(part, dict):
                    attributes.update(part)
                elif part is not None:
                    raise ModelError(f"the {self.kind} is damaged: its state is {kind_of(part)}.")
            self._attributes = attributes
        return self._attributes

    def __contains__(self, name: str) -> bool:
        return name in self.attributes

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """Return an attribute, or the default if it is missing."""
        value = self.attributes.get(name, default)
        if value is _MISSING:
            raise ModelError(f"the {self.kind} is damaged: it has no {shown(name)!r}.")
        return value

    def version(self) -> tuple[int, ...]:
        """Return the release of scikit-learn that wrote the object, such as ``(1, 4)``; huge if unknown."""
        return version_of(self.attributes.get("_sklearn_version"))

    def number(self, name: str, default: Any = _MISSING) -> float:
        """Return a finite number."""
        value = self.get(name, default)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
            raise self._unfit(name, value, "a number")
        try:
            result = float(value)
        except (OverflowError, TypeError) as error:
            raise self._unfit(name, value, "a number") from error
        if not math.isfinite(result):
            raise self._unfit(name, value, "a finite number")
        return result

    def whole(self, name: str, least: int = 0, default: Any = _MISSING) -> int:
        """Return a whole number from `least` to 2³¹ - 1."""
        value = self.get(name, default)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise self._unfit(name, value, "a whole number")
        if not least <= int(value) < 1 << 31:
            raise self._unfit(name, value, f"a whole number from {least} to {(1 << 31) - 1}")
        return int(value)

    def text(self, name: str, default: Any = _MISSING) -> str:
        """Return a string."""
        value = self.get(name, default)
        if not isinstance(value, str):
            raise self._unfit(name, value, "a string")
        return str(value)

    def array(self, name: str, kinds: str = "biuf", ndim: int | None = None) -> np.ndarray:
        """Return an array of some kinds (numpy's letters), in native byte order.

        Numbers and lists of them are arrays of zero and one dimension; arrays of objects (``O`` in `kinds`)
        hold plain values only.
        """
        return as_array(self.get(name), f"{name!r} of the {self.kind}", kinds, ndim)

    def record(self, name: str) -> Record:
        """Return another object."""
        value = self.get(name)
        if not isinstance(value, Record):
            raise self._unfit(name, value, "an object")
        return value

    def sequence(self, name: str) -> list[Any]:
        """Return the values of a list, a tuple, or an array of objects."""
        value = self.get(name)
        if isinstance(value, ObjectArray):
            return value.items
        if not isinstance(value, (list, tuple)):
            raise self._unfit(name, value, "a list")
        return list(value)

    def records(self, name: str) -> list[Record]:
        """Return the objects in a list, a tuple, or an array of objects."""
        values = self.sequence(name)
        for value in values:
            if not isinstance(value, Record):
                raise self._unfit(name, value, "objects alone in it")
        return values

    def _unfit(self, name: str, value: Any, expected: str) -> ModelError:
        actual = shown(value, 40) if isinstance(value, (bool, int, float)) else kind_of(value)
        return ModelError(
            f"the {self.kind} is damaged: expected {expected} as {shown(name)!r}, got {actual}."
        )


def fitted_booster(estimator: Record) -> Record:
    """Return the booster of an estimator of XGBoost or LightGBM.

    Raises `UnsupportedModel` if the estimator is not fitted.
    """
    if not isinstance(estimator.get("_Booster", None), Record):
        raise UnsupportedModel(f"the {estimator.kind} is not fitted; hbtvm compiles trained models.")
    return estimator.record("_Booster")


def kind_of(value: Any) -> str:
    """Describe a value's type for messages."""
    if isinstance(value, Record):
        return f"a {value.kind}"
    if isinstance(value, Global):
        return f"the name {shown(value.module, 40)}.{shown(value.name, 40)}"
    if isinstance(value, ObjectArray):
        return "an array of objects"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype.name if value.dtype.names is None else 'records'}"
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def as_array(value: Any, title: str, kinds: str = "biuf", ndim: int | None = None) -> np.ndarray:
    """Return a value as an array, as `Record.array`; `title` describes it in errors."""
    if isinstance(value, ObjectArray):
        value = value.array()
    elif isinstance(value, (list, tuple)):
        if not all(isinstance(v, (bool, int, float, str, np.generic)) for v in value):
            raise ModelError(f"expected plain values in {title}.")
        value = np.array(value)
    elif isinstance(value, (bool, int, float, str, np.generic)):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise ModelError(f"expected an array as {title}, got {kind_of(value)}.")
    if value.dtype.kind not in kinds:
        raise ModelError(f"expected other values in {title} than {kind_of(value)}.")
    if ndim is not None and value.ndim != ndim:
        raise ModelError(f"expected {ndim} dimensions in {title}, got {value.ndim}.")
    array: np.ndarray = value
    if array.dtype.names is None and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def version_of(text: Any) -> tuple[int, ...]:
    """Return the first two numbers of a version; huge numbers if it is not a version."""
    words = text.split(".")[:2] if isinstance(text, str) and len(text) < 40 else []
    if len(words) == 2 and all(word.isascii() and word.isdigit() for word in words):
        return tuple(int(word) for word in words)
    return (1 << 30, 0)
