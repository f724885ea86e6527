"""Matching of a table's columns to a model's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.words.similar import misspelt


def positions(
    names: Sequence[str], spec: InputSpec, read: Sequence[int], without: Collection[str]
) -> list[int]:
    """Return the positions of the columns that a model reads.

    A model with column names finds its columns by name, in any order and among others. For other models, all
    columns are features, in their order.

    `names`: the table's column names.
    `spec`: the model's input.
    `read`: indices of the model's columns that it reads.
    `without`: names of columns that are not features: ids, labels.
    Raises `InputError` if a column is missing or duplicated, or the number of columns is wrong.
    """
    expected = spec.feature_names
    # LightGBM names unnamed columns, and replaces spaces by underscores.
    if expected is None or expected == tuple(f"Column_{i}" for i in range(spec.n_features)):
        features = [i for i, name in enumerate(names) if name not in without]
        if len(features) != spec.n_features:
            raise InputError(
                f"there are {len(features)} columns, the model has {spec.n_features} features, known by "
                "their order alone."
            )
        return [features[i] for i in read]
    at: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        at.setdefault(name.replace(" ", "_"), []).append(i)
    matched = []
    for i in read:
        places = at.get(expected[i].replace(" ", "_"), [])
        if not places:
            lacking = [expected[j] for j in read if expected[j].replace(" ", "_") not in at]
            hint = misspelt(lacking[0], [name for name in names if name not in expected]) or "."
            raise InputError(f"{columns(lacking)} of the model is missing; there are {some(names)}{hint}")
        if len(places) > 1:
            raise InputError(f"column {expected[i]!r} appears twice.")
        matched.append(places[0])
    return matched


def columns(names: Sequence[str]) -> str:
    """Return columns in words."""
    return f"column {names[0]!r}" + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def some(names: Sequence[str]) -> str:
    """Return the first of many names, in words."""
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def category_types(schema: Any) -> tuple[set[str], set[str]]:
    """Return the names of category columns in an Arrow schema, and of text columns.

    Parquet keeps numeric categories only in the metadata that pandas writes.
    """
    noted = (schema.pandas_metadata or {}).get("columns", [])
    typed = {str(column.get("field_name")) for column in noted if column.get("pandas_type") == "categorical"}
    typed |= {field.name for field in schema if str(field.type).startswith("dictionary")}
    words = {field.name for field in schema if str(field.type) in ("string", "large_string", "string_view")}
    return typed, words - typed
