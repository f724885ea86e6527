"""Fold scalers, imputers, encoders and selections into linear models.

Columns whose weights are all zero are dropped first (Hummingbird, section 5.2: feature selection injection),
so that nothing in front of them is computed or read. A column of codes then adds an entry of a table; a
number with arithmetic and imputing alone has a weight, a shift, and a term for missing values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.columns.kernel_input import Coded, Feeds, keeps_nan, resolve
from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill, IsMissing, Step
from hbtvm.graph.columns.table import AllColumns, Column, Made, Table, parts_of
from hbtvm.graph.columns.text import Vectorize
from hbtvm.graph.networks.fold_text import TextSums, vectorizer_of
from hbtvm.graph.networks.network import Linear
from hbtvm.operators.base import Input
from hbtvm.operators.products import LinearSum
from hbtvm.words.quantities import count


@dataclass(frozen=True)
class Folded:
    """A linear anchor over feeds, and the rewrites in sentences."""

    feeds: Feeds
    anchor: Linear
    rewrites: tuple[str, ...]


@dataclass
class _Term:
    weight: np.ndarray
    missing: np.ndarray


def fold(
    table: Table,
    weight: np.ndarray,
    intercept: np.ndarray,
    names: Sequence[str] | None = None,
    allow_nan: bool = False,
    known: Feeds | None = None,
) -> Folded:
    """Return the linear model that reads feeds in place of a table.

    `table`: the model's input, W columns.
    `weight`, `intercept`: float64, shapes (W, O) and (O,).
    `names`: names of the input's columns, for errors.
    `allow_nan`: whether the model accepts NaN (no linear model of scikit-learn does).
    `known`: feeds of other readers of the input; this model's are added.
    """
    feeds, base = known or Feeds(names), np.array(intercept, np.float64)
    terms: dict[tuple[int, float], _Term] = {}
    tables: dict[int, np.ndarray] = {}
    absorbed, encoded, hosted = 0, 0, 0
    used = np.flatnonzero(np.any(weight != 0, axis=1))
    texts = TextSums(len(base))
    singly = _without_blocks(table, weight, used, texts)
    # Rows without columns can't be counted, so at least one column is read.
    for j in singly if len(used) else [0]:
        column, w = table.columns[j], weight[j]
        resolved = resolve(column)
        # A model that refuses NaN refuses it as a category's number, too; the host checks.
        if isinstance(resolved, Coded) and (allow_nan or resolved.finite):
            at = feeds.codes(column.source, resolved.prefix)
            sums = tables.setdefault(at, np.zeros((len(resolved), len(base))))
            if resolved.hot is None:
                sums += resolved.values[:, None] * w
            else:
                sums[resolved.hot] += w
            encoded += 1
            continue
        steps = column.steps
        affine = None if isinstance(resolved, Coded) else _affine(steps)
        vectorizer = vectorizer_of(column.source)
        if vectorizer is not None and affine is not None and isinstance(column.source, Made):
            # An absent term counts 0, so the offset is a constant.
            texts.column(vectorizer, column.source.index, affine.scale * w)
            base += (affine.offset - affine.scale * affine.shift) * w
            continue
        nan = column.allow_nan and (allow_nan or not keeps_nan(steps))
        if affine is None:
            at = feeds.host(column, allow_nan, False)
            affine = _Affine()
            hosted += 1
        else:
            at = feeds.number(column, nan, False)
            absorbed += bool(steps)
        base += affine.offset * w
        filled = 0.0 if np.isnan(affine.filled) else affine.filled - affine.offset
        term = terms.setdefault((at, affine.shift), _Term(np.zeros(len(w)), np.zeros(len(w))))
        term.weight += affine.scale * w
        term.missing += filled * w
    for at, output in texts.feeds(feeds):
        terms[at, 0.0] = _Term(np.eye(len(base))[output], np.zeros(len(base)))
    keys = sorted(terms)
    outputs = len(base)
    places = sorted(tables)
    linear = LinearSum(
        Input(max(1, len(feeds.feeds))),
        np.array([at for at, _ in keys], np.int32),
        np.array([shift for _, shift in keys], np.float64),
        np.array([terms[key].weight for key in keys]).reshape(len(keys), outputs),
        np.array([terms[key].missing for key in keys]).reshape(len(keys), outputs),
        np.array(places, np.int32),
        tuple(len(tables[at]) for at in places),
        np.concatenate([np.zeros((0, outputs)), *(tables[at] for at in places)]),
        # Even if a missing number adds 0, the kernel has to check for it.
        any(feeds.feeds[at].allow_nan for at, _ in keys),
    )
    rewrites = []
    if len(used) < len(table):
        dropped = len(table) - len(used)
        rewrites.append(
            f"{dropped:,} of {len(table):,} columns have no weight: they are neither computed nor read"
        )
    if absorbed:
        rewrites.append(f"scalers and imputers of {count(absorbed, 'column')}: moved into weights")
    if encoded:
        rewrites.append(
            f"{count(encoded, 'encoded column')}: sums of entries of {count(len(tables), 'table')}"
        )
    rewrites += texts.rewrites()
    if hosted:
        rewrites.append(f"{count(hosted, 'column')} computed by numpy before the kernel")
    return Folded(feeds, Linear(linear, base), tuple(rewrites))


def _without_blocks(table: Table, weight: np.ndarray, used: np.ndarray, texts: TextSums) -> list[int]:
    """Return the used columns outside of blocks of terms; add the weights of such blocks to `texts`."""
    single = np.zeros(len(table), bool)
    single[used] = True
    start = 0
    for part in parts_of(table.columns):
        whole = slice(start, start + len(part))
        start += len(part)
        if isinstance(part, AllColumns) and isinstance(part.operation, Vectorize):
            texts.all(part.operation, weight[whole])
            single[whole] = False
    indices: list[int] = np.flatnonzero(single).tolist()
    return indices


def absorbs(column: Column) -> bool:
    """Return whether `fold` moves all steps of a column into weights and tables of entries."""
    return isinstance(resolve(column), Coded) or _affine(column.steps) is not None


@dataclass
class _Affine:
    """``scale * (x - shift) + offset``, or ``filled`` for missing x."""

    scale: float = 1.0
    shift: float = 0.0
    offset: float = 0.0
    filled: float = np.nan


def _affine(steps: tuple[Step, ...]) -> _Affine | None:
    """Return steps as an affine function; None if they are not affine."""
    result, first = _Affine(), True
    for step in steps:
        if isinstance(step, Cast):
            continue
        if isinstance(step, IsMissing) and step.missing != step.missing and np.isnan(result.filled):
            # 0 for numbers, 1 for missing ones.
            result, first = _Affine(0.0, 0.0, 0.0, 1.0), False
        elif isinstance(step, Fill) and step.missing is not None and step.missing != step.missing:
            if np.isnan(result.filled):
                result.filled = float(step.value)
        elif isinstance(step, Arithmetic):
            constant = step.constant
            match step.operation:
                case "subtract" if first:
                    result.shift = constant
                    result.filled -= constant
                case "subtract" | "add":
                    change = constant if step.operation == "add" else -constant
                    result.offset += change
                    result.filled += change
                case _:
                    factor = constant if step.operation == "multiply" else 1.0 / constant
                    result.scale *= factor
                    result.offset *= factor
                    result.filled *= factor
            first = False
        else:
            return None
    return result
