"""Convert output specifications to plain values and back, for packages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from hbtvm.graph import inverse

_LATER: Mapping[str, Any] = {
    "keeps_axis": False,
    "inverse": [],
    "container": "array",
    "selects": [],
    "slices": {},
}
"""Fields that older specifications lack, and what they mean there."""


def write(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an `OutputSpec` (`hbtvm.graph.output`) as plain values."""
    result = dict(fields)
    result["outputs"] = list(fields["outputs"])
    result["classes"] = [_labels_to_json(labels) for labels in fields["classes"]]
    result["inverse"] = inverse.listed(fields["inverse"])
    result["selects"] = list(fields["selects"])
    result["slices"] = {name: list(columns) for name, columns in fields["slices"].items()}
    for name, usual in _LATER.items():
        # Left out where it says nothing: older releases read such specifications, too.
        if result[name] == usual:
            del result[name]
    return result


def read(data: dict[str, Any], names: set[str], choices: Mapping[str, Collection[Any]]) -> dict[str, Any]:
    """Return the fields that `write` was given.

    Parameters
    ----------
    names
        Names of all fields.
    choices
        Allowed values, by field; other fields may have any.

    Raises
    ------
    ValueError
        If a field is missing, unknown or has a value that is not known.
    """
    data = {**_LATER, **data}
    if set(data) != names:
        raise ValueError(f"output specification: fields {sorted(names ^ set(data))} are missing or unknown")
    for name, allowed in choices.items():
        given = data[name] if name == "outputs" else [data[name]]
        if not all(one in allowed for one in given):
            raise ValueError(f"output specification: {name} is {data[name]!r}")
    if not isinstance(data["keeps_axis"], bool):
        raise ValueError(f"output specification: keeps_axis is {data['keeps_axis']!r}")
    if not isinstance(data["n_outputs"], int) or data["n_outputs"] < 1:
        raise ValueError(f"output specification: n_outputs is {data['n_outputs']!r}")
    for name in ("scale", "raw_factor", "offset"):
        if not isinstance(data[name], (int, float)):
            raise ValueError(f"output specification: {name} is {data[name]!r}")
    named = data["classes"] or data["label_dtype"] is not None
    if data["label_rule"] not in (None, "side") and not named:
        raise ValueError("output specification: its labels have neither classes nor a type")
    values = dict(data)
    values["outputs"] = tuple(data["outputs"])
    values["inverse"] = inverse.checked(data["inverse"])
    values["selects"] = _selects(data)
    values["slices"] = _slices(data)
    values["classes"] = tuple(_labels_from_json(labels) for labels in data["classes"])
    return values


def _selects(data: dict[str, Any]) -> tuple[int, ...]:
    """The columns that a selector keeps, checked."""
    kept = data["selects"]
    if not isinstance(kept, list) or not all(type(one) is int and one >= 0 for one in kept):
        raise ValueError(f"output specification: selects is {kept!r:.100}")
    if kept and len(kept) != data["n_outputs"]:
        raise ValueError(f"output specification: {len(kept)} columns are selected, not {data['n_outputs']}")
    return tuple(kept)


def _slices(data: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The columns of each output, checked."""
    slices = data["slices"]
    names = ("index", "proba", "pairs", "decision", "response", "score", "finite")
    if not isinstance(slices, dict) or (data["transform"] == "columns") != bool(slices):
        raise ValueError(f"output specification: slices are {slices!r:.200}")
    for name, columns in slices.items():
        good = isinstance(columns, list) and len(columns) == 2 and all(type(one) is int for one in columns)
        if name not in names or not good or not 0 <= columns[0] < columns[1] <= data["n_outputs"]:
            raise ValueError(f"output specification: the slice {name!r:.40} is {columns!r:.100}")
    targets, shares = slices.get("index", [0, 1]), slices.get("proba")
    classes = [len(one.get("values", ())) for one in data["classes"]]
    if (
        slices
        and classes
        and (targets[1] - targets[0] != len(classes) or (shares and shares[1] - shares[0] != sum(classes)))
    ):
        raise ValueError(f"output specification: slices are {slices!r:.200} for {len(classes)} targets")
    pairs = slices.get("pairs")
    if pairs and (len(classes) != 1 or pairs[1] - pairs[0] != classes[0] * (classes[0] - 1) // 2):
        raise ValueError(f"output specification: pairs are {pairs!r} of {classes} classes")
    return {name: (columns[0], columns[1]) for name, columns in slices.items()}


def _labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    values = [v.item() if isinstance(v, np.generic) else v for v in labels.tolist()]
    return {"dtype": labels.dtype.str, "values": values}


def _labels_from_json(data: dict[str, Any]) -> np.ndarray:
    try:
        labels = np.array(data["values"], dtype=np.dtype(data["dtype"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"output specification: classes are {data!r}") from error
    if labels.ndim != 1:
        raise ValueError(f"output specification: classes are {data!r}")
    return labels
