"""`Pipeline`: a trained model apart from its library, as input specification, ensemble and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from hbtvm.pipeline.ensemble import TreeEnsemble
from hbtvm.pipeline.output import OutputSpec


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
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    allow_nan: bool = True
    allow_inf: bool = True
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    unknown_category: Literal["missing", "error"] = "missing"
    numbers_are_categories: bool = False
    missing_value: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values from which `from_json` makes an equal specification."""
        result = {f.name: getattr(self, f.name) for f in fields(self)}
        result["feature_names"] = None if self.feature_names is None else list(self.feature_names)
        # JSON has no integer keys.
        result["categories"] = [[column, list(values)] for column, values in self.categories.items()]
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
        return cls(**values)


@dataclass(frozen=True)
class Pipeline:
    """Everything that predicts as the library does.

    Attributes
    ----------
    library
        ``"scikit-learn"``, ``"xgboost"`` or ``"lightgbm"``.
    model
        The library's class name, e.g. ``"RandomForestClassifier"``.
    input
        Columns, names, missing values, categories.
    ensemble
        The forest: input row to raw scores.
    output
        Raw scores to labels, probabilities, and so on.
    """

    library: str
    model: str
    input: InputSpec
    ensemble: TreeEnsemble
    output: OutputSpec
