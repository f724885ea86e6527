"""Pipelines, and whatever holds a model or transforms: from the outermost estimator to one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import target
from hbtvm.frontends.output_frames import output_frame
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pipeline_inputs import (
    LABEL_ENCODER,
    PIPELINES,
    TARGET,
    WRAPPERS,
    Readers,
    inputs_of,
    key_of,
    outer_steps,
    regressor_of,
)
from hbtvm.frontends.predictors import PREDICTORS, SCORES, Build
from hbtvm.frontends.sklearn_common import require_fitted
from hbtvm.frontends.transformers import TRANSFORMERS, Where, apply, results
from hbtvm.frontends.transformers.containers import steps_of, unwrapped
from hbtvm.frontends.transformers.dispatch import unsupported
from hbtvm.frontends.transformers.where import RowRules
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.compose import compose
from hbtvm.graph.curves import bends
from hbtvm.graph.feeds import as_they_come
from hbtvm.graph.fold_text import narrowed, other_columns, told
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.linear import Linear
from hbtvm.graph.lower_network import lower_types
from hbtvm.graph.network import TableRows
from hbtvm.graph.of_graph import predictor_of, undone, with_response
from hbtvm.graph.output import OutputSpec
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.scope import is_computed
from hbtvm.graph.table import AllColumns, Column, Raw, Table, parts_of
from hbtvm.operators.base import Node

_ALLOWS = ("allow_nan", "allow_inf")
_ELIMINATION = (("sklearn", "RFE"), ("sklearn", "RFECV"))


def read(model: Record, readers: Readers) -> Graph:
    """Read a pipeline, what wraps a model, or a transformer by itself.

    Parameters
    ----------
    model
        One of `hbtvm.frontends.pipeline_inputs.COMPOSED`.
    readers
        Front ends for last steps.

    Returns
    -------
    A graph whose anchor is the last step's; `Columns` if that transforms.

    Raises
    ------
    UnsupportedModel
        If a step is not supported or not fitted, by name and class.
    ModelError
        If it is damaged.
    """
    builder, table, where = _start(model, readers)

    def ruled(read: Callable[[Record, Table, Where], Graph | None]) -> Graph | None:
        """What is read, with what its steps say of the rows."""
        place = replace(where, rules=RowRules())
        graph = read(model, table, place)
        return None if graph is None else place.rules.applied(graph)

    graph, steps = ruled(builder.build), outer_steps(model)
    assert graph is not None
    beside = ruled(builder.transform) if graph.output.kind != "transformer" else None
    scores = ruled(builder.scores) if graph.output.kind == "transformer" else None
    return replace(
        graph,
        steps=steps,
        transform=None if beside is None else replace(beside, steps=steps),
        scores=None if scores is None else replace(scores, steps=steps),
    )


def reader(readers: Readers) -> Build:
    """What reads any estimator that predicts, over any table, as operators; errors as `read` raises them."""
    return _Builder(InputSpec(n_features=1), Table(()), readers).predictor


def _start(model: Record, readers: Readers) -> tuple[_Builder, Table, Where]:
    inputs = inputs_of(model, Where().of(model), readers)
    columns = tuple(Column(Raw(i)) for i in range(inputs.n_features))
    names = inputs.feature_names or tuple(f"x{i}" for i in range(inputs.n_features))
    table = Table(columns, None, names)
    return _Builder(inputs, table, readers), table, Where(names=inputs.feature_names)


class _Builder:
    """Goes from an estimator to the one within that predicts, with the table that it is given on the way."""

    def __init__(self, inputs: InputSpec, raw: Table, readers: Readers) -> None:
        self._inputs, self._raw, self._readers = inputs, raw, readers

    def build(self, model: Record, table: Table, where: Where) -> Graph:
        """The graph of an estimator that reads a table."""
        where, key = where.of(model), key_of(model)
        if key in PIPELINES:
            steps = list(steps_of(model, where))
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            if not steps:
                return self._columns(model, table, where)
            return self.build(steps[-1][1], table, steps[-1][2])
        if key in WRAPPERS:
            # Deeper by a name that no error shows, lest a damaged file wraps itself.
            return self.build(unwrapped(model, where), table, replace(where.child("best"), path=where.path))
        if key == TARGET and not target.by_nodes(model):
            graph = self.build(regressor_of(model, where), table, where.child("regressor_"))
            return replace(graph, output=target.undone(model, graph.output, where))
        if key in _ELIMINATION and self._predicts(model):
            return self.build(
                model.record("estimator_"), apply(model, table, where), where.child("estimator_")
            )
        if key == TARGET or key in PREDICTORS:
            return self._network(model, table, where)
        if key in self._readers:
            return self._model(model, table, where)
        if key in TRANSFORMERS:
            return self._columns(model, apply(model, table, where), where)
        raise unsupported(model, where, self._readers)

    def transform(self, model: Record, table: Table, where: Where) -> Graph | None:
        """What an estimator that predicts makes of a table by its ``transform``; None if it has none."""
        model, table, where = self._last_step(model, table, where)
        if key_of(model) not in TRANSFORMERS:
            return None
        try:
            return self._columns(model, apply(model, table, where), where)
        except UnsupportedModel:
            # It predicts all the same; some have a transform that the library refuses to compute, too.
            return None

    def scores(self, model: Record, table: Table, where: Where) -> Graph | None:
        """What a transformer makes of a table by its ``score_samples``; None if it has none that is known."""
        model, table, where = self._last_step(model, table, where)
        if key_of(model) not in SCORES:
            return None
        try:
            predictor = SCORES[key_of(model)](model, table, where, self.predictor)
        except ModelError:
            # It transforms all the same.
            return None
        return self._lowered(model, table, predictor.scores(), predictor.output_spec())

    def _last_step(self, model: Record, table: Table, where: Where) -> tuple[Record, Table, Where]:
        """The estimator within pipelines and wrappers that comes last, and the table that it reads."""
        where, key = where.of(model), key_of(model)
        if key in PIPELINES:
            steps = list(steps_of(model, where))
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            return self._last_step(steps[-1][1], table, steps[-1][2]) if steps else (model, table, where)
        if key in WRAPPERS:
            inner = replace(where.child("best"), path=where.path)
            return self._last_step(unwrapped(model, where), table, inner)
        return model, table, where

    def _network(self, model: Record, table: Table, where: Where) -> Graph:
        """The graph of an estimator that is read as operators."""
        predictor = self.predictor(model, table, where)
        library = "scikit-learn" if model.library == "sklearn" else model.library
        trees, output = predictor.trees, predictor.spec
        if trees is None or output is None:
            return self._lowered(model, table, predictor.scores(), predictor.output_spec())
        leaf = trees.x
        if not isinstance(leaf, TableRows) or any(
            is_computed(one.source) for one in other_columns(leaf.table)
        ):
            return self._lowered(model, table, trees, output)
        read = InputSpec(len(leaf.table), allow_nan=leaf.allow_nan, allow_inf=leaf.allow_inf)
        last = Graph(library, model.kind, read, trees.ensemble, output)
        return compose(self._inputs, leaf.table, last, ())

    def _lowered(self, model: Record, table: Table, scores: Node, output: OutputSpec) -> Graph:
        names = self._inputs.feature_names
        lowered = lower_types(scores, names)
        library = "scikit-learn" if model.library == "sklearn" else model.library
        feeds, inputs = narrowed(lowered.feeds.feeds), self._inputs
        if table is self._raw and not inputs.by_name and as_they_come(feeds):
            nan, inf = {feed.allow_nan for feed in feeds}, {feed.allow_inf for feed in feeds}
            if len(nan) == len(inf) == 1:
                # Every column as it comes: the kernels read the caller's rows.
                lowered = lower_types(scores, names, self._raw)
                inputs, feeds = replace(inputs, allow_nan=nan.pop(), allow_inf=inf.pop()), ()
        return Graph(
            library,
            model.kind,
            inputs,
            lowered.anchor,
            output,
            feeds,
            lowered.single,
            stages=lowered.stages,
            columns=lowered.columns,
            told=lowered.told,
        )

    def predictor(self, model: Record, table: Table, where: Where) -> Predictor:
        """The operators of an estimator that predicts; see `hbtvm.frontends.predictors.reading.Build`."""
        where, key = where.of(model), key_of(model)
        if key in PIPELINES:
            steps = list(steps_of(model, where))
            if not steps:
                raise where.unsupported("has no step that predicts.")
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            return self.predictor(steps[-1][1], table, steps[-1][2])
        if key in WRAPPERS:
            return self.predictor(
                unwrapped(model, where), table, replace(where.child("best"), path=where.path)
            )
        if key == TARGET:
            return self._undone(model, table, where)
        if key in _ELIMINATION and self._predicts(model):
            kept = apply(model, table, where)
            return self.predictor(model.record("estimator_"), kept, where.child("estimator_"))
        if key in PREDICTORS:
            if model.library == "sklearn":
                require_fitted(model)
            return PREDICTORS[key](model, table, where, self.predictor)
        if key in self._readers:
            self._absent(model, table, where)
            return predictor_of(self._last(model, table, where), table)
        raise unsupported(model, where, (*PREDICTORS, *self._readers))

    def _undone(self, model: Record, table: Table, where: Where) -> Predictor:
        """The operators of a ``TransformedTargetRegressor``."""
        found = self.predictor(regressor_of(model, where), table, where.child("regressor_"))
        if set(found.outputs) != {"response"}:
            raise where.unsupported(f"has a {found.kind} as its regressor, which is not supported.")
        if target.by_nodes(model):
            response = target.undone_node(model.record("transformer_"), found.outputs["response"], where)
            return with_response(found, response, found.keeps_axis or target.keeps_axis(model))
        width = found.outputs["response"].width
        output = target.undone(model, OutputSpec(found.kind, width, keeps_axis=found.keeps_axis), where)
        response = undone(found.outputs["response"], output.inverse)
        return with_response(found, response, found.keeps_axis or ("column", ()) in output.inverse)

    def _predicts(self, model: Record) -> bool:
        """Whether the estimator within a selector is a model that is supported."""
        inner = model.get("estimator_", None)
        return isinstance(inner, Record) and (key_of(inner) in self._readers or key_of(inner) in PREDICTORS)

    def _last(self, model: Record, table: Table, where: Where) -> Graph:
        """A model by itself, which reads a table."""
        if model.library == "sklearn":
            require_fitted(model)
        last = self._readers[key_of(model)](model)
        if last.input.n_features != len(table):
            raise where.damaged(f"it was fitted on {last.input.n_features} columns, but gets {len(table)}.")
        return last

    def _absent(self, model: Record, table: Table, where: Where) -> None:
        """Refuse sparse rows of which a model within another estimator takes absent entries for missing."""
        if model.library == "xgboost" and table.sparse is None:
            reason = "takes absent entries for missing, which is supported only for a model by itself"
            where.refuse_sparse(table, reason)

    def _model(self, model: Record, table: Table, where: Where) -> Graph:
        if any(is_computed(column.source) for column in other_columns(table)):
            return self._network(model, table, where)
        last = self._last(model, table, where)
        if table is self._raw:
            # Nothing is done to the rows: the model's own checks of them hold.
            return last
        if isinstance(last.anchor, Linear) and any(map(bends, other_columns(table))):
            return self._network(model, table, where)
        self._absent(model, table, where)
        return compose(self._inputs, table, last, ())

    def _columns(self, model: Record, table: Table, where: Where) -> Graph:
        if not len(table):
            raise where.unsupported("keeps no column, so that there is nothing to compute.")
        library = "scikit-learn" if model.library == "sklearn" else model.library
        if table.sparse and any(isinstance(part, AllColumns) for part in parts_of(table.columns)):
            # Nothing asks for the names of a sparse matrix's columns, which may be a million.
            table = replace(table, names=None)
        labels = results.gives_labels(model)
        frame = output_frame(model, table, where)
        columns = Columns(self._inputs.n_features, table, frame)
        output, inputs = self._contained(model, table, frame is not None)
        if labels:
            output = replace(output, label_dtype="int64", keeps_axis=True)
        numbers = frame is None and results.by_kernels(table, results.of_numbers(model))
        if results.needs_kernels(table) and not numbers:
            raise where.unsupported(
                "gives a data frame or texts beside numbers that kernels compute, which is not supported."
            )
        if not numbers:
            return Graph(library, model.kind, inputs, columns, output, told=told(table))
        rows, names = TableRows(table, allow_nan=True, allow_inf=True), self._inputs.feature_names
        dtype = "int64" if labels or key_of(model) == LABEL_ENCODER else results.result_dtype(table)
        # In float32, the library rounds after each step.
        narrow = dtype == "rows"
        # The library, too, takes rows of numbers only to select from, those included that it leaves out.
        lowered = lower_types(rows, names, self._raw if output.selects else None, narrow)
        feeds = () if output.selects else tuple(lowered.feeds.feeds)
        return Graph(
            library,
            model.kind,
            inputs,
            lowered.anchor,
            replace(output, label_dtype=dtype),
            feeds,
            lowered.single,
            stages=lowered.stages,
            columns=lowered.columns,
            told=lowered.told,
            host=None if results.needs_kernels(table) else columns,
        )

    def _contained(self, model: Record, table: Table, frame: bool) -> tuple[OutputSpec, InputSpec]:
        """How columns are returned, and what the caller's rows may have in them."""
        output = OutputSpec(
            kind="transformer",
            n_outputs=len(table),
            container="rows" if table.sparse is None else "sparse" if table.sparse else "array",
        )
        kept = results.selected(model, table)
        if frame or not kept or self._inputs.by_name:
            return output, self._inputs
        # All columns are checked alike, those included that are left out.
        allow_nan, allow_inf = (all(getattr(column, name) for column in table.columns) for name in _ALLOWS)
        return replace(output, selects=kept), replace(self._inputs, allow_nan=allow_nan, allow_inf=allow_inf)
