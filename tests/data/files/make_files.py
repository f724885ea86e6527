"""Writes the model files of old library versions in this folder, and what those versions predict.

Not run by the tests: each version needs an environment of its own. With Python 3.8 and numpy 1.24,
scipy 1.10, scikit-learn 1.3 and pandas 2.0 in it, for each of xgboost 1.0.2, 1.2.1, 1.3.3, 1.7.6 and
2.1.4, and of lightgbm 2.0.12, 2.2.3, 2.3.1 and 3.3.5:

    python -m venv old && old/bin/pip install xgboost==1.2.1 numpy==1.24.4 scipy scikit-learn pandas
    old/bin/python tests/data/files/make_files.py xgboost      # or lightgbm

writes ``xgboost-1.2.1-*`` beside this script. ``<library>-<version>.npz`` holds the rows as ``X``
(float32, shape (40, 5); NaN is missing; column 4 holds integers 0..5), and for each file
``<file>|<output>``, as the library predicts after it has loaded that file again.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def data(missing=True):
    random = np.random.RandomState(7)
    X = random.normal(size=(240, 5)).astype(np.float32)
    X[:, 4] = random.randint(0, 6, 240)
    score = X[:, 0] + X[:, 1] * X[:, 2] + np.where(X[:, 4] % 2, 1.0, -0.5)
    if missing:
        X[random.uniform(size=X.shape) < 0.08] = np.nan
    return X, score


def classes(score, count):
    return np.searchsorted(np.quantile(score, np.linspace(0, 1, count + 1)[1:-1]), score)


def xgboost_files():
    import xgboost as xgb

    version = xgb.__version__
    X, score = data()
    rows, found = X[:40], {"X": X[:40]}

    def name(kind, suffix):
        return f"xgboost-{version}-{kind}.{suffix}"

    suffixes = ["json"] if version < "1.6" else ["json", "ubj"]

    def boosters():
        basic = {"max_depth": 3, "eta": 0.5, "verbosity": 0, "nthread": 1}
        yield "squarederror", {**basic, "objective": "reg:squarederror"}, score
        yield "logistic", {**basic, "objective": "binary:logistic", "base_score": 0.3}, score > 0
        yield "softprob", {**basic, "objective": "multi:softprob", "num_class": 3}, classes(score, 3)
        yield "poisson", {**basic, "objective": "count:poisson"}, np.floor(np.exp(score / 2))
        dart = {"booster": "dart", "rate_drop": 0.5, "one_drop": 1}
        yield "dart", {**basic, **dart, "objective": "reg:squarederror"}, score

    for kind, parameters, y in boosters():
        booster = xgb.train(parameters, xgb.DMatrix(X, y.astype(np.float32)), 3)
        for suffix in suffixes if kind == "softprob" else ["json"]:
            path = name(kind, suffix)
            booster.save_model(str(HERE / path))
            again = xgb.Booster(model_file=str(HERE / path))
            found[path + "|predict"] = again.predict(xgb.DMatrix(rows))
            found[path + "|raw"] = again.predict(xgb.DMatrix(rows), output_margin=True)
        if kind == "logistic":
            old = "model" if version < "2.1" else "deprecated"
            booster.save_model(str(HERE / name(kind, old)))
    if version >= "1.3":
        options = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.5, "verbosity": 0, "n_jobs": 1}
        for count in (2, 3):
            model = xgb.XGBClassifier(**options)
            model.fit(X, classes(score, count))
            path = name(f"classifier{count}", "json")
            model.save_model(str(HERE / path))
            again = xgb.XGBClassifier()
            again.load_model(str(HERE / path))
            found[path + "|label"] = again.predict(rows)
            found[path + "|proba"] = again.predict_proba(rows)
        if version < "1.6":
            # Labels of any kind, and a number that stands for missing values, came back from the file.
            marked = np.where(np.isnan(X), np.float32(-1), X)
            model = xgb.XGBClassifier(missing=-1.0, **options)
            model.fit(marked, np.array(["low", "middle", "high"])[classes(score, 3)])
            path = name("labels", "json")
            model.save_model(str(HERE / path))
            again = xgb.XGBClassifier()
            again.load_model(str(HERE / path))
            found["X_marked"] = marked[:40]
            found[path + "|label"] = again.predict(marked[:40])
            found[path + "|proba"] = again.predict_proba(marked[:40])
            # Early stopping, after rounds of several trees for each class.
            model = xgb.XGBClassifier(num_parallel_tree=2, subsample=0.5, **{**options, "n_estimators": 9})
            fit = {"eval_set": [(X[:40], (np.arange(40) * 7) % 3)], "early_stopping_rounds": 2}
            model.fit(X, classes(score, 3), verbose=False, **fit)
            path = name("stopped", "json")
            model.save_model(str(HERE / path))
            again = xgb.XGBClassifier()
            again.load_model(str(HERE / path))
            found[path + "|proba"] = again.predict_proba(rows)
            assert again.get_booster().attr("best_iteration") is not None
        model = xgb.XGBRegressor(**options).fit(X, score)
        path = name("regressor", "json")
        model.save_model(str(HERE / path))
        found[path + "|predict"] = model.predict(rows)
    np.savez_compressed(str(HERE / f"xgboost-{version}.npz"), **found)


def lightgbm_files():
    import lightgbm as lgb
    import pandas as pd

    version = lgb.__version__
    X, score = data()
    X = X.astype(np.float64)
    rows, found = X[:40], {"X": X[:40].astype(np.float32)}
    basic = {"num_leaves": 5, "learning_rate": 0.3, "verbose": -1, "num_threads": 1, "min_data": 5}

    def objectives():
        yield "regression", {}, score
        yield "regression_l1", {}, score
        yield "poisson", {}, np.floor(np.exp(score / 2))
        yield "binary", {"sigmoid": 1.7}, score > 0
        yield "multiclass", {"num_class": 3}, classes(score, 3)
        yield "multiclassova", {"num_class": 3}, classes(score, 3)
        yield "xentropy", {}, 1 / (1 + np.exp(-score))
        yield "xentlambda", {}, 1 / (1 + np.exp(-score))

    def save(booster, kind):
        path = f"lightgbm-{version}-{kind}.txt"
        booster.save_model(str(HERE / path))
        return path, lgb.Booster(model_file=str(HERE / path))

    for kind, more, y in objectives():
        y = np.asarray(y, np.float64)
        columns = [4] if kind == "regression" else []
        dataset = lgb.Dataset(X, y, categorical_feature=columns)
        booster = lgb.train({**basic, **more, "objective": kind}, dataset, 3)
        path, again = save(booster, kind)
        found[path + "|predict"] = again.predict(rows)
        found[path + "|raw"] = again.predict(rows, raw_score=True)
    forest = {"boosting": "rf", "objective": "regression", "feature_fraction": 0.9}
    forest.update(bagging_freq=1, bagging_fraction=0.6)
    path, again = save(lgb.train({**basic, **forest}, lgb.Dataset(X, score), 3), "forest")
    found[path + "|predict"] = again.predict(rows)

    # A frame: the strings in `word` and the numbers in `number` are categories there.
    words, numbers = ["red", "green", "blue", "black", "white", "grey"], [40, 10, 60, 20, 50, 30]
    codes = np.nan_to_num(X[:, 4]).astype(int)
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame.insert(1, "word", pd.Categorical.from_codes(codes, words))
    frame["number"] = pd.Categorical.from_codes((codes + 2) % 6, numbers)
    path, again = save(lgb.train({**basic, "objective": "regression"}, lgb.Dataset(frame, score), 3), "frame")
    found[path + "|predict"] = again.predict(frame[:40])
    np.savez_compressed(str(HERE / f"lightgbm-{version}.npz"), **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"xgboost": xgboost_files, "lightgbm": lightgbm_files}[sys.argv[1]]()
