"""``IterativeImputer``: missing values of one column after another, predicted from all others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.transformers.dispatch import names_in, read_predictor
from hbtvm.frontends.transformers.imputers.simple import indicators, simple_imputer, statistics
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import missing_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import NA, IsMissing, is_nan
from hbtvm.graph.columns.table import Column, Made, Table, side_by_side
from hbtvm.graph.networks.affine import Affine, affine_of
from hbtvm.graph.networks.network import Computed, TableRows, leaves
from hbtvm.operators.base import Node
from hbtvm.operators.imputation import Imputation
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, select

_MOST_LINEAR = 1 << 16  # steps of linear models: a table has a row of weights for each of them
_MOST_OTHERS = 32  # steps of other models, each of which needs a separate operator or kernel


@dataclass(frozen=True)
class _Step:
    """An entry of ``imputation_sequence_``: the imputed column, its predictors, and the estimator."""

    column: int
    others: np.ndarray
    estimator: Record
    where: Where


def iterative_imputer(record: Record, table: Table, where: Where) -> Table:
    """Read ``IterativeImputer``.

    Each row is imputed by itself. scikit-learn leaves the first guesses alone where all values of all rows
    that it is given are missing; here such a row is imputed as it is among others.
    """
    if record.get("sample_posterior", False):
        raise where.unsupported("draws random numbers (sample_posterior=True), which is not supported.")
    missing = missing_of(record, where)
    marked = missing is NA or is_nan(missing)
    number = float(missing) if isinstance(missing, int | float) else np.nan
    if not marked and np.isnan(number):
        raise where.unsupported("has missing_values that are not a number, which is not supported.")
    names = names_in(record, table)
    table = Table(accepting(unified(table), nan=marked).columns, table.sparse, names)
    first = record.record("initial_imputer_")
    filled = replace(simple_imputer(first, table, where.child("initial_imputer_")), sparse=False)
    kept, empty = _columns(record, first, len(table), where)
    if not len(filled) or len(filled) != len(kept):
        raise where.damaged(f"it fills {len(filled)} columns of {len(kept)}.")
    steps = _steps(record, len(kept), where)
    if steps:
        known = table.select(kept)
        lost = tuple(column.then(IsMissing(np.nan if marked else number)) for column in known.columns)
        mark: Node = TableRows(replace(known, columns=lost), allow_nan=marked)
        # Columns without training values keep their fill value.
        lacks: Node = apply("multiply", mark, 1.0 - empty) if empty.any() else mark
        low, high = (_limits(record, name, len(kept), where) for name in ("_min_value", "_max_value"))
        filled = _imputed(filled, lacks, steps, low, high, where)
    if not record.get("add_indicator", False):
        return filled
    marks = indicators(record.record("indicator_"), table, missing, where)
    both = None if filled.names is None or marks.names is None else filled.names + marks.names
    return replace(side_by_side((filled, marks)), names=both)


def _columns(record: Record, first: Record, width: int, where: Where) -> tuple[list[int], np.ndarray]:
    """Return the kept columns, and for each of them 1 if training lacked all values, else 0."""
    lacked = np.array([is_nan(value) for value in statistics(first, width, where)], bool)
    if "_is_empty_feature" in record:
        lacked = record.array("_is_empty_feature", "b", 1)
    if len(lacked) != width:
        raise where.damaged(f"it knows {len(lacked)} columns, but gets {width}.")
    keeps = bool(record.get("keep_empty_features", False))
    kept = [i for i in range(width) if keeps or not lacked[i]]
    return kept, lacked[kept].astype(np.float64)


def _steps(record: Record, width: int, where: Where) -> list[_Step]:
    """Return the steps in order."""
    if not record.whole("n_iter_"):
        return []
    steps = []
    for i, entry in enumerate(record.records("imputation_sequence_")):
        place = where.child(i)
        if len(entry.args) != 3 or not isinstance(entry.args[2], Record):
            raise where.damaged("an entry of its imputation_sequence_ is damaged.")
        column = int(as_array(entry.args[0], f"a column of {where.step}", "iu", 0))
        others = as_array(entry.args[1], f"the columns of {where.step}", "iu", 1).astype(np.int64)
        if not 0 <= column < width or not len(others) or not 0 <= others.min() <= others.max() < width:
            raise where.damaged("it imputes from columns that do not exist.")
        steps.append(_Step(column, others, entry.args[2], place))
    return steps


def _limits(record: Record, name: str, width: int, where: Where) -> np.ndarray:
    """Return the least or the largest value of each column; infinite if there is none."""
    values = record.array(name, "biuf", 1).astype(np.float64)
    if len(values) != width or np.isnan(values).any():
        raise where.damaged(f"its {name} has {len(values)} values for {width} columns.")
    return values


def _imputed(
    filled: Table, missing: Node, steps: list[_Step], low: np.ndarray, high: np.ndarray, where: Where
) -> Table:
    """Apply the steps to columns that are filled by first guesses.

    `missing`: not 0 where a value is missing.
    """
    if len(steps) > _MOST_LINEAR:
        raise where.unsupported(f"imputes in {len(steps):,} steps; at most {_MOST_LINEAR:,} are supported.")
    rows = TableRows(filled)
    models = _linear(filled, steps)
    if models is not None:
        column = np.array([step.column for step in steps], np.int32)
        weight = np.array([model.weight[:, 0] for model in models])
        intercept = np.array([model.offset[0] for model in models])
        output: Node = Imputation(
            rows, missing, column, weight, intercept, low[column], high[column]
        ).checked()
        return _computed(output, filled.names)
    if len(steps) > _MOST_OTHERS:
        kind = steps[0].estimator.kind
        raise where.unsupported(
            f"imputes by a {kind} in {len(steps)} steps (columns times rounds); at most {_MOST_OTHERS} are "
            "supported of models that are not linear. Set max_iter, or take a linear estimator."
        )
    state = filled
    for step in steps:
        state = _after(state, missing, step, float(low[step.column]), float(high[step.column]))
    return replace(state, names=filled.names)


def _linear(filled: Table, steps: list[_Step]) -> list[Affine] | None:
    """Return the steps' models as affine functions of all columns; None if some are not affine."""
    models = []
    for step in steps:
        table = filled.select(step.others.tolist())
        model = affine_of(_response(step, table), filled)
        if model is None:
            return None
        models.append(model)
    return models


def _response(step: _Step, table: Table) -> Node:
    response = read_predictor(step.estimator, table, step.where).outputs.get("response")
    if response is None or response.width != 1:
        raise step.where.unsupported(
            f"imputes by a {step.estimator.kind}, which is not a regressor of one target."
        )
    return response


def _after(state: Table, missing: Node, step: _Step, low: float, high: float) -> Table:
    """Return the columns after a step."""
    rows, j = TableRows(state), step.column
    value = _response(step, state.select(step.others.tolist()))
    value = apply("minimum", apply("maximum", value, low), high)
    imputed = apply("where", select(missing, [j]), value, select(rows, [j]))
    parts: list[Node] = [imputed]
    if j:
        parts.insert(0, select(rows, range(j)))
    if j + 1 < len(state):
        parts.append(select(rows, range(j + 1, len(state))))
    return _computed(concat(parts), None)


def _computed(output: Node, names: tuple[str, ...] | None) -> Table:
    """Return columns in the rows' type, in which the library stores them."""
    operation = Computed(side_by_side([leaf.table for leaf in leaves(output)]), None, output, narrow=True)
    return Table(tuple(Column(Made(operation, i)) for i in range(output.width)), names=names)
