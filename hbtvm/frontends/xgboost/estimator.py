"""XGBoost's boosters and estimators out of pickles: the document in their state, and what they add."""

from __future__ import annotations

import json
import math
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import fitted_booster
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.xgboost import model as xgboost_model
from hbtvm.frontends.xgboost import ubjson
from hbtvm.graph.graph import Graph
from hbtvm.words.printable import shown

_OLD_BINARY = b"CONFIG-offset:"  # how the state of a booster begins that was not written as JSON or UBJSON


def read_booster(model: Record) -> Graph:
    """Read an ``xgboost.Booster``: all of its trees, as its own ``predict`` uses them.

    Raises `UnsupportedModel` if the model is not fitted, or has a booster or an objective that is not known.
    """
    return xgboost_model.read_document(document_of(model), "Booster", None)


def read_estimator(model: Record) -> Graph:
    """Read a fitted estimator of ``xgboost.sklearn``: its trees up to ``best_iteration``.

    Raises `UnsupportedModel` as `read_booster`.
    """
    document = document_of(fitted_booster(model))
    classifier = xgboost_model.is_classifier(model.kind)
    n_classes = model.whole("n_classes_", 0) if classifier else None
    missing = model.get("missing", None)
    # Before XGBoost 1.6, classifiers could take other labels than 0, 1, ...
    encoder = model.get("_le", None)
    encoded = classifier and isinstance(encoder, Record) and "classes_" in encoder
    return xgboost_model.read_document(
        document,
        model.kind,
        n_classes,
        math.nan if missing is None else _missing(model),
        labels_of(encoder.get("classes_")) if encoded else None,
    )


def _missing(model: Record) -> float:
    value = model.get("missing")
    return math.nan if isinstance(value, float) and math.isnan(value) else model.number("missing")


def document_of(booster: Record) -> Any:
    """The document that ``save_model`` would write of a booster.

    Raises `UnsupportedModel` if it is not fitted, or written in a format of old. Raises `ModelError` if it is
    damaged.
    """
    content = booster.get("handle", None)
    if content is None:
        raise UnsupportedModel("the Booster is not fitted; hbtvm compiles trained models.")
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise ModelError("the Booster is damaged: its model is not a string of bytes.")
    stored = bytes(content)
    if stored.startswith((_OLD_BINARY, b"binf")):
        raise UnsupportedModel(
            "the Booster was pickled in XGBoost's old binary format; load it with that version and save it "
            "with save_model('model.json')."
        )
    try:
        # As JSON begins with a quote for the first key, UBJSON with the key's size.
        document = json.loads(stored) if stored[1:].lstrip()[:1] in (b'"', b"}") else ubjson.loads(stored)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the Booster is damaged: its model is not a document ({shown(error)}).") from error
    if not isinstance(document, dict):
        raise ModelError("the Booster is damaged: its model is not a document of XGBoost's.")
    return document.get("Model", document)
