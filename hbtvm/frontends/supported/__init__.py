"""Errors for unsupported classes, which say what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.frontends.supported.refused import ELSEWHERE, REFUSED
from hbtvm.words.printable import shown

MODELS = "docs/reference/models.md"
"""The page of the documentation that lists supported models."""

_LIBRARIES = (
    *("sklearn", "xgboost", "lightgbm", "catboost", "imblearn", "pyspark", "ydf"),
    *("interpret", "quantile_forest"),
    *("category_encoders", "feature_engine", "skrub", "ngboost", "sksurv", "lifelines", "pyod"),
)

_INSTEAD = {
    "list": "pass the model in it",
    "tuple": "pass the model in it",
    "ndarray": "pass the model in it",
    "_InnerPredictor": "pass the Booster that it came from",
}
"""What to pass for a class that holds supported models."""


def refusal(library: str, name: str) -> str:
    """Return the error for an unsupported class: the reason, and what to pass instead."""
    library, name = shown(library, 40), shown(name, 60)
    instead = _INSTEAD.get(name)
    if library in _LIBRARIES:
        return f"{library}'s {name} is not supported{f'; {instead}' if instead else why(library, name)}."
    article = "an" if name[:1] in "aeiouAEIOU" else "a"
    problem = f"{article} {name} (from module {library!r}) is not a supported model"
    return f"{problem}{f'; {instead}' if instead else why(library, name)}."


def why(library: str, name: str) -> str:
    """Return why a class is not supported, and the next step: the end of an error's sentence."""
    reason = REFUSED.get(library, {}).get(name)
    if reason is not None:
        return f": {reason}"
    if library in ELSEWHERE:
        return f": {ELSEWHERE[library]}"
    if library in _LIBRARIES:
        return f" yet; {MODELS} lists supported models"
    return (
        ": hbtvm compiles classes of scikit-learn, XGBoost, LightGBM and CatBoost, and ONNX files, and runs "
        f"no code of others; {MODELS} lists them"
    )


def refusal_of_dict(keys: Mapping[Any, bool]) -> str:
    """The sentence for a dictionary.

    `keys`: its keys, and whether a supported model is stored there.
    """
    names = [repr(shown(key, 30)) for key in list(keys)[:6] if isinstance(key, (str, int, float))]
    models = [key for key, supported in keys.items() if supported and isinstance(key, (str, int, float))]
    listed = ", ".join(names) + (", ..." if len(keys) > 6 else "")
    title = f"a dict with the keys {listed}" if names else "a dict"
    if models:
        key = repr(shown(models[0], 30)) if isinstance(models[0], str) else shown(models[0], 30)
        return f"{title} is not a supported model; pass the model in it, model[{key}]."
    return f"{title} is not a supported model; pass the model in it, if it holds one."
