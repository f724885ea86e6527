"""Values at which a fitted model's answer changes: thresholds, knots, bin edges, means, categories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

_PER_COLUMN = 16
"""Edges of a column that are kept."""

_MEMBERS = ("steps", "transformer_list")
"""Attributes without underscore that hold fitted estimators."""

_SCALARS = ("threshold", "binarize", "fill_value", "missing_values")


def parts(model: Any) -> Iterator[Any]:
    """Yield a fitted model and all fitted estimators in it, outermost first."""
    pending, seen = [model], set[int]()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
            pending += list(np.ravel(value)) if isinstance(value, np.ndarray) else list(value)
        elif hasattr(value, "get_params") and not isinstance(value, type):
            yield value
            pending += [one for name, one in vars(value).items() if name.endswith("_") or name in _MEMBERS]


def has_trees(model: Any) -> bool:
    """Whether a tree is part of the model."""
    return any(hasattr(part, "tree_") or hasattr(part, "_predictors") for part in parts(model))


def edges(model: Any, features: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return, by column of the rows, some finite float64 values at which answers may change."""
    columns: list[list[Any]] = [[] for _ in range(features)]
    for part in parts(model):
        before = steps_before(model, part)
        own: list[list[Any]] = [[] for _ in range(features)]
        _of_part(part, own)
        mapped = _inverse(before, own) if before else own
        for column, values in zip(columns, mapped, strict=True):
            column += values
    result = []
    for values in columns:
        flat = np.unique(np.array([v for v in values if np.isfinite(v) and abs(v) < 1e300], np.float64))
        result.append(rng.choice(flat, min(len(flat), _PER_COLUMN), replace=False) if len(flat) else flat)
    return result


def steps_before(model: Any, part: Any) -> list[Any]:
    """The steps between rows and the innermost step of a pipeline that holds `part`."""
    if isinstance(model, Pipeline):
        for at, (_, step) in enumerate(model.steps):
            if any(one is part for one in parts(step)):
                return [one for _, one in model.steps[:at] if one not in ("passthrough", None)]
    for one in parts(model):
        if isinstance(one, Pipeline) and one is not model and any(p is part for p in parts(one)):
            return steps_before(one, part) if part is not one else []
    return []


def _inverse(steps: list[Any], columns: list[list[Any]]) -> list[list[Any]]:
    """Values behind steps as values in front of them; none where a step has no inverse."""
    longest = max(map(len, columns))
    if not longest:
        return columns
    rows = np.zeros((longest, len(columns)))
    for at, values in enumerate(columns):
        rows[: len(values), at] = values
    try:
        for step in reversed(steps):
            rows = step.inverse_transform(rows)
        return [list(rows[: len(values), at]) for at, values in enumerate(columns)]
    except Exception:
        return [[] for _ in columns]


def _of_part(part: Any, columns: list[list[Any]]) -> None:
    """Add the edges of one estimator, without those of estimators in it."""
    features = len(columns)
    tree = getattr(part, "tree_", None)
    if hasattr(tree, "threshold"):
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if 0 <= feature < features:
                columns[feature].append(threshold)
    for stage in getattr(part, "_predictors", ()):
        for one in stage:
            for node in one.nodes[~one.nodes["is_leaf"].astype(bool)]:
                if node["feature_idx"] < features:
                    columns[node["feature_idx"]].append(node["num_threshold"])
    for name, value in vars(part).items():
        if name in _SCALARS and isinstance(value, (int, float)):
            for column in columns:
                column.append(float(value))
        if not name.endswith("_"):
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and 0 < value.size < 4_000:
            if value.shape[-1] == features:
                for column, values in zip(columns, value.reshape(-1, features).T, strict=True):
                    column += list(values.astype(np.float64))
            elif features == 1:
                columns[0] += list(np.ravel(value).astype(np.float64))
        elif _length(value) == features:
            for column, values in zip(columns, value, strict=True):
                if isinstance(values, (np.ndarray, int, float)) and np.asarray(values).dtype.kind in "fiu":
                    column += list(np.ravel(values).astype(np.float64))
        elif isinstance(value, list) and name == "bsplines_":
            for column, spline in zip(columns, value, strict=False):
                column += list(np.ravel(spline.t))


def near(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values and their two neighbours in a float type."""
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    kind = cast.dtype.type
    return np.concatenate([cast, np.nextafter(cast, kind(-np.inf)), np.nextafter(cast, kind(np.inf))])


def _length(value: Any) -> int:
    """Items of a list or array; 0 of anything else."""
    return len(value) if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim) else 0
