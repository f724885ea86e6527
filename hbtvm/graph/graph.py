"""`Graph`: a trained model, or a whole pipeline, apart from its library: feeds, an anchor, outputs.

Rows flow through it like this: the caller's columns (`InputSpec`) become the columns of a matrix (`feeds`, by
numpy on the host: codes of categories, what no kernel computes), a kernel computes raw scores from the matrix
(`anchor`), and labels, probabilities and so on follow from the scores (`OutputSpec`). Without feeds the
matrix is the caller's rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from hbtvm.errors import InputError
from hbtvm.graph.categories import CategoryList, certain, named, place
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.ensemble import TreeEnsemble
from hbtvm.graph.feeds import Feed
from hbtvm.graph.network import Linear, Network
from hbtvm.graph.output import OutputSpec
from hbtvm.graph.prologue import Scaled
from hbtvm.graph.refused_rows import RefusedTypes
from hbtvm.graph.stages import Stage

_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("by_name", "rows_are_values", "takes_vectors"), False),
    "sparse_refused": "",
    "types_refused": [],
}
"""Fields that `InputSpec.to_json` leaves out where they have these values."""


@dataclass(frozen=True)
class InputSpec:
    """What the model accepts.

    Attributes
    ----------
    n_features
        Number of columns.
    feature_names
        Column names where the model was trained with names; a data frame's columns are then
        checked (and named in errors).
    allow_nan, allow_inf
        Whether the library accepts NaN (infinities) in the input; otherwise they are refused.
    categories
        For columns that are given as categories: column index to the category values
        (strings, numbers or bools) in the order of their codes.
    unknown_category
        What the library does with a value not in `categories`: ``"missing"`` or ``"error"``.
    numbers_are_categories
        Whether the columns of `categories` hold category values even in a plain array, to be
        replaced by their codes (scikit-learn); otherwise an array holds the codes already.
    missing_value
        A number that means missing, beside NaN (XGBoost's ``missing``). Input is compared with it
        in float32 and replaced by NaN.
    category_order
        Where it is not certain which columns are given as categories: the categories of them all, in
        the order of the columns, see `placed`. `categories` then has only those that are certain. Empty
        otherwise.
    by_name
        Whether a data frame's columns are found by their names, in any order and among any others (as
        scikit-learn's ColumnTransformer finds them), rather than being exactly `feature_names`.
    rows_are_values
        Whether a row is one value by itself, such as a text or a dict of features, not a sequence of columns.
    takes_vectors
        Whether an array of shape (n,) is n rows of the only column, too (``IsotonicRegression``).
    sparse_refused
        Why sparse rows are refused, in a sentence: the library gives them other answers than dense ones, or
        refuses them. Empty where they are read.
    types_refused
        Types of integers that columns may not have.

    A column for which `categories` lists no value is not read, and may hold anything.
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    allow_nan: bool = True
    allow_inf: bool = True
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    unknown_category: Literal["missing", "error"] = "missing"
    numbers_are_categories: bool = False
    missing_value: float | None = None
    category_order: tuple[CategoryList, ...] = ()
    by_name: bool = False
    rows_are_values: bool = False
    takes_vectors: bool = False
    sparse_refused: str = ""
    types_refused: tuple[RefusedTypes, ...] = ()

    def placed(self, sure: Collection[int], words: Collection[int]) -> InputSpec:
        """Return the specification for rows that show which columns hold categories.

        Parameters
        ----------
        sure
            Columns that hold categories in the rows for certain.
        words
            Those of them that hold text.

        Returns
        -------
        Without `category_order`, everything in `categories`.

        Raises
        ------
        InputError
            If it is still not certain for all columns, or the rows' columns can't be the model's.
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

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values from which `from_json` makes an equal specification."""
        result = {f.name: getattr(self, f.name) for f in fields(self)}
        result["feature_names"] = None if self.feature_names is None else list(self.feature_names)
        # JSON has no integer keys.
        result["categories"] = [[column, list(values)] for column, values in self.categories.items()]
        order = [[list(one.values), list(one.columns)] for one in result.pop("category_order")]
        result["types_refused"] = [one.to_json() for one in self.types_refused]
        # Left out where there is none: older releases read such specifications, too.
        if order:
            result["category_order"] = order
        for name in _OPTIONAL:
            if not result[name]:
                del result[name]
        return result

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> InputSpec:
        """Return the specification whose `to_json` is given.

        Raises
        ------
        ValueError
            If a field is missing, unknown or has a value that cannot be.
        """
        names = {f.name for f in fields(cls)}
        data = {"category_order": [], **_OPTIONAL, **data}
        if set(data) != names:
            raise ValueError(
                f"input specification: fields {sorted(names ^ set(data))} are missing or unknown"
            )
        n_features, columns = data["n_features"], data["feature_names"]
        if not isinstance(n_features, int) or n_features < 1:
            raise ValueError(f"input specification: n_features is {n_features!r}")
        if columns is not None and len(columns) != n_features:
            raise ValueError(f"input specification: {len(columns)} feature_names for {n_features} features")
        if data["unknown_category"] not in ("missing", "error"):
            raise ValueError(f"input specification: unknown_category is {data['unknown_category']!r}")
        values = dict(data)
        values["feature_names"] = None if columns is None else tuple(columns)
        values["categories"] = {column: tuple(known) for column, known in data["categories"]}
        if any(not 0 <= column < n_features for column in values["categories"]):
            raise ValueError("input specification: categories of a column that is not there")
        values["category_order"] = tuple(
            CategoryList(tuple(known), tuple(columns)) for known, columns in data["category_order"]
        )
        for one in values["category_order"]:
            if any(type(column) is not int or not 0 <= column < n_features for column in one.columns):
                raise ValueError(f"input specification: categories may be in the columns {one.columns!r}")
        if not isinstance(data["sparse_refused"], str):
            raise ValueError(f"input specification: sparse_refused is {data['sparse_refused']!r}")
        values["types_refused"] = tuple(
            RefusedTypes.from_json(one, n_features) for one in data["types_refused"]
        )
        return cls(**values)


KernelAnchor = TreeEnsemble | Linear | Network
"""What a kernel computes."""

Anchor = KernelAnchor | Columns
"""What makes a graph's scores: a kernel, or (`Columns`) the host."""


@dataclass(frozen=True)
class Graph:
    """Everything that predicts as the library does.

    Attributes
    ----------
    library
        ``"scikit-learn"``, ``"xgboost"`` or ``"lightgbm"``.
    model
        The library's class name, e.g. ``"RandomForestClassifier"``; of a pipeline, that of its last step.
    input
        Columns, names, missing values, categories of what the caller gives.
    anchor
        From the matrix's rows to raw scores.
    output
        Raw scores to labels, probabilities, and so on.
    feeds
        The columns of the matrix; empty where it is the caller's rows as `input` says.
    single
        The anchor for callers whose numbers are all float32, where transformers that round in float32 make it
        another one; None where `anchor` serves both.
    scaled
        Trees that end in the same leaves as `anchor` for float64 rows, for kernels that compute the
        arithmetic in front of them; None where that is none, or of another form.
    stages
        Kernels that run before that of the anchor, in order; what they make are further columns of the
        matrix, behind the feeds or the caller's columns.
    host
        Where the anchor's kernels make what a pipeline returns that transforms: what the host may compute in
        their place, for targets that have no such kernels.
    columns
        With stages: which columns of the matrix the anchor reads.
    steps
        Names of a pipeline's steps with their classes, in order; empty for a bare model.
    told
        What was done to the graph, in sentences for the user.
    transform
        What the library's ``transform`` gives, where it has one beside ``predict``.
    scores
        Of a transformer, what the library's ``score_samples`` gives, where it has that.
    """

    library: str
    model: str
    input: InputSpec
    anchor: Anchor
    output: OutputSpec
    feeds: tuple[Feed, ...] = ()
    single: Anchor | None = None
    scaled: Scaled | None = None
    stages: tuple[Stage, ...] = ()
    host: Columns | None = None
    columns: tuple[int, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    told: tuple[str, ...] = ()
    transform: Graph | None = None
    scores: Graph | None = None
