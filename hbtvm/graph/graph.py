"""`Graph`: a trained model, or a whole pipeline, independent of its library: feeds, an anchor, outputs.

The caller's columns (`InputSpec`) become the columns of a matrix (`feeds`, by numpy on the host: codes of
categories, and columns that no kernel computes). A kernel computes raw scores from the matrix (`anchor`).
Labels, probabilities and so on follow from the scores (`OutputSpec`). Without feeds the matrix is the
caller's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.graph.columns.categories import CategoryList, certain, named, place
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.python_steps import PythonStep
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.refused_rows import RefusedTypes
from hbtvm.graph.stages import Stage
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Scaled
from hbtvm.operators.base import Node


@dataclass(frozen=True)
class InputSpec:
    """The rows that the model accepts."""

    n_features: codec.Count  # number of columns
    # Column names, if the model was trained with names; a data frame's columns are then checked by them
    feature_names: tuple[str, ...] | None = None
    # `allow_nan`, `allow_inf`: whether the library accepts NaN (infinities)
    allow_nan: bool = True
    allow_inf: bool = True
    # For columns of categories: column index to the category values (strings, numbers or bools) in the order
    # of their codes
    categories: dict[codec.Index, tuple[codec.Scalar, ...]] = field(default_factory=dict)
    unknown_category: Literal["missing", "error"] = "missing"  # meaning of a value not in `categories`
    # Whether the columns of `categories` hold category values even in a plain array (scikit-learn); otherwise
    # an array holds the codes already
    numbers_are_categories: bool = False
    # A number that means missing, beside NaN (XGBoost's ``missing``). Rows are compared with it in float32.
    missing_value: float | None = None
    # If it is uncertain which columns hold categories: the categories of all, in the order of the columns;
    # `categories` then has only the certain columns. See `placed`.
    category_order: tuple[CategoryList, ...] = ()
    # Whether a data frame's columns are looked up by name, in any order and among others (as scikit-learn's
    # ColumnTransformer does), rather than being exactly `feature_names`
    by_name: bool = False
    # Whether a row is a single value, such as a text or a dict of features, not a sequence of columns
    rows_are_values: bool = False
    # Whether an array of shape (n,) is n rows of the only column, too (``IsotonicRegression``)
    takes_vectors: bool = False
    # Why sparse rows are refused, in a sentence: the library refuses them, or predicts otherwise for them.
    # Empty if they are read.
    sparse_refused: str = ""
    types_refused: tuple[RefusedTypes, ...] = ()  # types of integers that are refused

    def validate(self) -> None:
        """Check that the fields refer to existing columns.

        Raises `ValueError` otherwise.
        """
        names = self.feature_names
        lists: tuple[CategoryList | RefusedTypes, ...] = (*self.category_order, *self.types_refused)
        if names is not None and len(names) != self.n_features:
            raise ValueError(f"{len(names)} feature_names for {self.n_features} features")
        for column in (*self.categories, *(column for known in lists for column in known.columns)):
            if column >= self.n_features:
                raise ValueError(f"column {column} of {self.n_features} has categories or types")

    def placed(self, categorical: Collection[int], words: Collection[int]) -> InputSpec:
        """Return the specification for rows that show which columns hold categories.

        `categorical`: columns that certainly hold categories in the rows.
        `words`: those of them that hold text.
        Returns a specification with all categories in `categories`. Raises `InputError` if columns are still
        uncertain, or the rows' columns can't be the model's.
        """
        if not self.category_order:
            return self
        options = place(self.category_order, categorical, words)
        if not options:
            raise InputError(
                f"the model was trained with categories in {len(self.category_order)} columns, but not in "
                f"just these: {named(sorted(categorical), self.feature_names)}."
            )
        known, uncertain = certain(self.category_order, options)
        unread = {column: values for column, values in self.categories.items() if not values}
        uncertain = [column for column in uncertain if column not in unread]
        if uncertain:
            raise InputError(
                f"{named(uncertain, self.feature_names)}: the model file does not say which of them held "
                "categories in training and which numbers; expected a data frame with category columns as "
                "in training, or an array of numbers with codes in place of categories."
            )
        return replace(self, categories={**unread, **known}, category_order=())


KernelAnchor = TreeEnsemble | TreeReasons | Linear | Network  # computed by a kernel
Anchor = KernelAnchor | Columns  # computes a graph's scores: a kernel, or (`Columns`) the host


@dataclass(frozen=True)
class Graph:
    """A model that predicts as its library does."""

    library: str  # ``"scikit-learn"``, ``"xgboost"``, ``"lightgbm"`` or ``"catboost"``
    model: str  # the library's class, e.g. ``"RandomForestClassifier"``; a pipeline's last step
    input: InputSpec  # the caller's rows
    anchor: Anchor  # from the matrix's rows to raw scores
    output: OutputSpec  # from raw scores to labels, probabilities, and so on
    feeds: tuple[Feed, ...] = ()  # the columns of the matrix; empty if it is the caller's rows
    # The anchor for float32 rows, if transformers that round in float32 change it; None if `anchor` serves
    # both types
    single: Anchor | None = None
    # Trees that end in the same leaves as `anchor` for float64 rows, for kernels that compute the affine
    # prologue; None if the prologue is not affine
    scaled: Scaled | None = None
    # Kernels that run before the anchor's, in order; their results are further columns of the matrix, behind
    # the feeds or the caller's columns
    stages: tuple[Stage, ...] = ()
    # Of a pipeline that transforms by kernels: its columns, for targets without such kernels
    host: Columns | None = None
    columns: tuple[int, ...] = ()  # with stages: the columns of the matrix that the anchor reads
    steps: tuple[tuple[str, str], ...] = ()  # names and classes of a pipeline's steps; empty for a bare model
    rewrites: tuple[str, ...] = ()  # rewrites of the graph, in sentences for the user
    transform_predicts: bool = False  # whether ``transform`` returns the result of ``predict``
    keeps_integers: bool = False  # whether ``transform`` keeps the type of rows that are integers or bools
    transform: Graph | None = None  # the library's ``transform``, if it has one beside ``predict``
    # From rows to raw scores as nodes, if no single kernel computes the scores of a bare model
    scores_of: Callable[[Node], Node] | None = None
    scores: Graph | None = None  # a transformer's ``score_samples``, if it has one
    # Further graphs over the same rows, by name, and why a name has none; see `hbtvm.graph.views`
    views: Mapping[str, Graph] = field(default_factory=dict)
    no_views: Mapping[str, str] = field(default_factory=dict)
    # Steps that stay in Python: they compute the caller's rows of this graph
    python: tuple[PythonStep, ...] = ()
    lead: Graph | None = (
        None  # computes the rows of the first step of `python`; None if it reads the caller's
    )

    @property
    def reads_finite(self) -> bool:
        """Whether rows with NaN or infinities among the numbers that the kernel reads are refused."""
        if self.stages:  # what they compute is not checked
            return False
        if not self.feeds:
            return not (self.input.allow_nan or self.input.allow_inf)
        return all(feed.encoder is not None or not (feed.allow_nan or feed.allow_inf) for feed in self.feeds)
