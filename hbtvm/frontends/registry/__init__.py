"""The supported estimators by library and class: their readers, and their documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import pipelines
from hbtvm.frontends.damage import damage_of
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.registry import (
    additive,
    boosters,
    catboost,
    category_encoders,
    feature_engine,
    probabilistic,
    scikit_learn,
    skrub,
    spark,
    ydf,
)
from hbtvm.frontends.sklearn.common import require_fitted
from hbtvm.frontends.slices import slice_in_words
from hbtvm.frontends.supported import refusal, refusal_of_dict
from hbtvm.frontends.transformers.where import Estimator, Where
from hbtvm.graph.graph import Graph

_SECTIONS = {
    **scikit_learn.SECTIONS,
    **boosters.SECTIONS,
    **additive.SECTIONS,
    **category_encoders.SECTIONS,
    **feature_engine.SECTIONS,
    **skrub.SECTIONS,
    **probabilistic.SECTIONS,
    **ydf.SECTIONS,
    **spark.SECTIONS,
    **catboost.SECTIONS,
}
"""By library and by the row of the table in docs/reference/models.md that names them."""


def _estimators() -> dict[tuple[str, str], Estimator]:
    result = {}
    for (library, section), rows in _SECTIONS.items():
        for names, how in rows.items():
            for name in names.split():
                other, _, kind = name.rpartition(".")
                result[other or library, kind] = replace(how, section=section)
    return result


ESTIMATORS = _estimators()
"""By library and class name. A class's module may differ by release, so it does not matter."""


def read(model: Any) -> Graph:
    """Read the value of a pickle.

    `model`: a `Record`; other values are refused.
    Raises `UnsupportedModel` if it is none of `ESTIMATORS`, not fitted, or of a kind that is not supported.
    Raises `ModelError` if it is damaged.
    """
    require_supported(model)
    try:
        return read_plain(model)
    except UnsupportedModel as error:
        part = slice_in_words(model, read_plain)
        if not part:
            raise
        raise UnsupportedModel(f"{error}{part}") from error


def read_plain(model: Record) -> Graph:
    """Read a record, as `read` does; errors do not name slices that compile."""
    with damage_of(f"the {model.kind}"):
        read = ESTIMATORS[class_of(model)].model
        if read is None:
            return pipelines.read(model, Where(estimators=ESTIMATORS))
        if model.library == "sklearn":
            require_fitted(model)
        return read(model)


def require_supported(model: Any) -> None:
    """Refuse unsupported models; errors say what to pass instead.

    `model`: a value of a pickle, or an object in memory.
    Raises `UnsupportedModel` if its class is none of `ESTIMATORS`.
    """
    if isinstance(model, type):
        raise UnsupportedModel(f"expected a trained model, got the class {model.__name__}.")
    if isinstance(model, Global):
        raise UnsupportedModel(f"expected a trained model, got {kind_of(model)}.")
    if isinstance(model, dict):
        raise UnsupportedModel(
            refusal_of_dict({key: class_of(value) in ESTIMATORS for key, value in model.items()})
        )
    library, name = class_of(model)
    if (library, name) not in ESTIMATORS:
        raise UnsupportedModel(refusal(library, name))


def class_of(model: Any) -> tuple[str, str]:
    """Return the library and the name of the class of an object in memory or a `Record`."""
    if isinstance(model, Record):
        return model.library, model.kind
    kind = type(model)
    return kind.__module__.partition(".")[0], kind.__name__
