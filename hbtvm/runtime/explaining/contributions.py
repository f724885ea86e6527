"""The output ``contributions`` of services, engines and files: Shapley values as columns.

For each raw score, a row has the contribution of each of the model's columns, and then the base value, as
LightGBM's and XGBoost's ``pred_contrib``: the columns of a score add up to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.explain import names_of_columns, names_of_outputs

if TYPE_CHECKING:
    from hbtvm.runtime.model import Model

CONTRIBUTIONS = "contributions"


def has_contributions(model: Model) -> bool:
    """Return whether the package has the code that computes contributions."""
    return "reasons" in model.views


def contributions(model: Model) -> Model:
    """Return the model whose ``predict`` returns contributions, float64, shape (n, columns).

    Raises `InputError` if the package has none.
    """
    if not has_contributions(model):
        reason = model.package.no_views.get("reasons")
        why = "it was compiled without explain=True (hbtvm compile --explain)" if reason is None else reason
        raise InputError(f"this package of {model.package.model} has no contributions: {why}.")
    view: Model = model.views["reasons"]
    return view


def contribution_names(model: Model) -> list[str]:
    """Return the names of the columns, which begin with the score's name if there are several scores.

    Raises `InputError` as `contributions`.
    """
    scores, width = contributions(model).package.output.shape
    columns = [*names_of_columns(model, width - 1), "base_value"]
    if scores == 1:
        return columns
    return [f"{score}_{column}" for score in names_of_outputs(model, "raw", scores) for column in columns]
