"""A recursive model from a file's JSON, with strict types: ``true`` is no number, a number no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hbtvm.recursive.cell import Cell, Input, Layer, Readout, RecursiveModel, Value
from hbtvm.runtime.recursive.vocabulary import Vocabulary

T = TypeVar("T")


def model_from(document: Any, arrays: Sequence[np.ndarray]) -> RecursiveModel:
    """The model that a document describes; whether its parts fit each other is not checked.

    Raises
    ------
    KeyError, TypeError, ValueError
        If something is missing, or of a wrong type.
    """
    cell, readout = _is(dict, document["cell"]), _is(dict, document["readout"])

    def array(number: Any) -> np.ndarray:
        if not 0 <= _is(int, number) < len(arrays):
            raise ValueError(f"there is no array {number}")
        found: np.ndarray = arrays[number]
        return found

    def numbers(given: Any) -> dict[str, int]:
        return {name: _is(int, one) for name, one in _is(dict, given).items()}

    leaf = cell["leaf"]
    made = Cell(
        name=_is(str, cell["name"]),
        children=None if cell["children"] is None else _is(int, cell["children"]),
        states={name: _shape(shape) for name, shape in _is(dict, cell["states"]).items()},
        inputs={name: _input(_is(dict, one)) for name, one in _is(dict, cell["inputs"]).items()},
        weights={name: array(number) for name, number in _is(dict, cell["weights"]).items()},
        values=tuple(_value(_is(dict, one)) for one in _is(list, cell["values"])),
        inner=numbers(cell["inner"]),
        leaf=None if leaf is None else numbers(leaf),
    )
    layers = [
        Layer(
            _is(str, one["op"]),  # type: ignore[arg-type]
            None if one["weight"] is None else array(one["weight"]),
            None if one["bias"] is None else array(one["bias"]),
        )
        for one in _is(list, document["layers"])
    ]
    over = _is(str, readout["over"])
    classes = _is(list, document["classes"])
    if not all(type(one) in (int, str) for one in classes):
        raise TypeError("classes are no whole numbers or texts")
    return RecursiveModel(
        made,
        Readout(_is(str, readout["state"]), over),  # type: ignore[arg-type]
        tuple(layers),
        tuple(classes),
        Vocabulary.from_json(document["vocabulary"]) if "vocabulary" in document else None,
    )


def _value(given: Mapping[str, Any]) -> Value:
    known = {"op", "of", "shape", "per_child", "name", "start", "stop", "constant"}
    if not set(given) <= known:
        raise ValueError(f"a value has {sorted(set(given) - known)}")
    constant = given.get("constant", 0.0)
    if type(constant) not in (int, float):
        raise TypeError(f"a constant is {constant!r:.100}")
    return Value(
        op=_is(str, given["op"]),
        of=tuple(_is(int, one) for one in _is(list, given.get("of", []))),
        shape=_shape(given.get("shape", [])),
        per_child=_is(bool, given.get("per_child", False)),
        name=_is(str, given.get("name", "")),
        start=_is(int, given.get("start", 0)),
        stop=_is(int, given.get("stop", 0)),
        constant=float(constant),
    )


def _input(given: Mapping[str, Any]) -> Input:
    kind = _is(str, given["kind"])
    return Input(kind, _is(int, given["size"]), _is(bool, given["optional"]))  # type: ignore[arg-type]


def _shape(given: Any) -> tuple[int, ...]:
    return tuple(_is(int, one) for one in _is(list, given))


def _is(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r:.100}")
    return value
