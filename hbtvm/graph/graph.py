"""`Graph`: a trained model, or a whole pipeline, apart from its library: feeds, an anchor, outputs.

Rows flow through it like this: the caller's columns (`InputSpec`) become the columns of a matrix (`feeds`, by
numpy on the host: codes of categories, what no kernel computes), a kernel computes raw scores from the matrix
(`anchor`), and labels, probabilities and so on follow from the scores (`OutputSpec`). Without feeds the
matrix is the caller's rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.graph.columns.categories import CategoryList, certain, named, place
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.refused_rows import RefusedTypes
from hbtvm.graph.stages import Stage
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Scaled


@dataclass(frozen=True)
class InputSpec:
    """What the model accepts."""

    n_features: codec.Count  # number of columns
    # Column names where the model was trained with names; a data frame's columns are then checked (and named
    # in errors)
    feature_names: tuple[str, ...] | None = None
    # `allow_nan`, `allow_inf`: whether the library accepts NaN (infinities) in the input; otherwise they are
    # refused
    allow_nan: bool = True
    allow_inf: bool = True
    # For columns that are given as categories: column index to the category values (strings, numbers or
    # bools) in the order of their codes
    categories: dict[codec.Index, tuple[codec.Scalar, ...]] = field(default_factory=dict)
    # What the library does with a value not in `categories`: ``"missing"`` or ``"error"``
    unknown_category: Literal["missing", "error"] = "missing"
    # Whether the columns of `categories` hold category values even in a plain array, to be replaced by their
    # codes (scikit-learn); otherwise an array holds the codes already
    numbers_are_categories: bool = False
    # A number that means missing, beside NaN (XGBoost's ``missing``). Input is compared with it in float32
    # and replaced by NaN.
    missing_value: float | None = None
    # Where it is not certain which columns are given as categories: the categories of them all, in the order
    # of the columns, see `placed`. `categories` then has only those that are certain. Empty otherwise.
    category_order: tuple[CategoryList, ...] = ()
    # Whether a data frame's columns are found by their names, in any order and among any others (as
    # scikit-learn's ColumnTransformer finds them), rather than being exactly `feature_names`
    by_name: bool = False
    # Whether a row is one value by itself, such as a text or a dict of features, not a sequence of columns
    rows_are_values: bool = False
    # Whether an array of shape (n,) is n rows of the only column, too (``IsotonicRegression``)
    takes_vectors: bool = False
    # Why sparse rows are refused, in a sentence: the library gives them other answers than dense ones, or
    # refuses them. Empty where they are read.
    sparse_refused: str = ""
    types_refused: tuple[RefusedTypes, ...] = ()  # types of integers that columns may not have

    def validate(self) -> None:
        """Check that what is said of columns is of columns that there are.

        Raises `ValueError` if it is not.
        """
        names = self.feature_names
        lists: tuple[CategoryList | RefusedTypes, ...] = (*self.category_order, *self.types_refused)
        if names is not None and len(names) != self.n_features:
            raise ValueError(f"{len(names)} feature_names for {self.n_features} features")
        for column in (*self.categories, *(column for one in lists for column in one.columns)):
            if column >= self.n_features:
                raise ValueError(f"column {column} of {self.n_features} has categories or types")

    def placed(self, sure: Collection[int], words: Collection[int]) -> InputSpec:
        """Return the specification for rows that show which columns hold categories.

        `sure`: columns that hold categories in the rows for certain.
        `words`: those of them that hold text.
        Returns without `category_order`, everything in `categories`. Raises `InputError` if it is still not
        certain for all columns, or the rows' columns can't be the model's.
        """
        if not self.category_order:
            return self
        options = place(self.category_order, sure, words)
        if not options:
            raise InputError(
                f"the model was trained with categories in {len(self.category_order)} columns, but not in "
                f"just these: {named(sorted(sure), self.feature_names)}."
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


KernelAnchor = TreeEnsemble | Linear | Network  # what a kernel computes
Anchor = KernelAnchor | Columns  # what makes a graph's scores: a kernel, or (`Columns`) the host


@dataclass(frozen=True)
class Graph:
    """Everything that predicts as the library does."""

    library: str  # ``"scikit-learn"``, ``"xgboost"`` or ``"lightgbm"``
    # The library's class name, e.g. ``"RandomForestClassifier"``; of a pipeline, that of its last step.
    model: str
    input: InputSpec  # columns, names, missing values, categories of what the caller gives
    anchor: Anchor  # from the matrix's rows to raw scores
    output: OutputSpec  # raw scores to labels, probabilities, and so on
    # The columns of the matrix; empty where it is the caller's rows as `input` says
    feeds: tuple[Feed, ...] = ()
    # The anchor for callers whose numbers are all float32, where transformers that round in float32 make it
    # another one; None where `anchor` serves both
    single: Anchor | None = None
    # Trees that end in the same leaves as `anchor` for float64 rows, for kernels that compute the arithmetic
    # in front of them; None where that is none, or of another form
    scaled: Scaled | None = None
    # Kernels that run before that of the anchor, in order; what they make are further columns of the matrix,
    # behind the feeds or the caller's columns
    stages: tuple[Stage, ...] = ()
    # Where the anchor's kernels make what a pipeline returns that transforms: what the host may compute in
    # their place, for targets that have no such kernels
    host: Columns | None = None
    columns: tuple[int, ...] = ()  # with stages: which columns of the matrix the anchor reads
    # Names of a pipeline's steps with their classes, in order; empty for a bare model
    steps: tuple[tuple[str, str], ...] = ()
    told: tuple[str, ...] = ()  # what was done to the graph, in sentences for the user
    transform_predicts: bool = False  # whether ``transform`` returns what ``predict`` does
    # Whether ``transform`` returns integers and bools in the type of the caller's rows
    keeps_integers: bool = False
    # What the library's ``transform`` gives, where it has one beside ``predict``
    transform: Graph | None = None
    # Of a transformer, what the library's ``score_samples`` gives, where it has that
    scores: Graph | None = None
