"""From a pipeline's table, and the last step or the operators behind it, to one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hbtvm.graph.columns.feeds import Feed, as_they_come
from hbtvm.graph.columns.steps import Encode, Fill, Lookup, ZeroIsMissing
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation, Table
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.lower_network import Lowered, lower_types
from hbtvm.graph.networks import fold_linear
from hbtvm.graph.networks.fold_text import narrowed
from hbtvm.graph.networks.network import Linear, TableRows, Trees
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.predictor import Predictor, predictor_over
from hbtvm.graph.trees import fold as fold_trees
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract


def compose(inputs: InputSpec, table: Table, last: Graph, steps: tuple[tuple[str, str], ...]) -> Graph:
    """Return the graph of a pipeline.

    Parameters
    ----------
    inputs
        Specification of the pipeline's rows.
    table
        The transformers' output.
    last
        The last step alone, which reads the table's columns.
    steps
        Names and classes of all steps, for the user.
    """
    table = as_read(table, last)
    names = inputs.feature_names
    anchor, scaled = last.anchor, None
    if isinstance(anchor, TreeEnsemble):
        trees = fold_trees.fold(table, anchor, names, last.input.allow_nan, last.input.allow_inf)
        feeds, anchor, single, rewrites = trees.feeds, trees.anchor, trees.single, trees.rewrites
        scaled = trees.scaled
    else:
        if not isinstance(anchor, Linear):
            raise ValueError(f"the last step's anchor is {type(anchor).__name__}, which reads no table")
        folded = fold_linear.fold(table, anchor.sums.weight, anchor.base_score, names)
        feeds, anchor, single, rewrites = folded.feeds, folded.anchor, None, folded.rewrites
    return replace(
        last,
        input=inputs,
        anchor=anchor,
        single=single,
        scaled=scaled,
        feeds=narrowed(feeds.feeds),
        steps=steps,
        rewrites=rewrites,
    )


def of_nodes(
    library: str,
    model: str,
    inputs: InputSpec,
    scores: Node,
    output: OutputSpec,
    raw: Table | None,
    lower: Callable[..., Lowered] = lower_types,
) -> Graph:
    """Return the graph of operators over tables.

    Parameters
    ----------
    library, model, inputs, output
        As in `Graph`.
    scores
        All outputs side by side.
    raw
        The caller's columns if kernels may read the rows unchanged, else None.
    lower
        `lower_types`, or a function like it.
    """
    lowered = lower(scores, inputs.feature_names)
    feeds = narrowed(lowered.feeds.feeds)
    if raw is not None and as_they_come(feeds):
        nan, inf = {feed.allow_nan for feed in feeds}, {feed.allow_inf for feed in feeds}
        if len(nan) == len(inf) == 1:
            lowered = lower(scores, inputs.feature_names, raw)
            inputs, feeds = replace(inputs, allow_nan=nan.pop(), allow_inf=inf.pop()), ()
    return Graph(
        library,
        model,
        inputs,
        lowered.anchor,
        output,
        feeds,
        lowered.single,
        stages=lowered.stages,
        columns=lowered.columns,
        rewrites=lowered.rewrites,
    )


def predictor_of(graph: Graph, table: Table) -> Predictor:
    """Return the operators of a bare model over the table that it reads.

    Raises
    ------
    ValueError
        If its anchor is neither trees nor linear.
    """
    rows = TableRows(as_read(table, graph), graph.input.allow_nan, graph.input.allow_inf)
    anchor = graph.anchor
    if graph.scores_of is not None:
        return predictor_over(graph.output, graph.scores_of(rows))
    if isinstance(anchor, TreeEnsemble):
        return predictor_over(graph.output, Trees(rows, anchor))
    if not isinstance(anchor, Linear):
        raise ValueError(f"no operators for {type(anchor).__name__}")
    product = Contract(rows, anchor.sums.weight).checked()
    scores = apply("add", product, anchor.base_score) if anchor.base_score.any() else product
    return predictor_over(graph.output, scores)


def _fed(table: Table, last: Graph) -> Table:
    """Return the columns that the last step's feeds make of a table."""
    operations: dict[RowOperation, RowOperation] = {}

    def over(column: Column | Feed) -> Column:
        source = column.source
        if isinstance(source, Raw):
            return table.columns[source.index].then(*column.steps)
        operation = source.operation
        if operation not in operations:
            inputs = Table(tuple(over(inner) for inner in operation.inputs.columns))
            operations[operation] = replace(operation, inputs=inputs)  # type: ignore[type-var]
        return Column(Made(operations[operation], source.index), column.steps)

    return Table(tuple(map(over, last.feeds)))


def as_read(table: Table, last: Graph) -> Table:
    """Return the columns as the last step's anchor reads them: feeds, codes of categories, missing values."""
    if last.feeds:
        return _fed(table, last)
    spec = last.input
    skips = isinstance(last.anchor, Linear) and last.anchor.sums.fills_missing
    mapped = bool(spec.categories) and spec.numbers_are_categories
    if (
        not mapped
        and not skips
        and spec.missing_value is None
        and not (table.sparse and last.library == "xgboost")
    ):
        return table

    def read(index: int, column: Column) -> Column:
        if table.sparse and last.library == "xgboost":
            column = column.then(ZeroIsMissing())
        if spec.missing_value is not None:
            column = column.then(Fill(np.nan, spec.missing_value))
        if skips:
            # A missing value adds nothing to XGBoost's sums.
            column = column.then(Fill(0.0, np.nan))
        known = spec.categories.get(index)
        if known is not None and spec.numbers_are_categories:
            # Trees take unknown values for missing.
            codes = np.append(np.arange(len(known), dtype=np.float64), np.nan)
            column = column.then(Encode(tuple(known), "code"), Lookup(codes))
        return column

    columns = tuple(read(i, column) for i, column in enumerate(table.columns))
    same = all(a is b for a, b in zip(columns, table.columns, strict=True))
    return table if same else Table(columns, table.sparse, table.names)
