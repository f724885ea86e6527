"""Pipelines, and whatever holds a model or transforms: from the outermost estimator to one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import target
from hbtvm.frontends.output_frames import output_frame
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors import PREDICTORS, Build
from hbtvm.frontends.sklearn_common import column_count, feature_names, require_fitted
from hbtvm.frontends.transformers import TRANSFORMERS, Where, apply
from hbtvm.frontends.transformers.containers import SEARCHES, steps_of, unwrapped
from hbtvm.frontends.transformers.dispatch import unsupported
from hbtvm.frontends.transformers.results import by_kernels, needs_kernels, result_dtype
from hbtvm.frontends.transformers.texts import VECTORIZERS
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.compose import compose
from hbtvm.graph.curves import bends
from hbtvm.graph.fold_text import narrowed, other_columns, told
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.linear import Linear
from hbtvm.graph.lower_network import lower
from hbtvm.graph.network import TableRows
from hbtvm.graph.of_graph import predictor_of, undone, with_response
from hbtvm.graph.output import OutputSpec
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.scope import is_computed
from hbtvm.graph.table import AllColumns, Column, Raw, Table, parts_of
from hbtvm.operators.base import Node

Readers = Mapping[tuple[str, str], Callable[[Record], Graph]]
"""Front ends of models that predict, by library and class name."""

_WRAPPERS = (*SEARCHES, ("sklearn", "FrozenEstimator"))
_TARGET = ("sklearn", "TransformedTargetRegressor")
_SELECTORS = ("SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe", "VarianceThreshold")
_ELIMINATION = (("sklearn", "RFE"), ("sklearn", "RFECV"))
_PIPELINES = (("sklearn", "Pipeline"), ("imblearn", "Pipeline"))

_LABEL_ENCODER = ("sklearn", "LabelEncoder")
_OF_LABELS = (_LABEL_ENCODER, ("sklearn", "LabelBinarizer"))
"""Transformers of targets: they take labels, shape (n,), not rows."""

_MOST_INPUTS = 1 << 17
"""Columns that a pipeline may read: files may claim any number, and each is an object here."""

COMPOSED = frozenset((*TRANSFORMERS, *PREDICTORS, _TARGET))
"""Classes that `read` reads, by library and name."""


def read(model: Record, readers: Readers) -> Graph:
    """Read a pipeline, what wraps a model, or a transformer by itself.

    Parameters
    ----------
    model
        One of `COMPOSED`.
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
    graph, steps = builder.build(model, table, where), _steps(model)
    beside = builder.transform(model, table, where) if graph.output.kind != "transformer" else None
    return replace(graph, steps=steps, transform=None if beside is None else replace(beside, steps=steps))


def reader(readers: Readers) -> Build:
    """What reads any estimator that predicts, over any table, as operators; errors as `read` raises them."""
    return _Builder(InputSpec(n_features=1), Table(()), readers).predictor


def _start(model: Record, readers: Readers) -> tuple[_Builder, Table, Where]:
    inputs = _inputs(model, Where().of(model), readers)
    columns = tuple(Column(Raw(i)) for i in range(inputs.n_features))
    names = inputs.feature_names or tuple(f"x{i}" for i in range(inputs.n_features))
    table = Table(columns, names=names)
    return _Builder(inputs, table, readers), table, Where(names=inputs.feature_names)


class _Builder:
    """Goes from an estimator to the one within that predicts, with the table that it is given on the way."""

    def __init__(self, inputs: InputSpec, raw: Table, readers: Readers) -> None:
        self._inputs, self._raw, self._readers = inputs, raw, readers

    def build(self, model: Record, table: Table, where: Where) -> Graph:
        """The graph of an estimator that reads a table."""
        where, key = where.of(model), _key(model)
        if key in _PIPELINES:
            steps = list(steps_of(model, where))
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            if not steps:
                return self._columns(model, table, where)
            return self.build(steps[-1][1], table, steps[-1][2])
        if key in _WRAPPERS:
            # Deeper by a name that no error shows, lest a damaged file wraps itself.
            return self.build(unwrapped(model, where), table, replace(where.child("best"), path=where.path))
        if key == _TARGET and not target.by_nodes(model):
            graph = self.build(_regressor(model, where), table, where.child("regressor_"))
            return replace(graph, output=target.undone(model, graph.output, where))
        if key in _ELIMINATION and self._predicts(model):
            return self.build(
                model.record("estimator_"), apply(model, table, where), where.child("estimator_")
            )
        if key == _TARGET or key in PREDICTORS:
            return self._network(model, table, where)
        if key in self._readers:
            return self._model(model, table, where)
        if key in TRANSFORMERS:
            return self._columns(model, apply(model, table, where), where)
        raise unsupported(model, where, self._readers)

    def transform(self, model: Record, table: Table, where: Where) -> Graph | None:
        """What an estimator that predicts makes of a table by its ``transform``; None if it has none."""
        where, key = where.of(model), _key(model)
        if key in _PIPELINES:
            steps = list(steps_of(model, where))
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            return self.transform(steps[-1][1], table, steps[-1][2])
        if key in _WRAPPERS:
            inner = replace(where.child("best"), path=where.path)
            return self.transform(unwrapped(model, where), table, inner)
        if key not in TRANSFORMERS:
            return None
        try:
            return self._columns(model, apply(model, table, where), where)
        except UnsupportedModel:
            # It predicts all the same; some have a transform that the library refuses to compute, too.
            return None

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
        lowered = lower(scores, names)
        library = "scikit-learn" if model.library == "sklearn" else model.library
        feeds, inputs = narrowed(lowered.feeds.feeds), self._inputs
        if table is self._raw and not inputs.by_name and not any(feed.steps for feed in feeds):
            nan, inf = {feed.allow_nan for feed in feeds}, {feed.allow_inf for feed in feeds}
            if len(nan) == len(inf) == 1:
                # Every column as it comes: the kernels read the caller's rows.
                lowered = lower(scores, names, self._raw)
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
        where, key = where.of(model), _key(model)
        if key in _PIPELINES:
            steps = list(steps_of(model, where))
            if not steps:
                raise where.unsupported("has no step that predicts.")
            for _, estimator, place in steps[:-1]:
                table = apply(estimator, table, place)
            return self.predictor(steps[-1][1], table, steps[-1][2])
        if key in _WRAPPERS:
            return self.predictor(
                unwrapped(model, where), table, replace(where.child("best"), path=where.path)
            )
        if key == _TARGET:
            return self._undone(model, table, where)
        if key in _ELIMINATION and self._predicts(model):
            kept = apply(model, table, where)
            return self.predictor(model.record("estimator_"), kept, where.child("estimator_"))
        if key in PREDICTORS:
            if model.library == "sklearn":
                require_fitted(model)
            return PREDICTORS[key](model, table, where, self.predictor)
        if key in self._readers:
            return predictor_of(self._last(model, table, where), table)
        raise unsupported(model, where, (*PREDICTORS, *self._readers))

    def _undone(self, model: Record, table: Table, where: Where) -> Predictor:
        """The operators of a ``TransformedTargetRegressor``."""
        found = self.predictor(_regressor(model, where), table, where.child("regressor_"))
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
        return isinstance(inner, Record) and (_key(inner) in self._readers or _key(inner) in PREDICTORS)

    def _last(self, model: Record, table: Table, where: Where) -> Graph:
        """A model by itself, which reads a table."""
        if model.library == "sklearn":
            require_fitted(model)
        last = self._readers[_key(model)](model)
        if last.input.n_features != len(table):
            raise where.damaged(f"it was fitted on {last.input.n_features} columns, but gets {len(table)}.")
        return last

    def _model(self, model: Record, table: Table, where: Where) -> Graph:
        if any(is_computed(column.source) for column in other_columns(table)):
            return self._network(model, table, where)
        last = self._last(model, table, where)
        if table is self._raw:
            # Nothing is done to the rows: the model's own checks of them hold.
            return last
        if isinstance(last.anchor, Linear) and any(map(bends, other_columns(table))):
            return self._network(model, table, where)
        return compose(self._inputs, table, last, ())

    def _columns(self, model: Record, table: Table, where: Where) -> Graph:
        if not len(table):
            raise where.unsupported("keeps no column, so that there is nothing to compute.")
        library = "scikit-learn" if model.library == "sklearn" else model.library
        if table.sparse and any(isinstance(part, AllColumns) for part in parts_of(table.columns)):
            # Nothing asks for the names of a sparse matrix's columns, which may be a million.
            table = replace(table, names=None)
        output = OutputSpec(kind="transformer", n_outputs=len(table))
        frame = output_frame(model, table, where)
        columns = Columns(self._inputs.n_features, table, frame)
        # Variances are those of numbers, though any values pass the selector once it is fitted.
        numbers = frame is None and by_kernels(table, model.kind == "VarianceThreshold")
        if needs_kernels(table) and not numbers:
            raise where.unsupported(
                "gives a data frame, sparse rows or texts with numbers that kernels compute, which is not "
                "supported."
            )
        if not numbers:
            return Graph(library, model.kind, self._inputs, columns, output, told=told(table))
        rows, names = TableRows(table, allow_nan=True, allow_inf=True), self._inputs.feature_names
        lowered = lower(rows, names)
        dtype = "int64" if _key(model) == _LABEL_ENCODER else result_dtype(table)
        feeds, inputs, raw = tuple(lowered.feeds.feeds), self._inputs, None
        if model.kind in _SELECTORS and not inputs.by_name and not any(feed.steps for feed in feeds):
            # The library, too, takes rows of numbers only, those included that it leaves out.
            raw, feeds = self._raw, ()
            lowered = lower(rows, names, raw)
        # In float32, the library rounds after each step.
        narrow = dtype == "rows" and not lowered.stages
        single = lower(rows, names, raw, narrow=True).anchor if narrow else None
        return Graph(
            library,
            model.kind,
            inputs,
            lowered.anchor,
            replace(output, label_dtype=dtype),
            feeds,
            single,
            stages=lowered.stages,
            columns=lowered.columns,
            told=lowered.told,
            host=None if needs_kernels(table) else columns,
        )


def _key(model: Record) -> tuple[str, str]:
    return model.library, model.kind


def _regressor(model: Record, where: Where) -> Record:
    if not isinstance(model.get("regressor_", None), Record):
        raise UnsupportedModel(f"{where.step} is not fitted; hbtvm compiles trained models.")
    return model.record("regressor_")


def _steps(model: Record) -> tuple[tuple[str, str], ...]:
    """Names and classes of the outermost pipeline's steps; none if there is none."""
    where = Where()
    while _key(model) in (*_WRAPPERS, _TARGET):
        where = where.child("within")
        model = _regressor(model, where) if _key(model) == _TARGET else unwrapped(model, where)
    if _key(model) not in _PIPELINES:
        return ()
    return tuple((name, estimator.kind) for name, estimator, _ in steps_of(model, where))


def _within(model: Record, where: Where) -> list[Record]:
    """The estimators that get the rows as an estimator gets them, if it does nothing to them itself."""
    key = _key(model)
    if key in _PIPELINES:
        return [estimator for _, estimator, _ in steps_of(model, where)][:1]
    if key in PREDICTORS:
        return _members(model)
    if key == ("sklearn", "FeatureUnion"):
        parts = [part[1] for part in model.sequence("transformer_list") if isinstance(part, (tuple, list))]
        return [part for part in parts if isinstance(part, Record)]
    if key in _WRAPPERS:
        return [unwrapped(model, where)]
    return [_regressor(model, where)] if key == _TARGET else []


def _members(model: Record) -> list[Record]:
    """The estimators of an ensemble that read what it reads."""
    found = model.get("estimators_", None) or model.get("calibrated_classifiers_", None)
    if not isinstance(found, (list, tuple)):
        found = [model.get("estimator_", None) or model.get("estimator", None)]
    return [one for one in found if isinstance(one, Record)]


def _inputs(model: Record, where: Where, readers: Readers) -> InputSpec:
    """What the pipeline takes: the columns of the first step that knows them."""
    if _takes_values(model, where):
        return InputSpec(n_features=1, rows_are_values=True)
    found = _first(model, where)
    if found is None:
        if _key(model) in _OF_LABELS:
            return InputSpec(n_features=1, rows_are_values=True)
        if model.kind == "IsotonicRegression":
            return InputSpec(n_features=1, takes_vectors=True)
        return _of_last(model, where, readers)
    count = column_count(found)
    if count > _MOST_INPUTS:
        raise where.unsupported(f"was fitted on {count:,} columns; at most {_MOST_INPUTS:,} are supported.")
    names = feature_names(found)
    if names is not None and len(names) != count:
        raise where.damaged(f"it has names of {len(names)} columns, but {count} columns.")
    return InputSpec(
        n_features=count, feature_names=names, by_name=names is not None and _by_name(model, where)
    )


def _takes_values(model: Record, where: Where) -> bool:
    """Whether rows are one value each: if all that get the caller's rows are vectorizers."""
    if _key(model) in VECTORIZERS:
        return True
    parts = _within(model, where)
    return bool(parts) and all(_takes_values(part, where.child("within")) for part in parts)


def _first(model: Record, where: Where) -> Record | None:
    if "n_features_in_" in model:
        return model
    found = (_first(part, where.child("within")) for part in _within(model, where))
    return next((one for one in found if one is not None), None)


def _of_last(model: Record, where: Where, readers: Readers) -> InputSpec:
    """The columns of a model that alone knows them (XGBoost's and LightGBM's say so in their own ways)."""
    while _key(model) not in readers:
        if _key(model) in _PIPELINES:
            steps = [(estimator, place) for _, estimator, place in steps_of(model, where)]
        else:
            steps = [(part, where.child("within")) for part in _within(model, where)]
        if not steps and _key(model) not in COMPOSED:
            raise unsupported(model, where, readers)
        if not steps:
            raise UnsupportedModel(f"{where.of(model).step} is not fitted; hbtvm compiles trained models.")
        model, where = steps[-1]
    if model.library == "sklearn":
        require_fitted(model)
    return readers[_key(model)](model).input


def _by_name(model: Record, where: Where) -> bool:
    """Whether columns are found by name: if all that get the caller's frame are ``ColumnTransformer``s."""
    if _key(model) == ("sklearn", "ColumnTransformer"):
        return True
    parts = _within(model, where)
    return bool(parts) and all(_by_name(part, where.child("within")) for part in parts)
