"""Errors for unsupported classes, which say what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.words.printable import shown

MODELS = "docs/reference/models.md"
"""The page of the documentation that lists supported models."""

_LIBRARIES = (
    *("sklearn", "xgboost", "lightgbm", "catboost", "imblearn", "pyspark", "ydf"),
    *("interpret", "quantile_forest"),
    *("category_encoders", "feature_engine", "skrub", "ngboost", "sksurv", "lifelines", "pyod"),
)

ELSEWHERE = {
    "sklearn_pandas": "replace its DataFrameMapper by scikit-learn's ColumnTransformer, and fit again",
}
"""By library: what compiles in place of its objects."""

_KEPT = "python_steps='keep' keeps it in a pipeline in memory"
_SEARCHES, _ITERATES = "it searches all training rows for each row", "it iterates for each row"

_DROPS_ROWS = "it drops rows; drop them before, and leave it out of the pipeline"

REFUSED: Mapping[str, Mapping[str, str]] = {
    "sklearn": {
        **dict.fromkeys(
            (
                *("Isomap", "LocallyLinearEmbedding"),
                *("KNeighborsTransformer", "RadiusNeighborsTransformer"),
            ),
            f"{_SEARCHES}; {_KEPT}, and KernelPCA and Nystroem compile",
        ),
        "KernelDensity": f"{_SEARCHES}; GaussianMixture compiles",
        **dict.fromkeys(
            (
                *("LatentDirichletAllocation", "NMF", "MiniBatchNMF", "DictionaryLearning"),
                *("MiniBatchDictionaryLearning", "SparseCoder"),
            ),
            f"{_ITERATES}; {_KEPT}, and TruncatedSVD and PCA compile",
        ),
        "PatchExtractor": f"it takes images; {_KEPT}",
        "MultiLabelBinarizer": "it takes sets of labels, which are targets; call it outside of the model",
    },
    "category_encoders": {
        "HashingEncoder": "it hashes any text; use scikit-learn's FeatureHasher, or an encoder with a table",
    },
    "feature_engine": {
        "RareLabelEncoder": (
            "it turns categories into texts; use scikit-learn's encoders, which have min_frequency"
        ),
        "RandomSampleImputer": "it draws random values; use an imputer that has one value",
        "DropMissingData": _DROPS_ROWS,
        "OutlierTrimmer": _DROPS_ROWS,
    },
    "pyod": dict.fromkeys(("ECOD", "COPOD"), "a row's score depends on the other rows of a call"),
    "skrub": dict.fromkeys(
        ("StringEncoder", "GapEncoder", "MinHashEncoder", "TextEncoder"),
        'it embeds texts; fit TableVectorizer with another encoder as high_cardinality, or "drop"',
    ),
}
"""Reasons to refuse classes for good, by library; docs/reference/models.md lists scikit-learn's, too."""

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
