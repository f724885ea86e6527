"""From the stages of a saved pipeline, a graph over named columns, to a graph of columns by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import feature_count
from hbtvm.frontends.damage import damage_of
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pipelines import Builder
from hbtvm.frontends.spark.cells import width_of
from hbtvm.frontends.spark.saved import PIPELINE
from hbtvm.frontends.spark.trees import with_whole_categories
from hbtvm.frontends.transformers.dispatch import apply, predicts, read_predictor, require_width, unsupported
from hbtvm.frontends.transformers.where import Estimator, RowRules, Where
from hbtvm.graph.columns.table import Column, Raw, Table, side_by_side
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import computed_columns
from hbtvm.words.printable import shown

_ASSEMBLER, _INDEXER, _TO_STRING = "VectorAssembler", "StringIndexerModel", "IndexToString"

_OF_SCALARS = (
    *(_ASSEMBLER, _INDEXER, "OneHotEncoderModel", "Bucketizer", "ImputerModel", "Binarizer"),
    "IsotonicRegressionModel",
)
"""Stages whose input from the frame is a number or a text, not a vector."""

_TO_SCALARS = (_INDEXER, "Bucketizer", "ImputerModel")
"""Stages that write a number, not a vector; a ``Binarizer`` does of numbers."""

_PREDICTIONS = {
    "predictionCol": ("index", "response"),
    "probabilityCol": ("proba",),
    "rawPredictionCol": ("decision",),
}
"""Parameters that name a model's output columns, and the names of their nodes."""


@dataclass
class _Stage:
    """A stage for one of its columns, and the names of the columns that it reads and writes."""

    record: Record
    where: Where
    reads: list[str]
    writes: list[str]
    used: bool = field(default=False)

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def predicts(self) -> bool:
        return predicts(self.where.how(self.record))


@dataclass
class _Known:
    """The columns that are computed so far, by name, and which of them are numbers rather than vectors."""

    tables: dict[str, Table]
    scalars: set[str]

    def read(self, stage: _Stage) -> Table:
        """Return the columns that a stage reads."""
        tables = [self.tables[name] for name in stage.reads]
        table = tables[0] if len(tables) == 1 else side_by_side(tables)
        require_width(len(table), stage.where)
        if stage.kind == _ASSEMBLER:
            widths = ((name in self.scalars, len(self.tables[name])) for name in stage.reads)
            stage.record.attributes["scalars"] = [scalar for scalar, width in widths for _ in range(width)]
        return with_whole_categories(stage.record, table) if "trees" in stage.record else table

    def evaluate(self, stage: _Stage, where: Where) -> None:
        """Add the columns that a stage writes."""
        table = self.read(stage)
        if stage.predicts:
            outputs = read_predictor(stage.record, table, where).outputs
            for parameter, nodes in _PREDICTIONS.items():
                for node in nodes:
                    if node in outputs and stage.record.get(parameter, ""):
                        self.tables[str(stage.record.get(parameter))] = Table(computed_columns(outputs[node]))
            self.scalars.add(str(stage.record.get("predictionCol", "")))
            return
        self.tables[stage.writes[0]] = apply(stage.record, table, where)
        keeps = stage.kind == "Binarizer" and stage.reads[0] in self.scalars
        if keeps or stage.kind in _TO_SCALARS:
            self.scalars.add(stage.writes[0])


def read(model: Record, estimators: Mapping[tuple[str, str], Estimator]) -> Graph:
    """Read a saved pipeline, or a single stage.

    `estimators`: the supported stages.
    Returns a graph of the last model's outputs, or of the last stage's output if no stage predicts. Its rows
    are the frame's columns by name; or the features, if a vector is all that it reads.
    Raises `UnsupportedModel` if a stage is not supported. Raises `ModelError` if it is damaged.
    """
    rules = RowRules()
    parts = list(_flat(model, Where(estimators=estimators, rules=rules)))
    with damage_of(f"the {model.kind}"):
        graph = _read([stage for record, where in parts for stage in _stages(record, where)])
    steps = tuple((shown(record.get("uid", ""), 80), record.kind) for record, _ in parts)
    return replace(rules.applied(graph), steps=steps if len(steps) > 1 else ())


def _read(stages: Sequence[_Stage]) -> Graph:
    if not stages:
        raise UnsupportedModel("the pipeline has no stages, so there is nothing to compile.")
    last = max((i for i, stage in enumerate(stages) if stage.predicts), default=len(stages) - 1)
    final, after = stages[last], stages[last + 1 :]
    _require_supported([final])
    labels = _strings(final, after)
    if labels is not None:
        final.record.attributes["labels"] = labels
    used, raws = _needed(stages[: last + 1])
    _require_supported(used)
    inputs, known = _inputs(used, raws)
    names = inputs.feature_names
    for stage in used[:-1]:
        known.evaluate(stage, replace(stage.where, names=names))
    builder = Builder(inputs, known.tables[raws[0]])
    where, table = replace(final.where, names=names), known.read(final)
    if final.predicts:
        return builder.build(final.record, table, where)
    return builder.columns(final.record, apply(final.record, table, where), where)


def _flat(model: Record, where: Where) -> Iterator[tuple[Record, Where]]:
    """Yield the stages of nested pipelines, with their places."""
    if model.kind != PIPELINE:
        yield model, where.of(model)
        return
    for stage in model.records("stages"):
        yield from _flat(stage, where.child(stage.get("uid", "")))


def _stages(record: Record, where: Where) -> Iterator[_Stage]:
    """Yield a stage; for each of its columns, if it computes one of another."""
    if predicts(where.how(record)):
        writes = [str(record.get(name)) for name in _PREDICTIONS if record.get(name, "")]
        yield _Stage(record, where, [record.text("featuresCol")], writes)
        return
    reads = _names(record, "inputCols") or [*_names(record, "inputCol"), *_names(record, "featuresCol")][:1]
    writes = _names(record, "outputCols") if _names(record, "inputCols") else _names(record, "outputCol")
    if record.kind == "VectorSizeHint":
        writes = reads
    if record.kind == _ASSEMBLER:
        writes = _names(record, "outputCol")
    elif where.how(record).transforms is not None and len(reads) == len(writes) > 0:
        for at, (name, output) in enumerate(zip(reads, writes, strict=True)):
            part = Record(record.cls)
            part.state = {**record.attributes, "at": at, "column": name}
            yield _Stage(part, where, [name], [output])
        return
    if where.how(record).transforms is not None and (not reads or len(writes) != 1):
        raise where.damaged("it does not name the columns that it reads and writes.")
    yield _Stage(record, where, reads, writes)


def _names(record: Record, parameter: str) -> list[str]:
    """Return the names of columns that a parameter holds; empty without such a parameter."""
    value = record.get(parameter, None)
    names = value if isinstance(value, list) else [value] if value else []
    return [str(name) for name in names]


def _require_supported(stages: Sequence[_Stage]) -> None:
    for stage in stages:
        record, where = stage.record, stage.where
        if where.how(record).transforms is None and not stage.predicts:
            fitted = stage.kind.replace("Classifier", "Classification").replace("Regressor", "Regression")
            if (record.library, f"{fitted}Model") in where.estimators or stage.kind == "Pipeline":
                raise where.unsupported("is not fitted; save the model that its fit returns.")
            raise unsupported(record, where)


def _strings(final: _Stage, after: Sequence[_Stage]) -> list[str] | None:
    """Return the strings that ``IndexToString`` behind a model makes of predictions; None without such."""
    for stage in after:
        if stage.kind != _TO_STRING or stage.reads != [final.record.get("predictionCol", None)]:
            continue
        labels = stage.record.get("labels", None)
        if isinstance(labels, list) and labels and all(isinstance(label, str) for label in labels):
            return labels
        raise stage.where.unsupported("has no labels; set its labels to those of the StringIndexerModel.")
    return None


def _needed(stages: Sequence[_Stage]) -> tuple[list[_Stage], list[str]]:
    """Return the stages that the last depends on, in order, and the frame's columns that they read."""
    wanted = dict.fromkeys(stages[-1].reads)
    used = [stages[-1]]
    for stage in reversed(stages[:-1]):
        if any(name in wanted for name in stage.writes):
            used.append(stage)
            for name in stage.writes:
                wanted.pop(name, None)
            wanted |= dict.fromkeys(stage.reads)
    used.reverse()
    order = dict.fromkeys(name for stage in used for name in stage.reads)
    return used, [name for name in order if name in wanted]


def _inputs(stages: Sequence[_Stage], raws: Sequence[str]) -> tuple[InputSpec, _Known]:
    """Return the specification of the rows, and the frame's columns."""
    readers = [stage for stage in stages if any(name in raws for name in stage.reads)]
    vectors = [stage for stage in readers if stage.kind not in _OF_SCALARS]
    if not vectors:
        require_width(len(raws), stages[-1].where)
        columns = {name: Table((Column(Raw(i)),)) for i, name in enumerate(raws)}
        return InputSpec(len(raws), tuple(raws), by_name=True), _Known(columns, {*raws})
    where = vectors[0].where
    if len(raws) > 1 or len(vectors) < len(readers):
        raise where.unsupported(
            f"reads the column {shown(vectors[0].reads[0], 40)!r} of vectors, beside other columns, which is "
            "not supported; let a VectorAssembler make the vectors within the pipeline."
        )
    widths = [width for width in map(width_of, (stage.record for stage in vectors)) if width is not None]
    if not widths:
        raise where.unsupported("does not say how many features it reads; put a VectorAssembler before it.")
    width = feature_count(widths[0])
    require_width(width, where)
    columns = {raws[0]: Table(tuple(Column(Raw(i)) for i in range(width)))}
    return InputSpec(width), _Known(columns, set())
