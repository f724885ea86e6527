"""`hbtvm.graph.text.Vectorize` as plain values for packages; its arrays are members of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph.characters import Accents, Characters
from hbtvm.graph.table import Table
from hbtvm.graph.text import Analyzer, Form, Kind, Stage, StageKind, Terms, Vectorize
from hbtvm.graph.values_json import Check, boolean, choice, items, text, whole, write

KIND = "vectorize"

Add = Callable[[np.ndarray], str]
"""Takes an array; gives the name of its member."""

_DTYPES = ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool")

_ANALYZER: Mapping[str, Check] = {
    "kind": choice(get_args(Kind)),
    "lowercase": boolean,
    "accents": lambda data: None if data is None else choice(get_args(Accents))(data),
    "token": text,
    "least": whole,
    "whole": boolean,
    "shortest": whole,
    "longest": whole,
    "stop_words": items(text),
    "encoding": text,
    "decode_error": choice(("strict", "ignore", "replace")),
    "form": choice(get_args(Form)),
    "separator": text,
}


def to_json(operation: Vectorize, add: Add | None) -> dict[str, Any]:
    """Return what an operation is, but for the column that it reads.

    Raises
    ------
    PackageError
        If there is nothing to keep its arrays.
    """
    if add is None:
        raise PackageError("can't pack a vectorizer without a place for its arrays.")
    vocabulary, weight = operation.vocabulary, operation.weight
    return {
        "analyzer": {name: write(getattr(operation.analyzer, name)) for name in _ANALYZER},
        "characters": _arrays(operation.characters, add),
        "vocabulary": None if vocabulary is None else _arrays(vocabulary, add),
        "hashed": operation.hashed,
        "alternate_sign": operation.alternate_sign,
        "stages": [
            {"kind": stage.kind, "values": None if stage.values is None else add(stage.values)}
            for stage in operation.stages
        ],
        "weight": None if weight is None else add(weight),
        "dtype": operation.dtype,
    }


def from_json(data: Mapping[str, Any], inputs: Table, tables: Mapping[str, np.ndarray]) -> Vectorize:
    """Return the operation whose `to_json` is given, checked.

    Parameters
    ----------
    inputs
        The column that it reads.
    tables
        The members by name.

    Raises
    ------
    ValueError
        If the values make no sense.
    """
    given = _named(data, [one.name for one in fields(Vectorize) if one.name != "inputs"])
    analyzer = _named(given["analyzer"], list(_ANALYZER))

    def array(name: Any) -> np.ndarray | None:
        if name is None:
            return None
        if not isinstance(name, str) or name not in tables:
            raise ValueError(f"the array {name!r:.100} is not there")
        return tables[name]

    def parts(cls: Any, one: Any) -> Any:
        found = _named(one, [field.name for field in fields(cls)])
        made = {name: array(member) for name, member in found.items()}
        if any(value is None for value in made.values()):
            raise ValueError(f"arrays of {cls.__name__} are not there")
        return cls(**made)

    if not isinstance(given["stages"], list):
        raise ValueError(f"stages are {given['stages']!r:.100}")
    stages = []
    for one in given["stages"]:
        stage = _named(one, ["kind", "values"])
        stages.append(Stage(choice(get_args(StageKind))(stage["kind"]), array(stage["values"])))
    return Vectorize(
        inputs,
        Analyzer(**{name: read(analyzer[name]) for name, read in _ANALYZER.items()}),
        parts(Characters, given["characters"]),
        None if given["vocabulary"] is None else parts(Terms, given["vocabulary"]),
        whole(given["hashed"]),
        boolean(given["alternate_sign"]),
        tuple(stages),
        array(given["weight"]),
        choice(_DTYPES)(given["dtype"]),
    ).validate()


def _arrays(value: Any, add: Add) -> dict[str, str]:
    return {field.name: add(getattr(value, field.name)) for field in fields(value)}


def _named(data: Any, names: list[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict) or set(data) != set(names):
        raise ValueError(f"expected the fields {', '.join(sorted(names))}, got {data!r:.100}")
    return data
