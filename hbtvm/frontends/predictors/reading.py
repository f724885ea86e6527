"""Checked attributes for front ends of predictors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.where import Where

NO_LABEL = float(1 << 30)
"""The position of the label of a row without a label: looking it up is an error."""


def floats(record: Record, name: str, where: Where, *shape: int | None) -> np.ndarray:
    """Return an attribute of finite numbers as float64, of a known shape (None for any extent).

    Raises `ModelError` for other values.
    """
    return floats_of(record.get(name), name, where, *shape)


def floats_of(value: Any, name: str, where: Where, *shape: int | None) -> np.ndarray:
    """Do as `floats` for a value; `name` is for errors."""
    values = as_array(value, f"{name!r} of {where.step}", "biuf", len(shape) or None).astype(np.float64)
    sizes = zip(values.shape, shape, strict=False)
    if any(wanted is not None and size != wanted for size, wanted in sizes):
        raise where.damaged(f"its {name} has the shape {values.shape}.")
    if not np.isfinite(values).all():
        raise where.damaged(f"a number of its {name} is not finite.")
    return values


def classes_of(record: Record, name: str = "classes_") -> np.ndarray:
    """Return the labels of an estimator with one target."""
    return labels_of(record.get(name))


def choice(record: Record, name: str, where: Where, choices: tuple[str, ...]) -> str:
    """Return a parameter that is one of some strings.

    Raises `UnsupportedModel` for other strings, and for the user's objects.
    """
    value = record.get(name)
    if not isinstance(value, str):
        raise where.unsupported(f"has a custom object as its {name}; supported are {', '.join(choices)}.")
    if value not in choices:
        raise where.unsupported(f"has {value!r:.40} as its {name}; supported are {', '.join(choices)}.")
    return value
