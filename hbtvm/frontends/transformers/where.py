"""`Where`: the place of a step, for errors; `Estimator`: the readers of a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.graph.columns.table import Column, Raw, Table, raws_of
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.refused_rows import RefusedTypes
from hbtvm.words.printable import shown

_DEEPEST, _MOST_STEPS = 32, 10_000
"""Bounds of nested steps, and of all steps, as a step of a damaged file may hold itself."""


Rows = Literal["columns", "names", "values", "labels", "vectors"]
"""The input of an estimator: columns; a frame's columns by name; rows of one value each; labels, shape (n,);
or columns and, for a single column, vectors of shape (n,)."""


@dataclass(frozen=True)
class Estimator:
    """The readers of a class of estimators; None for methods that the class lacks."""

    model: Callable[[Record], Graph] | None = None  # reads a model outside of pipelines
    # Reads the results of ``predict`` and related methods for a table, as operators
    predicts: Callable[[Record, Table, Where], Predictor] | None = None
    # Reads the table that ``transform`` returns for a table
    transforms: Callable[[Record, Table, Where], Table] | None = None
    # Reads the results of a transformer's ``score_samples`` for a table
    scores: Callable[[Record, Table, Where], Predictor] | None = None
    inner: Callable[[Record, Where], Record] | None = None  # returns the wrapped estimator
    # Returns the innermost estimator that predicts (if the argument behind the place is true) or transforms,
    # the table that it reads, and its place; None if it is the estimator itself
    last: Callable[[Record, Table, Where, bool], tuple[Record, Table, Where] | None] | None = None
    # Returns the graph of an estimator around the innermost estimator, from the graph of the latter
    undoes: Callable[[Record, Graph, Where], Graph] | None = None
    # Returns the inner estimators that get the rows unchanged. By default `inner`, or the members of an
    # ensemble that predicts.
    first: Callable[[Record, Where], list[Record]] | None = None
    rows: Rows = "columns"  # its input
    fitted: bool = True  # whether fitting gives it attributes
    selects: bool = False  # whether it keeps some columns as they are
    transform_predicts: bool = False  # whether ``transform`` returns what ``predict`` does
    frames: bool = False  # whether ``transform`` returns data frames of pandas unless set otherwise
    section: str = ""  # the row of the table in docs/reference/models.md that names it


Section = dict[str, Estimator]
"""Estimators by the names of their classes: several where they are read alike, with a library if another."""


@dataclass
class RowRules:
    """Steps' rules for the caller's rows, see `hbtvm.graph.graph.InputSpec`; filled in as steps are read."""

    sparse_refused: str = ""
    types_refused: list[RefusedTypes] = field(default_factory=list)

    def applied(self, graph: Graph) -> Graph:
        """Return a graph whose input has these rules; types of columns that nothing reads do not matter."""
        if not self.sparse_refused and not self.types_refused:
            return graph
        read = _columns_read(graph)
        types = [rule for rule in dict.fromkeys(self.types_refused) if not read.isdisjoint(rule.columns)]
        refused = tuple(
            rule if rule.together else replace(rule, columns=tuple(i for i in rule.columns if i in read))
            for rule in types
        )
        return replace(
            graph, input=replace(graph.input, sparse_refused=self.sparse_refused, types_refused=refused)
        )


def _columns_read(graph: Graph) -> set[int]:
    """Return the indices of the input's columns that a graph reads."""
    if isinstance(graph.anchor, Columns):
        sources = [column.source for column in graph.anchor.table.columns]
    elif graph.feeds:
        sources = [feed.source for feed in graph.feeds]
    else:
        return set(range(graph.input.n_features))
    return {index for source in sources for index in raws_of(source)}


@dataclass(frozen=True)
class Where:
    """The path to a step."""

    path: tuple[str, ...] = ()  # names of the steps from the outermost on; empty for a transformer by itself
    kind: str = ""  # the step's class
    names: tuple[str, ...] | None = None  # names of the input's columns, where it has any
    # One number, that of the steps seen so far
    visited: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)
    # What the steps seen so far say of the caller's rows
    rules: RowRules = field(default_factory=RowRules, compare=False, repr=False)
    # The classes that are supported, by library and name
    estimators: Mapping[tuple[str, str], Estimator] = field(default_factory=dict, compare=False, repr=False)

    def how(self, record: Record) -> Estimator:
        """Return an estimator's readers; none if its class is not supported."""
        return self.estimators.get((record.library, record.kind), Estimator())

    def of(self, record: Record) -> Where:
        """Return this place, with the estimator that it holds."""
        return replace(self, kind=record.kind)

    def child(self, name: object) -> Where:
        """Return the place of an inner step.

        Raises `ModelError` if steps are nested beyond any sense.
        """
        if len(self.path) >= _DEEPEST:
            raise ModelError(f"the model is damaged: steps within steps, {_DEEPEST} deep.")
        self.visited[0] += 1
        if self.visited[0] > _MOST_STEPS:
            raise ModelError(f"the model is damaged: it has more than {_MOST_STEPS:,} steps.")
        return replace(self, path=(*self.path, shown(name, 40)), kind="")

    @property
    def step(self) -> str:
        """The step as scikit-learn writes it, such as ``step 'prep__scale' (StandardScaler)``."""
        if not self.path:
            return f"the {self.kind}" if self.kind else "the model"
        name = f"step '{'__'.join(self.path)}'"
        return f"{name} ({self.kind})" if self.kind else name

    def column(self, column: Column) -> str:
        """Describe the step, and the input's column that a table's column depends on."""
        if not isinstance(column.source, Raw):
            return f"{self.step}, a column made by another step"
        index = column.source.index
        return f"{self.step}, column {index if self.names is None else repr(self.names[index])}"

    def refuse_sparse(self, table: Table, reason: str) -> None:
        """Refuse a sparse table; or the caller's sparse rows, where the table is sparse if they are.

        `reason`: goes on after the step's name.
        Raises `UnsupportedModel` if the table is sparse.
        """
        if table.sparse:
            raise self.unsupported(f"gets a sparse matrix, but {reason}.")
        if table.sparse is None and not self.rules.sparse_refused:
            self.rules.sparse_refused = f"{self.step} {reason}"

    def unsupported(self, sentence: str) -> UnsupportedModel:
        """Return the error for an unsupported feature; `sentence` continues behind the step's name."""
        return UnsupportedModel(f"{self.step} {sentence}")

    def damaged(self, sentence: str) -> ModelError:
        """Return the error for a contradiction in the step."""
        return ModelError(f"{self.step} is damaged: {sentence}")
