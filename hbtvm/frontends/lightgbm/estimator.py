"""LightGBM's boosters and estimators of pickles: the model text and the estimator's attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.lightgbm.model import ModelText, read_text
from hbtvm.frontends.lightgbm.output import booster_output, estimator_output
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import fitted_booster, kind_of
from hbtvm.graph.graph import Graph


def read_booster(model: Record) -> Graph:
    """Read a ``lightgbm.Booster``: its trees up to ``best_iteration``, as its ``predict`` uses them.

    Raises `UnsupportedModel` if the model is not fitted, or has an objective that is not known.
    """
    text = text_of(model)
    return read_text(text, "Booster", booster_output(text.objective, text.n_outputs, text.average))


def read_estimator(model: Record) -> Graph:
    """Read a fitted ``LGBMClassifier``, ``LGBMRegressor``, ``LGBMRanker`` or ``LGBMModel``.

    Raises `UnsupportedModel` as `read_booster`.
    """
    text = text_of(fitted_booster(model))
    objective = model.get("_objective", None)
    # With a custom objective, LGBMClassifier returns raw scores.
    custom = objective is not None and not isinstance(objective, str)
    labels: Any = model.get("_classes") if model.kind == "LGBMClassifier" and not custom else None
    output = estimator_output(model.kind, labels, text.objective, text.n_outputs, text.average)
    return read_text(text, model.kind, output)


def text_of(booster: Record) -> ModelText:
    """Return the text of a booster's trees, up to its best iteration.

    Raises `UnsupportedModel` if it is not fitted. Raises `ModelError` if it is damaged.
    """
    if booster.is_a("lightgbm", "_InnerPredictor"):
        raise UnsupportedModel(
            "the booster kept no model text (it is an _InnerPredictor); pickle the Booster itself."
        )
    content = booster.get("_handle", None)
    if content is None:
        # The name in LightGBM 3.
        content = booster.get("handle", None)
    if content is None:
        raise UnsupportedModel("the Booster is not fitted; hbtvm compiles trained models.")
    if not isinstance(content, str):
        raise ModelError(f"the Booster is damaged: its model is {kind_of(content)}.")
    best = booster.get("best_iteration", -1)
    if isinstance(best, bool) or not isinstance(best, (int, np.integer)):
        raise ModelError(f"the Booster is damaged: its best iteration is {kind_of(best)}.")
    # The pickle holds all trees; prediction stops at the best iteration if there is one.
    return ModelText(content).first(int(best))
