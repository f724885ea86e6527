"""A trained model, library left behind: what comes in, the forest, what goes out."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        A number that stands for a missing value, beside NaN (XGBoost's ``missing``); it has
        to be replaced by NaN, compared in float32.
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    allow_nan: bool = True
    allow_inf: bool = True
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    unknown_category: Literal["missing", "error"] = "missing"
    numbers_are_categories: bool = False
    missing_value: float | None = None


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
