"""How each library explains a trained model.

Imported in a worker process, in that library's own environment: only numpy and that library may be imported,
and only inside the functions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


def same(value: Any) -> Any:
    """Return the argument."""
    return value


@dataclass(frozen=True)
class Way:
    """A way to call a peer: what is done before the clock starts, what is timed, and the answer's numbers.

    `answer` returns contributions and then the base value, shape (n, columns + 1), or leaf ids, (n, trees).
    """

    call: Callable[[Any], Any]
    answer: Callable[[Any], Any] = same
    prepare: Callable[[Any], Any] = same


@dataclass(frozen=True)
class Job:
    """A model for a peer: files of the model and of hbtvm's package, what is asked, and threads."""

    model: str
    package: str
    method: str
    threads: int = 1

    @property
    def path(self) -> Path:
        """The model's file."""
        return Path(self.model)


def hbtvm(job: Job) -> dict[str, Way]:
    """The kernel's array, and the method's `Explanation`; leaf ids; or predictions."""
    import hbtvm as library

    model = library.load(job.package, threads=job.threads)
    if job.method == "apply":
        return {"apply": Way(model.apply)}
    if job.method == "predict":
        return {"predict": Way(model.predict)}
    view = model.views["reasons"]
    kernel = Way(view.predict, lambda found: found.reshape(len(found), -1))
    if job.method == "kernel":
        return {"kernel": kernel}
    ways = {"kernel": kernel, "explain": Way(model.explain, _of_explanation)}
    if job.method == "sums":
        ways = {name: Way(way.call, _sums(way.answer)) for name, way in ways.items()}
        ways["dict"] = Way(model.explain, _sums(_of_explanation), lambda row: row.iloc[0].to_dict())
    return ways


def _of_explanation(found: Any) -> np.ndarray:
    return np.column_stack([found.values, found.base_values])


def _sums(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: np.asarray(answer(found)).sum(axis=1, keepdims=True)


def lightgbm(job: Job) -> dict[str, Way]:
    """``pred_contrib`` or ``pred_leaf``."""
    import lightgbm as library

    model = library.Booster(model_file=job.model)
    name = "pred_leaf" if job.method == "apply" else "pred_contrib"
    return {name: Way(lambda X: model.predict(X, num_threads=1, **{name: True}))}


def xgboost(job: Job) -> dict[str, Way]:
    """``pred_contribs`` of a DMatrix, which is made in the call."""
    import xgboost as library

    model = library.Booster({"nthread": 1}, model_file=job.model)
    return {"pred_contribs": Way(lambda X: model.predict(library.DMatrix(X, nthread=1), pred_contribs=True))}


def catboost(job: Job) -> dict[str, Way]:
    """ShapValues of a Pool, which is made in the call."""
    import catboost as library

    model = library.CatBoostClassifier().load_model(job.model)
    return {
        "ShapValues": Way(
            lambda X: model.get_feature_importance(library.Pool(X), type="ShapValues", thread_count=1)
        )
    }


def shap(job: Job) -> dict[str, Way]:
    """``shap.TreeExplainer`` by the paths' covers, without its check of sums."""
    import shap as library

    explainer = library.TreeExplainer(pickle.loads(job.path.read_bytes()))
    return {"shap_values": _tree_shap(explainer)}


def fasttreeshap(job: Job) -> dict[str, Way]:
    """``fasttreeshap.TreeExplainer``, which chooses the algorithm; of a forest, by its trees' arrays."""
    import fasttreeshap as library

    model: Any
    if job.path.suffix == ".pkl":
        # Pickles of scikit-learn and numpy 2 do not load where this library runs.
        arrays = np.load(job.path.with_suffix(".npz"))
        numbers = {int(name.split("/")[0]) for name in arrays}
        keys = {name.split("/")[1] for name in arrays}
        model = {"trees": [{key: arrays[f"{i}/{key}"] for key in keys} for i in sorted(numbers)]}
    else:
        import lightgbm as trainer

        model = trainer.Booster(model_file=job.model)
    return {"shap_values": _tree_shap(library.TreeExplainer(model, n_jobs=1))}


def _tree_shap(explainer: Any) -> Way:
    def answer(found: Any) -> np.ndarray:
        # Of two classes, the second's.
        values = np.asarray(found[-1] if isinstance(found, list) else found)
        base = np.ravel(explainer.expected_value)[-1]
        return np.column_stack([values, np.full(len(values), base)])

    return Way(lambda X: explainer.shap_values(X, check_additivity=False), answer)


def steps(job: Job) -> dict[str, Way]:
    """scikit-learn's steps and then ``pred_contrib``, whose columns are the encoders'."""
    import pandas

    pipeline = pickle.loads(job.path.read_bytes())
    columns, booster = pipeline[:-1], pipeline[-1].booster_

    def call(frame: Any) -> Any:
        # LightGBM explains dense rows faster than the encoder's sparse ones.
        return booster.predict(columns.transform(frame).toarray(), pred_contrib=True, num_threads=1)

    return {
        "frame": Way(call, _sums(same)),
        "dict": Way(
            lambda row: call(pandas.DataFrame([row])), _sums(same), lambda row: row.iloc[0].to_dict()
        ),
    }


def treelite(job: Job) -> dict[str, Way]:
    """``treelite.gtil.predict_leaf``."""
    import treelite as library

    model = library.frontend.load_lightgbm_model(job.model)
    return {"predict_leaf": Way(lambda X: library.gtil.predict_leaf(model, X, nthread=1))}


PEERS: Mapping[str, Callable[[Job], dict[str, Way]]] = {
    "hbtvm": hbtvm,
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "shap": shap,
    "fasttreeshap": fasttreeshap,
    "steps": steps,
    "treelite": treelite,
}
"""Ways of each peer, by names."""

PACKAGES = {name: (name,) for name in PEERS} | {
    "steps": ("scikit-learn", "lightgbm"),
    "fasttreeshap": ("fasttreeshap", "numpy", "lightgbm"),
}
"""Packages of each peer whose versions are told."""
