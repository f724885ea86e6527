"""Writes pickles of every supported class as one release of each library writes them.

Run it with the Python of a throw-away environment that has the releases wanted, for example::

    python3.8 -m venv /tmp/old
    /tmp/old/bin/pip install scikit-learn==1.0.2 numpy==1.21.6 xgboost==1.7.6 lightgbm==3.3.5
    /tmp/old/bin/python tests/data/pickles/make.py tests/data/pickles/sklearn-1.0.tar.xz

It takes the libraries that are installed (scikit-learn has to be), Python 3.8 or later, and writes
one archive: models as pickles and as joblib files in turn, of all protocols and ways of
compressing, and ``expected.npz``: the rows and what the library itself predicts for them, by model
and method. The tests read the models and compare; they need none of these libraries.
"""

import contextlib
import io
import pickle
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import joblib
import numpy as np
import sklearn
from sklearn import dummy, ensemble, linear_model, tree

warnings.filterwarnings("ignore")

COMPRESSED = (0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3))
N_ROWS, N_FEATURES, CATEGORY = 90, 4, 2


def data(missing=False):
    rng = np.random.RandomState(5)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    X[:, CATEGORY] = rng.randint(0, 9, N_ROWS)
    y = X[:, 0] + np.sin(3 * X[:, 1]) + (X[:, CATEGORY] % 3)
    if missing:
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
    return X, y


X, Y = data()
X_MISSING = data(True)[0]
TWO = np.array(["no", "yes"])[(Y > 1).astype(int)]
THREE = np.array(["low", "mid", "high"])[np.digitize(Y, [0.5, 1.5])]
PAIR = np.column_stack([Y, 1 - 2 * Y])
PAIR_LABELS = np.column_stack([THREE, TWO])
COUNTS = np.round(np.abs(Y))


def own_objective(y, score):
    return score - y, np.ones_like(score)


def of_sklearn():
    kinds = {
        "tree": (tree.DecisionTreeClassifier, tree.DecisionTreeRegressor, {}),
        "extra_tree": (tree.ExtraTreeClassifier, tree.ExtraTreeRegressor, {}),
        "forest": (ensemble.RandomForestClassifier, ensemble.RandomForestRegressor, {"n_estimators": 3}),
        "extra_forest": (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor, {"n_estimators": 3}),
    }
    for name, (classifier, regressor, more) in kinds.items():
        more = dict(more, max_depth=3)
        yield name + "_two", lambda c=classifier, m=more: c(random_state=1, **m).fit(X, TWO)
        yield (
            name + "_three",
            lambda c=classifier, m=more: c(random_state=1, class_weight="balanced", **m).fit(X, THREE),
        )
        yield name + "_pair_labels", lambda c=classifier, m=more: c(random_state=1, **m).fit(X, PAIR_LABELS)
        yield (
            name + "_real",
            lambda r=regressor, m=more: r(random_state=np.random.RandomState(1), **m).fit(X, Y),
        )
        yield name + "_pair", lambda r=regressor, m=more: r(random_state=1, **m).fit(X, PAIR)
        yield name + "_missing", lambda c=classifier, m=more: c(random_state=1, **m).fit(X_MISSING, TWO)
    yield (
        "tree_mae",
        lambda: tree.DecisionTreeRegressor(criterion="absolute_error", max_depth=2, random_state=1).fit(X, Y),
    )
    yield (
        "tree_random",
        lambda: tree.DecisionTreeClassifier(splitter="random", max_depth=2, random_state=1).fit(X, TWO),
    )
    yield "tree_objects", lambda: tree.DecisionTreeClassifier(max_depth=2).fit(X, TWO.astype(object))
    yield (
        "tree_monotone",
        lambda: tree.DecisionTreeClassifier(max_depth=2, monotonic_cst=[1, 0, 0, -1]).fit(X, TWO),
    )
    small = {"n_estimators": 3, "max_depth": 2, "random_state": 1}
    boost, boost_r = ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor
    yield "boost_two", lambda: boost(**small).fit(X, TWO)
    yield "boost_three", lambda: boost(**small).fit(X, THREE)
    yield "boost_deviance", lambda: boost(loss="deviance", **small).fit(X, THREE)
    yield "boost_exponential", lambda: boost(loss="exponential", **small).fit(X, TWO)
    yield "boost_zero", lambda: boost(init="zero", **small).fit(X, THREE)
    for strategy in ("prior", "most_frequent"):
        yield (
            "boost_" + strategy,
            lambda s=strategy: boost(init=dummy.DummyClassifier(strategy=s), **small).fit(X, TWO),
        )
    for loss in ("squared_error", "absolute_error", "huber", "quantile", "ls", "lad"):
        yield "boost_" + loss, lambda x=loss: boost_r(loss=x, **small).fit(X, Y)
    yield (
        "boost_constant",
        lambda: boost_r(init=dummy.DummyRegressor(strategy="quantile", quantile=0.7), **small).fit(X, Y),
    )
    yield "refused_boost_linear", lambda: boost_r(init=linear_model.LinearRegression(), **small).fit(X, Y)
    some = {"max_iter": 3, "max_leaf_nodes": 5, "min_samples_leaf": 5}
    hist, hist_r = ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor
    yield "hist_two", lambda: hist(**some).fit(X_MISSING, TWO)
    yield "hist_three", lambda: hist(**some).fit(X, THREE)
    yield "hist_categories", lambda: hist(categorical_features=[CATEGORY], **some).fit(X_MISSING, THREE)
    yield "hist_real_categories", lambda: hist_r(categorical_features=[CATEGORY], **some).fit(X, Y)
    for loss in ("auto", "binary_crossentropy"):
        yield "hist_" + loss, lambda x=loss: hist(loss=x, **some).fit(X, TWO)
    yield "hist_categorical_crossentropy", lambda: hist(loss="categorical_crossentropy", **some).fit(X, THREE)
    for loss in (
        "squared_error", "absolute_error", "poisson", "gamma", "quantile", "least_squares",
        "least_absolute_deviation",
    ):  # fmt: skip
        quantile = {"quantile": 0.3} if loss == "quantile" else {}
        yield "hist_" + loss, lambda x=loss, q=quantile: hist_r(loss=x, **q, **some).fit(X, COUNTS + 1)
    yield "isolation", lambda: ensemble.IsolationForest(n_estimators=3, max_samples=20, random_state=1).fit(X)
    yield (
        "isolation_some",
        lambda: ensemble.IsolationForest(
            n_estimators=3, max_samples=20, max_features=0.5, contamination=0.2, random_state=1
        ).fit(X),
    )
    try:
        import pandas as pd
    except ImportError:
        return
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d e"])
    yield "named_forest", lambda: ensemble.RandomForestRegressor(2, max_depth=2, random_state=1).fit(frame, Y)


def of_xgboost():
    import xgboost as xgb

    small = {"n_estimators": 3, "max_depth": 2, "random_state": 1, "n_jobs": 1}
    two, three = (Y > 1).astype(int), np.digitize(Y, [0.5, 1.5])
    yield "xgb_two", lambda: xgb.XGBClassifier(**small).fit(X_MISSING, two)
    yield "xgb_three", lambda: xgb.XGBClassifier(**small).fit(X, three)
    yield "xgb_softmax", lambda: xgb.XGBClassifier(objective="multi:softmax", **small).fit(X, three)
    yield "xgb_flags", lambda: xgb.XGBClassifier(**small).fit(X, np.column_stack([two, 1 - two, three > 0]))
    yield "xgb_real", lambda: xgb.XGBRegressor(base_score=0.3, **small).fit(X, Y)
    yield "xgb_missing", lambda: xgb.XGBRegressor(missing=-999.0, **small).fit(np.where(X > 1, -999.0, X), Y)
    yield "xgb_dart", lambda: xgb.XGBRegressor(booster="dart", rate_drop=0.5, **small).fit(X, Y)
    yield "xgb_poisson", lambda: xgb.XGBRegressor(objective="count:poisson", **small).fit(X, COUNTS)
    yield "xgb_own", lambda: xgb.XGBRegressor(objective=own_objective, **small).fit(X, Y)
    yield "xgb_rf_two", lambda: xgb.XGBRFClassifier(**small).fit(X, two)
    yield "xgb_rf_real", lambda: xgb.XGBRFRegressor(**small).fit(X, Y)
    ranks = np.clip(COUNTS, 0, 3).astype(int)
    yield "xgb_ranker", lambda: xgb.XGBRanker(**small).fit(X, ranks, qid=np.repeat(np.arange(9), 10))
    stopped = dict(small, n_estimators=20, learning_rate=1.0)
    yield (
        "xgb_stopped",
        lambda: xgb.XGBClassifier(early_stopping_rounds=2, **stopped).fit(
            X[:60], three[:60], eval_set=[(X[60:], three[60:])], verbose=False
        ),
    )
    kinds = ["q", "q", "c", "q"]

    def booster(rounds=3, **options):
        rows = xgb.DMatrix(X_MISSING, Y, feature_types=kinds, enable_categorical=True)
        return xgb.train(dict({"max_depth": 3, "seed": 1, "tree_method": "hist"}, **options), rows, rounds)

    yield "xgb_booster_categories", booster
    yield (
        "xgb_booster_logistic",
        lambda: xgb.train({"objective": "binary:logistic", "max_depth": 2}, xgb.DMatrix(X, two), 3),
    )
    yield "refused_xgb_linear", lambda: xgb.XGBRegressor(booster="gblinear", n_estimators=2).fit(X, Y)


def of_lightgbm():
    import lightgbm as lgb

    small = {"n_estimators": 3, "num_leaves": 4, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}
    yield "lgb_two", lambda: lgb.LGBMClassifier(**small).fit(X_MISSING, TWO)
    yield "lgb_three", lambda: lgb.LGBMClassifier(**small).fit(X, THREE)
    yield (
        "lgb_categories",
        lambda: lgb.LGBMRegressor(min_data_per_group=2, cat_smooth=1, **small).fit(
            X_MISSING, Y, categorical_feature=[CATEGORY]
        ),
    )
    yield (
        "lgb_forest",
        lambda: lgb.LGBMClassifier(boosting_type="rf", subsample=0.6, subsample_freq=1, **small).fit(X, TWO),
    )
    yield "lgb_poisson", lambda: lgb.LGBMRegressor(objective="poisson", **small).fit(X, COUNTS)
    yield "lgb_own", lambda: lgb.LGBMRegressor(objective=own_objective, **small).fit(X, Y)
    two = (Y > 1).astype(int)
    yield "lgb_own_two", lambda: lgb.LGBMClassifier(objective=own_objective, **small).fit(X, two)
    ranks = np.clip(COUNTS, 0, 3).astype(int)
    yield "lgb_ranker", lambda: lgb.LGBMRanker(**small).fit(X, ranks, group=[10] * 9)
    stopped = dict(small, n_estimators=30, learning_rate=1.0)
    yield (
        "lgb_stopped",
        lambda: lgb.LGBMClassifier(**stopped).fit(
            X[:60],
            THREE[:60],
            eval_set=[(X[60:], THREE[60:])],
            callbacks=[lgb.early_stopping(2, verbose=False)],
        ),
    )
    options = {"num_leaves": 4, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1, "learning_rate": 0.9}

    def booster(start=None):
        rows = lgb.Dataset(X[:60], Y[:60], free_raw_data=False)
        return lgb.train(
            options,
            rows,
            30,
            valid_sets=[rows.create_valid(X[60:], Y[60:])],
            callbacks=[lgb.early_stopping(2, verbose=False)],
            init_model=start,
        )

    def first():
        return lgb.train(options, lgb.Dataset(X[:60], Y[:60], free_raw_data=False), 2)

    yield "lgb_booster", first
    yield "lgb_booster_stopped", booster
    yield "lgb_booster_continued", lambda: booster(first())
    yield "refused_lgb_linear", lambda: lgb.LGBMRegressor(linear_tree=True, **small).fit(X, Y)


def predictions(model, rows):
    """What the library predicts, by method."""
    kind = type(model).__module__.split(".")[0]
    if kind == "xgboost" and type(model).__name__ == "Booster":
        import xgboost as xgb

        matrix = xgb.DMatrix(rows, feature_types=model.feature_types, enable_categorical=True)
        return {"predict": model.predict(matrix), "raw": model.predict(matrix, output_margin=True)}
    found = {"predict": model.predict(rows)}
    for method in ("predict_proba", "decision_function", "score_samples"):
        if hasattr(model, method):
            with contextlib.suppress(AttributeError):
                found[method] = getattr(model, method)(rows)
    if kind == "xgboost":
        found["raw"] = model.predict(rows, output_margin=True)
    if kind == "lightgbm":
        found["raw"] = model.predict(rows, raw_score=True)
    return found


def stored(value):
    """An array that needs no pickle to be stored."""
    value = np.asarray(value)
    return value.astype("U") if value.dtype == object else value


def add(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def main(path):
    rng = np.random.RandomState(9)
    rows = np.concatenate([X[:12], rng.normal(size=(12, N_FEATURES)).astype(np.float32)]).astype(float)
    rows[:, CATEGORY] = rng.randint(0, 12, len(rows))
    rows_missing = rows.copy()
    rows_missing[rng.uniform(size=rows.shape) < 0.2] = np.nan
    arrays = {"rows": rows, "rows_missing": rows_missing}
    versions = {"sklearn": sklearn.__version__, "numpy": np.__version__}
    made = 0
    # Each release begins elsewhere in the turn of formats.
    turn = int(sklearn.__version__.split(".")[1])
    with tarfile.open(path, "w:xz", preset=9) as archive, tempfile.TemporaryDirectory() as folder:
        for source in (of_sklearn, of_xgboost, of_lightgbm):
            try:
                models = list(source())
            except ImportError:
                continue
            for name, train in models:
                try:
                    model = train()
                except Exception as error:
                    # A release does not have every option.
                    print(f"no {name}: {str(error).splitlines()[:1]}")
                    continue
                kind, way = divmod(turn, 6)
                if kind % 2:
                    joblib.dump(model, Path(folder, "m.joblib"), compress=COMPRESSED[way])
                    add(archive, name + ".joblib", Path(folder, "m.joblib").read_bytes())
                else:
                    add(archive, name + ".pkl", pickle.dumps(model, protocol=way))
                made, turn = made + 1, turn + 1
                if name.startswith("refused_"):
                    continue
                for which, X_ in (("rows", rows), ("rows_missing", rows_missing)):
                    try:
                        found = predictions(model, X_)
                    except ValueError:
                        # The library refuses missing values, so hbtvm has to, too.
                        continue
                    for method, value in found.items():
                        several = value if isinstance(value, list) else [value]
                        for i, part in enumerate(several):
                            arrays[f"{name}/{which}/{method}/{i}"] = stored(part)
        for library in ("xgboost", "lightgbm"):
            if library in sys.modules:
                versions[library] = sys.modules[library].__version__
        arrays["versions"] = np.array(sorted(" ".join(pair) for pair in versions.items()))
        content = io.BytesIO()
        np.savez(content, **arrays)
        add(archive, "expected.npz", content.getvalue())
    print(f"{path}: {made} models of {', '.join(arrays['versions'])}")


if __name__ == "__main__":
    main(sys.argv[1])
