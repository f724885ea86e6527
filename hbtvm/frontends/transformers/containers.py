"""Pipelines of transformers, transformers side by side, and wrappers of estimators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.transformers.dispatch import apply, names_in, require_width
from hbtvm.frontends.transformers.typed import unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Arithmetic
from hbtvm.graph.columns.table import Table, side_by_side

_SAMPLERS = [["imblearn", name] for name in ("over_sampling", "under_sampling", "combine")]


def steps_of(record: Record, where: Where) -> Iterator[tuple[str, Record, Where]]:
    """Return name, estimator and place of each step of a pipeline that changes rows."""
    for part in record.sequence("steps"):
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise where.damaged("a step is not a pair of a name and an estimator.")
        name, estimator = part
        if estimator is None or estimator == "passthrough":
            continue
        if not isinstance(estimator, Record):
            raise where.damaged(f"step {str(name)[:40]!r} is not an estimator.")
        if is_sampler(estimator):
            continue
        yield str(name), estimator, where.child(name)


def is_sampler(estimator: Record) -> bool:
    """Return whether an estimator of imbalanced-learn only resamples training rows."""
    module = estimator.cls.module if isinstance(estimator.cls, Global) else ""
    return module.split(".")[:2] in _SAMPLERS or estimator.is_a("imblearn", "FunctionSampler")


def pipeline(record: Record, table: Table, where: Where) -> Table:
    """Apply the steps of a ``Pipeline`` in order."""
    for _, estimator, place in steps_of(record, where):
        table = apply(estimator, table, place)
    return table


def last_step(
    record: Record, table: Table, where: Where, predicts: bool
) -> tuple[Record, Table, Where] | None:
    """Return the last step of a pipeline, with the table that it reads; None without steps."""
    steps = list(steps_of(record, where))
    for _, estimator, place in steps[:-1]:
        table = apply(estimator, table, place)
    return (steps[-1][1], table, steps[-1][2]) if steps else None


def first_step(record: Record, where: Where) -> list[Record]:
    """Return the step of a pipeline that reads the rows."""
    return [estimator for _, estimator, _ in steps_of(record, where)][:1]


def unwrapped(record: Record, where: Where) -> Record:
    """Return a search's best estimator, or the estimator of a ``FrozenEstimator``.

    Raises `UnsupportedModel` if a search has none, as with ``refit=False``.
    """
    if record.kind == "FrozenEstimator":
        return record.record("estimator")
    if not isinstance(record.get("best_estimator_", None), Record):
        reason = "was made with refit=False" if record.get("refit", True) is False else "is not fitted"
        raise UnsupportedModel(f"{where.of(record).step} {reason}, so it has no best_estimator_ to compile.")
    return record.record("best_estimator_")


def wrapped(record: Record, table: Table, where: Where) -> Table:
    """Apply the inner estimator of a search or a ``FrozenEstimator``."""
    return apply(unwrapped(record, where), table, replace(where, kind=""))


def last_wrapped(record: Record, table: Table, where: Where, predicts: bool) -> tuple[Record, Table, Where]:
    """Return the inner estimator of a search or a ``FrozenEstimator``, with the table that it reads."""
    # Counts nesting depth, which stops a file that wraps itself; errors show the outer path.
    return unwrapped(record, where), table, replace(where.child("best"), path=where.path)


def parts_of_union(record: Record, where: Where) -> list[Record]:
    """Return the transformers of a ``FeatureUnion``."""
    parts = [part[1] for part in record.sequence("transformer_list") if isinstance(part, (tuple, list))]
    return [part for part in parts if isinstance(part, Record)]


def feature_union(record: Record, table: Table, where: Where) -> Table:
    """``FeatureUnion``: the results of transformers of all columns, side by side."""
    parts, names = [], []
    named = Table(unified(table).columns, table.sparse, names_in(record, table))
    weights = _weights(record, where)
    for part in record.sequence("transformer_list"):
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise where.damaged("a transformer is not a pair of a name and an estimator.")
        name, estimator = part
        if estimator is None or estimator == "drop":
            continue
        output = _transformed(estimator, named, where.child(name))
        parts.append(_weighted(output, weights.get(name)))
        names.append(str(name))
        require_width(sum(map(len, parts)), where)
    kinds = {part.sparse for part in parts}
    sparse = True if True in kinds else None if None in kinds else False
    return side_by_side(parts, sparse, _names(record, parts, names, where))


def column_transformer(record: Record, table: Table, where: Where) -> Table:
    """``ColumnTransformer``: the results of transformers of some columns, side by side."""
    if "_transformer_to_input_indices" not in record:
        raise where.unsupported("was fitted by a scikit-learn before 1.0, which is not supported.")
    indices = record.get("_transformer_to_input_indices")
    if not isinstance(indices, dict):
        raise where.damaged("it does not say which columns its transformers take.")
    named = Table(unified(table).columns, table.sparse, names_in(record, table))
    weights = _weights(record, where)
    parts, names, taken = [], [], 0
    for part in record.sequence("transformers_"):
        if not isinstance(part, (tuple, list)) or len(part) != 3:
            raise where.damaged("a transformer is not a name, an estimator and columns.")
        name, estimator = part[:2]
        if estimator == "drop":
            continue
        chosen = _indices(indices.get(name, part[2]), len(table), where.child(name))
        if not chosen:
            continue
        # A few bytes may name the same long list again and again.
        taken += len(chosen)
        require_width(taken // 16, where)
        output = _transformed(estimator, named.select(chosen), where.child(name))
        parts.append(_weighted(output, weights.get(name)))
        names.append(str(name))
        require_width(sum(map(len, parts)), where)
    sparse = bool(record.get("sparse_output_", False))
    return side_by_side(parts, sparse, _names(record, parts, names, where))


def _transformed(estimator: Any, table: Table, where: Where) -> Table:
    if isinstance(estimator, str) and estimator == "passthrough":
        return table
    if not isinstance(estimator, Record):
        raise where.damaged("it is not an estimator.")
    return apply(estimator, table, where)


def _indices(chosen: Any, width: int, where: Where) -> list[int]:
    # The rest of the columns is a list of a class of scikit-learn's.
    if isinstance(chosen, Record) and chosen.kind == "_RemainderColsList":
        chosen = chosen.get("data")
    if isinstance(chosen, list) and not chosen:
        return []
    indices: list[int] = as_array(chosen, f"the columns of {where.step}", "iu", 1).tolist()
    if any(not 0 <= i < width for i in indices):
        raise where.damaged("it takes a column that does not exist.")
    return indices


def _weights(record: Record, where: Where) -> dict[Any, Any]:
    weights = record.get("transformer_weights", None) or {}
    if not isinstance(weights, dict):
        raise where.damaged("its transformer_weights are not a dictionary.")
    return weights


def _weighted(table: Table, weight: Any) -> Table:
    if weight is None:
        return table
    # Python's numbers take on the type of the rows, numpy's float64 does not.
    step = Arithmetic("multiply", float(weight), cast=not isinstance(weight, np.floating))
    table = unified(table)
    return replace(table, columns=tuple(column.then(step) for column in table.columns))


def _names(record: Record, parts: list[Table], names: list[str], where: Where) -> tuple[str, ...] | None:
    """Return the names of ``get_feature_names_out``; None if it fails, or would call a function."""
    if any(part.names is None for part in parts):
        return None
    verbose = record.get("verbose_feature_names_out", True)
    if isinstance(verbose, (Global, Record)):
        return None
    result: list[str] = []
    for part, step in zip(parts, names, strict=True):
        for name in part.names or ():
            if isinstance(verbose, str):
                result.append(verbose.replace("{feature_name}", name).replace("{transformer_name}", step))
            else:
                result.append(f"{step}__{name}" if verbose else name)
    if not verbose and max(Counter(result).values(), default=1) > 1:
        return None
    return tuple(result)
