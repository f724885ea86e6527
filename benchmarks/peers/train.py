"""Train the models, each once: ``python -m benchmarks.peers.train MODEL DATA CACHE``.

A process of its own, so that neither threads nor memory of training disturb what is measured.
Prints where the model and its rows are, as JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.cells import LIBRARIES
from benchmarks.peers.data import SETS, TEST_ROWS, DataSet, make

TREES, DEPTH, LEAVES = 500, 8, 31

_SUFFIX = {
    "lightgbm": "txt",
    "xgboost": "json",
    "catboost-6": "cbm",
    "catboost-8": "cbm",
    "ydf": "ydf",
    "ydf-forest": "ydf",
}


def trained(model: str, data: str, cache: Path) -> dict[str, Any]:
    """Train a model, or find it in the cache.

    Returns
    -------
    ``path`` of the model's file, ``rows`` (a ``.npy`` file), ``features``, ``task``, ``classes``,
    ``trees``, ``leaves`` (per tree, on average) and ``train_seconds``.
    """
    shape = SETS[data]
    recipe = {
        "model": model,
        "data": data,
        "shape": dataclasses.asdict(shape),
        "size": [TREES, DEPTH, LEAVES, TEST_ROWS],
        "version": importlib.metadata.version(LIBRARIES[model]),
    }
    mark = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:10]
    folder = cache / f"{model}-{data}-{mark}"
    about = folder / "about.json"
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        X, y, rows = make(data)
        np.save(folder / "rows.npy", rows)
        start = time.perf_counter()
        path = folder / f"model.{_SUFFIX.get(model, 'pkl')}"
        trees, leaves = _TRAIN[model](X, y, shape, path)
        found = {
            "trees": trees,
            "leaves": leaves / trees,
            "features": shape.features,
            "task": shape.task,
            "classes": shape.classes,
            "train_seconds": time.perf_counter() - start,
        }
        # Last, and whole or not at all: it is what says that the model is there.
        unfinished = folder / "about.unfinished"
        unfinished.write_text(json.dumps(found))
        os.replace(unfinished, about)
    return {
        **json.loads(about.read_text()),
        "path": str(folder / f"model.{_SUFFIX.get(model, 'pkl')}"),
        "rows": str(folder / "rows.npy"),
    }


def _lightgbm(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
    import lightgbm

    objective = {"binary": "binary", "regression": "regression", "classes": "multiclass"}[shape.task]
    parameters: dict[str, Any] = {
        "objective": objective,
        "num_leaves": LEAVES,
        "max_depth": DEPTH,
        "max_bin": shape.bins,
        "feature_fraction": shape.share,
        "learning_rate": 0.1,
        "verbose": -1,
        "seed": 0,
        "deterministic": True,
        "force_col_wise": True,
    }
    if shape.task == "classes":
        parameters["num_class"] = shape.classes
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), TREES)
    booster.save_model(path)
    leaves = [tree["num_leaves"] for tree in booster.dump_model()["tree_info"]]
    return len(leaves), sum(leaves)


def _xgboost(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
    import xgboost

    objective = {"binary": "binary:logistic", "regression": "reg:squarederror", "classes": "multi:softprob"}
    parameters: dict[str, Any] = {
        "objective": objective[shape.task],
        "max_depth": DEPTH,
        "max_bin": shape.bins,
        "colsample_bytree": shape.share,
        "eta": 0.1,
        "tree_method": "hist",
        "seed": 0,
    }
    if shape.task == "classes":
        parameters["num_class"] = shape.classes
    booster = xgboost.train(parameters, xgboost.DMatrix(X, y), TREES)
    booster.save_model(path)
    dump = booster.get_dump()
    return len(dump), sum(tree.count("leaf=") for tree in dump)


def _forest(kind: str, depth: int | None = DEPTH) -> Any:
    def train(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
        import sklearn.ensemble

        options = {"n_estimators": TREES, "max_depth": depth, "n_jobs": -1, "random_state": 0}
        if shape.task == "regression":
            model = getattr(sklearn.ensemble, f"{kind}Regressor")(max_features=1 / 3, **options)
        else:
            model = getattr(sklearn.ensemble, f"{kind}Classifier")(**options)
        model.fit(X, y)
        path.write_bytes(pickle.dumps(model))
        return len(model.estimators_), sum(int(tree.get_n_leaves()) for tree in model.estimators_)

    return train


def _hist(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make_model = (
        HistGradientBoostingRegressor if shape.task == "regression" else HistGradientBoostingClassifier
    )
    model = make_model(
        max_iter=TREES,
        max_leaf_nodes=LEAVES,
        max_bins=shape.bins,
        max_features=shape.share,
        early_stopping=False,
        random_state=0,
    )
    model.fit(X, y)
    path.write_bytes(pickle.dumps(model))
    trees = [tree for iteration in model._predictors for tree in iteration]
    return len(trees), sum(tree.get_n_leaf_nodes() for tree in trees)


def _catboost(depth: int) -> Any:
    def train(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
        import catboost

        model = catboost.CatBoostClassifier(
            iterations=TREES,
            depth=depth,
            learning_rate=0.1,
            random_seed=0,
            verbose=False,
            allow_writing_files=False,
        )
        model.fit(X, y)
        model.save_model(path)
        return model.tree_count_, int(model.get_tree_leaf_counts().sum())

    return train


def _ydf(learner: str, **options: Any) -> Any:
    def train(X: np.ndarray, y: np.ndarray, shape: DataSet, path: Path) -> tuple[int, int]:
        import ydf

        make_learner = getattr(ydf, learner)
        model = make_learner(label="y", num_trees=TREES, random_seed=0, **options).train({"x": X, "y": y})
        model.save(str(path))
        trees = list(model.iter_trees())
        return len(trees), sum(_leaves(tree.root) for tree in trees)

    return train


def _leaves(node: Any) -> int:
    """Leaves below a node of YDF's trees."""
    return 1 if node.is_leaf else _leaves(node.pos_child) + _leaves(node.neg_child)


_TRAIN: dict[str, Any] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "forest": _forest("RandomForest"),
    "extra": _forest("ExtraTrees"),
    "deep": _forest("RandomForest", depth=None),
    "hist": _hist,
    "catboost-6": _catboost(6),
    "catboost-8": _catboost(8),
    # YDF counts the root as a level. Its QuickScorer takes at most 64 leaves.
    "ydf": _ydf(
        "GradientBoostedTreesLearner",
        max_depth=7,
        shrinkage=0.1,
        validation_ratio=0.0,
        early_stopping="NONE",
    ),
    "ydf-forest": _ydf("RandomForestLearner", max_depth=DEPTH + 1, compute_oob_performances=False),
}


if __name__ == "__main__":
    print(json.dumps(trained(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
