"""Pipelines, wrappers of models, and transformers: from the outermost estimator to a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.output_frames import output_frame
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pipeline_inputs import inputs_of, outer_steps
from hbtvm.frontends.transformers import Where, apply, results
from hbtvm.frontends.transformers.dispatch import (
    read_model,
    read_predictor,
    refuse_absent,
    unsupported,
)
from hbtvm.frontends.transformers.encoders.rare import refuse_rare
from hbtvm.frontends.transformers.where import RowRules
from hbtvm.graph.columns.curves import bends
from hbtvm.graph.columns.table import AllColumns, Column, Raw, Table, parts_of
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.compose import compose, of_nodes
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.lower_network import lower_types
from hbtvm.graph.networks.fold_text import other_columns, text_rewrites
from hbtvm.graph.networks.network import Linear, TableRows
from hbtvm.graph.networks.scope import is_computed
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Node

_ALLOWS = ("allow_nan", "allow_inf")


def read(model: Record, where: Where) -> Graph:
    """Read a pipeline, a wrapper of a model, or a transformer.

    Parameters
    ----------
    model
        The estimator.
    where
        The outermost place, which knows all estimators.

    Returns
    -------
    A graph with the last step's anchor; `Columns` if that transforms.

    Raises
    ------
    UnsupportedModel
        If a step is not supported or not fitted, by name and class.
    ModelError
        If it is damaged.
    """
    inputs = inputs_of(model, replace(where.of(model), visited=[0]))
    names = inputs.feature_names or tuple(f"x{i}" for i in range(inputs.n_features))
    table = Table(tuple(Column(Raw(i)) for i in range(inputs.n_features)), None, names)
    builder, where = Builder(inputs, table), replace(where, names=inputs.feature_names)

    def ruled(read: Callable[[Record, Table, Where], Graph | None]) -> Graph | None:
        """Read a graph, and apply its steps' rules for rows."""
        place = replace(where, rules=RowRules())
        graph = read(model, table, place)
        if graph is None:
            return None
        for anchor in (graph.anchor, graph.host):
            refuse_rare(anchor.table.columns if isinstance(anchor, Columns) else ())
        refuse_rare(graph.feeds)
        return place.rules.applied(graph)

    graph, steps = ruled(builder.build), outer_steps(model, replace(where, visited=[0]))
    assert graph is not None
    transform = ruled(builder.transform) if graph.output.kind != "transformer" else None
    scores = ruled(builder.scores) if graph.output.kind == "transformer" else None
    return replace(
        graph,
        steps=steps,
        transform=None if transform is None else replace(transform, steps=steps),
        scores=None if scores is None else replace(scores, steps=steps),
    )


class Builder:
    """Goes from an estimator to the inner estimator that predicts, with the table that it reads."""

    def __init__(self, inputs: InputSpec, raw: Table) -> None:
        self._inputs, self._raw = inputs, raw

    def build(self, model: Record, table: Table, where: Where) -> Graph:
        """Return the graph of an estimator that reads a table."""
        where, how = where.of(model), where.how(model)
        last = None if how.last is None else how.last(model, table, where, True)
        if last is not None:
            graph = self.build(*last)
            if how.undoes is None:
                return graph
            return replace(how.undoes(model, graph, where), transform_predicts=False)
        if how.predicts is not None:
            return replace(self._network(model, table, where), transform_predicts=how.transform_predicts)
        if how.model is not None:
            return self._model(model, table, where)
        if how.transforms is not None:
            columns = apply(model, table, where)
            return replace(
                self.columns(model, columns, where),
                keeps_integers=not self._inputs.by_name and results.keeps_integers(columns),
            )
        raise unsupported(model, where)

    def transform(self, model: Record, table: Table, where: Where) -> Graph | None:
        """Return the ``transform`` of an estimator that predicts; None if it has none."""
        model, table, where = _last(model, table, where)
        if where.how(model).transforms is None:
            return None
        try:
            return self.columns(model, apply(model, table, where), where)
        except UnsupportedModel:
            # It still predicts; the library refuses some transforms, too.
            return None

    def scores(self, model: Record, table: Table, where: Where) -> Graph | None:
        """Return the ``score_samples`` of a transformer; None if it is absent or unsupported."""
        model, table, where = _last(model, table, where)
        read = where.how(model).scores
        if read is None:
            return None
        try:
            predictor = read(model, table, where)
        except ModelError:
            # It still transforms.
            return None
        return self._lowered(model, table, predictor.scores(), predictor.output_spec())

    def _network(self, model: Record, table: Table, where: Where) -> Graph:
        """Return the graph of an estimator that is read as operators."""
        predictor = read_predictor(model, table, where)
        trees, output = predictor.trees, predictor.output_spec()
        if trees is None:
            return self._lowered(model, table, predictor.scores(), output)
        leaf = trees.x
        if not isinstance(leaf, TableRows) or any(
            is_computed(column.source) for column in other_columns(leaf.table)
        ):
            return self._lowered(model, table, trees, output)
        read = InputSpec(len(leaf.table), allow_nan=leaf.allow_nan, allow_inf=leaf.allow_inf)
        last = Graph(_library(model), model.kind, read, trees.ensemble, output)
        return compose(self._inputs, leaf.table, last, ())

    def _lowered(self, model: Record, table: Table, scores: Node, output: OutputSpec) -> Graph:
        raw = self._raw if table is self._raw and not self._inputs.by_name else None
        return of_nodes(_library(model), model.kind, self._inputs, scores, output, raw)

    def _model(self, model: Record, table: Table, where: Where) -> Graph:
        if any(is_computed(column.source) for column in other_columns(table)):
            return self._network(model, table, where)
        last = read_model(model, table, where)
        if table is self._raw:
            # Without steps in front, the model's checks of the rows hold.
            return last
        if last.scores_of is not None:
            return self._network(model, table, where)
        if isinstance(last.anchor, Linear) and any(map(bends, other_columns(table))):
            return self._network(model, table, where)
        refuse_absent(model, table, where)
        return compose(self._inputs, table, last, ())

    def columns(self, model: Record, table: Table, where: Where) -> Graph:
        """Return the graph of a transformer's output, the columns of a table."""
        if not len(table):
            raise where.unsupported("keeps no column, so there is nothing to compute.")
        if table.sparse and any(isinstance(part, AllColumns) for part in parts_of(table.columns)):
            # The names of a sparse matrix's columns, maybe a million, are not needed.
            table = replace(table, names=None)
        labels = results.gives_labels(model)
        frame = output_frame(model, table, where)
        columns = Columns(self._inputs.n_features, table, frame)
        output, inputs = self._contained(model, table, where, frame is not None)
        if labels:
            output = replace(output, label_dtype="int64", keeps_axis=True)
        numbers = frame is None and results.by_kernels(table, results.of_numbers(model))
        if results.needs_kernels(table) and not numbers:
            raise where.unsupported(
                "returns a data frame or texts beside numbers that kernels compute, which is not supported."
            )
        if not numbers:
            return Graph(_library(model), model.kind, inputs, columns, output, rewrites=text_rewrites(table))
        rows = TableRows(table, allow_nan=True, allow_inf=True)
        dtype = "int64" if labels or model.is_a("sklearn", "LabelEncoder") else results.result_dtype(table)
        # In float32, the library rounds after each step.
        narrow = dtype == "rows"
        # A selector reads all columns as numbers, including those that it drops, as the library does.
        lower = partial(lower_types, raw=self._raw if output.selects else None, narrow=narrow)
        output = replace(output, label_dtype=dtype)
        graph = of_nodes(_library(model), model.kind, inputs, rows, output, None, lower)
        feeds = () if output.selects else graph.feeds
        return replace(graph, feeds=feeds, host=None if results.needs_kernels(table) else columns)

    def _contained(
        self, model: Record, table: Table, where: Where, frame: bool
    ) -> tuple[OutputSpec, InputSpec]:
        """Return the output specification, and the input specification with the columns' checks."""
        output = OutputSpec(
            "transformer",
            len(table),
            container="rows" if table.sparse is None else "sparse" if table.sparse else "array",
        )
        kept = results.selected(model, table, where)
        if frame or not kept or self._inputs.by_name:
            return output, self._inputs
        # The library checks all columns alike, including dropped columns.
        allow_nan, allow_inf = (all(getattr(column, name) for column in table.columns) for name in _ALLOWS)
        return replace(output, selects=kept), replace(self._inputs, allow_nan=allow_nan, allow_inf=allow_inf)


def _last(model: Record, table: Table, where: Where) -> tuple[Record, Table, Where]:
    """Return the inner estimator that transforms, and the table that it reads."""
    where, how = where.of(model), where.how(model)
    last = None if how.last is None else how.last(model, table, where, False)
    return (model, table, where) if last is None else _last(*last)


def _library(model: Record) -> str:
    """Return the name of an estimator's library."""
    return "scikit-learn" if model.library == "sklearn" else model.library
