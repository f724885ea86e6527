"""Errors for unsupported classes, which say what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.words.printable import shown

LIBRARIES = {
    "sklearn": (
        "DecisionTree, ExtraTree, RandomForest, ExtraTrees, GradientBoosting and HistGradientBoosting "
        "(Classifier and Regressor), IsolationForest, linear models, support vector machines, neighbours, "
        "naive Bayes, discriminant analyses, Gaussian processes, perceptrons, clusterers, mixtures, and "
        "ensembles over models (Voting, Stacking, Calibrated, ...), by themselves or as the last step of a "
        "Pipeline"
    ),
    "xgboost": "Booster, XGBClassifier, XGBRegressor, XGBRanker, XGBRFClassifier and XGBRFRegressor",
    "lightgbm": "Booster, LGBMClassifier, LGBMRegressor and LGBMRanker",
}
"""Supported classes in words, by the library's package."""

_SEARCHES, _ITERATES = "it searches all training rows", "it iterates for each row"

REFUSED = {
    **dict.fromkeys(
        (
            *("LabelPropagation", "LabelSpreading", "Isomap", "LocallyLinearEmbedding", "KernelDensity"),
            *("KNeighborsTransformer", "RadiusNeighborsTransformer"),
        ),
        _SEARCHES,
    ),
    **dict.fromkeys(
        (
            *("LatentDirichletAllocation", "NMF", "MiniBatchNMF", "DictionaryLearning"),
            *("MiniBatchDictionaryLearning", "SparseCoder"),
        ),
        _ITERATES,
    ),
    "PatchExtractor": "it takes images",
}
"""Reasons to refuse classes of scikit-learn for good; docs/reference/models.md lists them, too."""

_INSTEAD = {
    "list": "pass the model in it",
    "tuple": "pass the model in it",
    "ndarray": "pass the model in it",
    "_InnerPredictor": "pass the Booster that it came from",
}
"""What to pass for a class that holds supported models."""


def refusal(library: str, name: str) -> str:
    """Return the error for an unsupported class: it names supported ones, or what to pass instead."""
    library, name = shown(library, 40), shown(name, 60)
    instead = _INSTEAD.get(name)
    if library == "sklearn" and name in REFUSED:
        return f"{library}'s {name} is not supported: {REFUSED[name]}."
    if library in LIBRARIES and instead is None:
        return f"{library}'s {name} is not supported; supported of {library} are {LIBRARIES[library]}."
    if library in LIBRARIES:
        return f"{library}'s {name} is not supported; {instead}."
    article = "an" if name[:1] in "aeiouAEIOU" else "a"
    what = f"{article} {name} (from module {library!r}) is not a supported model; "
    what += f"{instead}; " if instead else ""
    return (
        what + "hbtvm compiles models of scikit-learn, XGBoost and LightGBM, pipelines that end in one, and "
        "ONNX models."
    )


def refusal_of_dict(keys: Mapping[Any, bool]) -> str:
    """The sentence for a dictionary.

    `keys`: its keys, and whether a supported model is stored there.
    """
    names = [repr(shown(key, 30)) for key in list(keys)[:6] if isinstance(key, (str, int, float))]
    models = [key for key, supported in keys.items() if supported and isinstance(key, (str, int, float))]
    listed = ", ".join(names) + (", ..." if len(keys) > 6 else "")
    found = f"a dict with the keys {listed}" if names else "a dict"
    if models:
        key = repr(shown(models[0], 30)) if isinstance(models[0], str) else shown(models[0], 30)
        return f"{found} is not a supported model; pass the model in it, model[{key}]."
    return f"{found} is not a supported model; pass the model in it, if it holds one."
