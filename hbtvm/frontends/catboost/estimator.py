"""CatBoost's estimators of pickles: the serialized model in their state."""

from __future__ import annotations

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.catboost import model as catboost_model
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.graph.graph import Graph


def read_estimator(model: Record) -> Graph:
    """Read a fitted ``CatBoostClassifier``, ``CatBoostRegressor``, ``CatBoostRanker`` or ``CatBoost``.

    Raises `UnsupportedModel` if it is not fitted, reads texts or embeddings, or has an unsupported loss.
    """
    content = model.get("__model", None)
    if content is None:
        raise UnsupportedModel(f"the {model.kind} is not fitted; hbtvm compiles trained models.")
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise ModelError(f"the {model.kind} is damaged: its model is {kind_of(content)}.")
    return catboost_model.from_bytes(bytes(content), model.kind)
