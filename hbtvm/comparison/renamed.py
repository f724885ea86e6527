"""Methods of libraries that name them otherwise than scikit-learn does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

Call = Callable[[Any], Any]


def renamed_calls(model: Any, library: str, wanted: Sequence[str], threads: int) -> Mapping[str, Call]:
    """Return a model's calls by the names of hbtvm's methods; empty for libraries with these names.

    `wanted`: the package's outputs.
    """
    if library == "lifelines":
        # AFT fitters have no partial hazard.
        method = getattr(model, "predict_partial_hazard", None) or model.predict_median
        return {"predict": lambda X: np.asarray(method(X))}
    return _ydf_calls(model, "predict_proba" in wanted, threads) if library == "ydf" else {}


def _ydf_calls(model: Any, labels: bool, threads: int) -> Mapping[str, Call]:
    names = model.input_feature_names()

    def rows(X: Any) -> Any:
        return X if hasattr(X, "columns") else dict(zip(names, np.asarray(X).T, strict=True))

    def called(method: Callable[..., Any], X: Any) -> Any:
        return method(rows(X), num_threads=threads)

    def proba(X: Any) -> Any:
        second = called(model.predict, X)
        return second if second.ndim == 2 else np.column_stack([1 - second, second])

    if labels:
        return {"predict": partial(called, model.predict_class), "predict_proba": proba}
    return {"predict": partial(called, model.predict)}
