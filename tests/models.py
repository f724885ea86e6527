"""Small trained models of every supported kind, the same on every run.

`ZOO` maps a name to a function that trains the model; `data` makes its rows. Models whose name
ends in ``_nan`` were trained with missing values, ``_cat`` ones have categories in column 2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn import ensemble, tree

N_ROWS, N_FEATURES, CATEGORY_COLUMN, N_CATEGORIES = 240, 4, 2, 12


@functools.cache
def data(missing: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, float64 (240, 4), and targets, float64 (240,)."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    X[:, 1] = np.round(X[:, 1], 1)
    X[:, CATEGORY_COLUMN] = rng.integers(0, N_CATEGORIES, N_ROWS)
    y = X[:, 0] + np.sin(3 * X[:, 1]) + (X[:, CATEGORY_COLUMN] % 3) + 0.1 * rng.normal(size=N_ROWS)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    X.setflags(write=False)
    return X, y


def targets(kind: str) -> np.ndarray:
    """Targets by kind: real, positive, share, two, three (labels), names, pair, pair_labels, flags, ranks."""
    y = data()[1]
    three = np.digitize(y, [0.5, 1.5])
    names = np.array(["low", "mid", "high"])[three]
    return {
        "real": lambda: y,
        "positive": lambda: np.abs(y) + 0.1,
        "share": lambda: 1 / (1 + np.exp(-y)),
        "two": lambda: (y > 1).astype(int),
        "three": lambda: three,
        "names": lambda: names,
        "yes_no": lambda: np.array(["no", "yes"])[(y > 1).astype(int)],
        "objects": lambda: np.array(["no", "yes"], dtype=object)[(y > 1).astype(int)],
        "floats": lambda: np.array([4.0, 1.0, -2.0])[three],
        "pair": lambda: np.column_stack([y, -2 * y + 1]),
        "pair_labels": lambda: np.column_stack([names, np.array(["no", "yes"])[(y > 1).astype(int)]]),
        "flags": lambda: np.column_stack([y > 0, y > 1, y > 2]).astype(int),
        "ranks": lambda: np.clip(np.round(y), 0, 4).astype(int),
    }[kind]()


ZOO: dict[str, Callable[[], Any]] = {}


def _add(name: str, make: Callable[[], Any], target: str, missing: bool = False, **fit: Any) -> None:
    def train() -> Any:
        return make().fit(data(missing)[0], targets(target), **fit)

    ZOO[name] = functools.cache(train)


def _sklearn() -> None:
    trees = {"tree": tree.DecisionTreeClassifier, "extra_tree": tree.ExtraTreeClassifier}
    forests = {"forest": ensemble.RandomForestClassifier, "extra_forest": ensemble.ExtraTreesClassifier}
    kinds: dict[str, Any] = {**trees, **forests}
    regressors: dict[str, Any] = {
        "tree": tree.DecisionTreeRegressor,
        "extra_tree": tree.ExtraTreeRegressor,
        "forest": ensemble.RandomForestRegressor,
        "extra_forest": ensemble.ExtraTreesRegressor,
    }
    for name, kind in kinds.items():
        size = {"n_estimators": 7} if name in forests else {}
        make = functools.partial(kind, max_depth=5, random_state=1, **size)
        _add(f"sk_{name}_two", make, "yes_no")
        _add(f"sk_{name}_three_nan", make, "names", missing=True)
        _add(f"sk_{name}_pair_labels", make, "pair_labels")
        make = functools.partial(regressors[name], max_depth=5, random_state=1, **size)
        _add(f"sk_{name}_real_nan", make, "real", missing=True)
        _add(f"sk_{name}_pair", make, "pair")
    _add("sk_tree_objects", lambda: tree.DecisionTreeClassifier(max_depth=3), "objects")
    _add("sk_tree_floats", lambda: tree.DecisionTreeClassifier(max_depth=3), "floats")
    _add("sk_stump", lambda: tree.DecisionTreeRegressor(max_depth=1), "real")
    _add("sk_flat", lambda: tree.DecisionTreeRegressor(min_samples_leaf=200), "real")
    boost = functools.partial(ensemble.GradientBoostingClassifier, n_estimators=6, random_state=1)
    _add("sk_boost_two", boost, "yes_no")
    _add("sk_boost_three", boost, "names")
    _add("sk_boost_exponential", functools.partial(boost, loss="exponential"), "two")
    _add("sk_boost_zero", functools.partial(boost, init="zero"), "names")
    for loss in ("squared_error", "absolute_error", "huber", "quantile"):
        make = functools.partial(ensemble.GradientBoostingRegressor, n_estimators=6, loss=loss)
        _add(f"sk_boost_{loss}", make, "real")
    hist = functools.partial(ensemble.HistGradientBoostingClassifier, max_iter=6, min_samples_leaf=5)
    hist_r = functools.partial(ensemble.HistGradientBoostingRegressor, max_iter=6, min_samples_leaf=5)
    _add("sk_hist_two_nan", hist, "yes_no", missing=True)
    _add("sk_hist_three", hist, "names")
    _add(
        "sk_hist_three_cat",
        functools.partial(hist, categorical_features=[CATEGORY_COLUMN]),
        "names",
        missing=True,
    )
    _add("sk_hist_real_cat", functools.partial(hist_r, categorical_features=[CATEGORY_COLUMN]), "real")
    for loss in ("squared_error", "absolute_error", "gamma", "poisson", "quantile"):
        _add(f"sk_hist_{loss}", functools.partial(hist_r, loss=loss, quantile=0.3), "positive")
    isolation = functools.partial(ensemble.IsolationForest, n_estimators=9, random_state=1)
    _add("sk_isolation_nan", isolation, "real", missing=True)
    _add("sk_isolation_some", functools.partial(isolation, max_features=0.5, contamination=0.2), "real")


def _xgb_train(
    parameters: dict[str, Any], target: str, missing: bool, categories: bool, rounds: int = 5
) -> Any:
    X = data(missing)[0]
    types = ["c" if categories and i == CATEGORY_COLUMN else "q" for i in range(N_FEATURES)]
    rows = xgb.DMatrix(X, targets(target), feature_types=types, enable_categorical=categories)
    if parameters.get("objective") == "survival:aft":
        rows.set_float_info("label_lower_bound", targets(target))
        rows.set_float_info("label_upper_bound", targets(target) + 1)
    return xgb.train({"max_depth": 4, "seed": 1, "nthread": 1, **parameters}, rows, rounds)


def _xgboost() -> None:
    common = {"n_estimators": 5, "max_depth": 4, "random_state": 1, "n_jobs": 1}
    classifier = functools.partial(xgb.XGBClassifier, **common)
    regressor = functools.partial(xgb.XGBRegressor, **common)
    vector = {"multi_strategy": "multi_output_tree"}
    _add("xgb_two_nan", classifier, "two", missing=True)
    _add("xgb_three", classifier, "three")
    _add("xgb_three_vector", functools.partial(classifier, **vector), "three")
    _add("xgb_three_softmax", functools.partial(classifier, objective="multi:softmax"), "three")
    _add("xgb_two_softprob", functools.partial(classifier, objective="multi:softprob", num_class=2), "two")
    _add("xgb_two_softmax", functools.partial(classifier, objective="multi:softmax", num_class=2), "two")
    _add("xgb_flags", classifier, "flags")
    _add("xgb_two_hinge", functools.partial(classifier, objective="binary:hinge"), "two")
    _add("xgb_rf_three", functools.partial(xgb.XGBRFClassifier, **common), "three")
    _add("xgb_rf_real", functools.partial(xgb.XGBRFRegressor, **common), "real")
    _add("xgb_real_base", functools.partial(regressor, base_score=0.3), "real")
    _add("xgb_pair", regressor, "pair")
    _add("xgb_pair_vector", functools.partial(regressor, **vector), "pair")
    _add("xgb_dart", functools.partial(regressor, booster="dart", rate_drop=0.5), "real")
    _add("xgb_missing_zero", functools.partial(regressor, missing=0.0), "real")
    quantile = functools.partial(regressor, objective="reg:quantileerror", quantile_alpha=[0.2, 0.8])
    _add("xgb_quantiles", quantile, "real")
    _add("xgb_ranker", functools.partial(xgb.XGBRanker, **common), "ranks", qid=np.repeat(np.arange(24), 10))
    for name, target in {
        "reg:squarederror": "real", "reg:squaredlogerror": "positive", "reg:pseudohubererror": "real",
        "reg:absoluteerror": "real", "reg:logistic": "share", "reg:gamma": "positive",
        "reg:tweedie": "positive", "count:poisson": "ranks", "binary:logistic": "two",
        "binary:logitraw": "two", "binary:hinge": "two", "survival:cox": "positive",
        "survival:aft": "positive",
    }.items():  # fmt: skip
        ZOO[f"xgb_{name}"] = functools.cache(
            functools.partial(_xgb_train, {"objective": name}, target, True, False)
        )
    for name, extra in (("partition", 1), ("one_hot", 100)):
        parameters = {"max_cat_to_onehot": extra, "tree_method": "hist"}
        ZOO[f"xgb_{name}_cat"] = functools.cache(
            functools.partial(_xgb_train, parameters, "real", True, True)
        )
    ZOO["xgb_parallel"] = functools.cache(
        functools.partial(_xgb_train, {"num_parallel_tree": 3, "subsample": 0.5}, "real", False, False)
    )


def _lightgbm() -> None:
    common = {
        "n_estimators": 6, "num_leaves": 9, "min_child_samples": 5, "verbose": -1, "n_jobs": 1,
        "random_state": 1, "min_data_per_group": 3, "cat_smooth": 1.0, "deterministic": True,
    }  # fmt: skip
    classifier = functools.partial(lgb.LGBMClassifier, **common)
    regressor = functools.partial(lgb.LGBMRegressor, **common)
    forest = {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1}
    column = {"categorical_feature": [CATEGORY_COLUMN]}
    _add("lgb_two", classifier, "yes_no")
    _add("lgb_two_sigmoid", functools.partial(classifier, sigmoid=2.5), "two")
    _add("lgb_three_nan", classifier, "names", missing=True)
    _add("lgb_three_cat", classifier, "names", missing=True, **column)
    _add("lgb_three_ova", functools.partial(classifier, objective="multiclassova", sigmoid=1.5), "floats")
    _add("lgb_two_rf", functools.partial(classifier, **forest), "objects")
    _add("lgb_real_cat", regressor, "real", **column)
    _add(
        "lgb_real_one_hot_cat",
        functools.partial(regressor, max_cat_to_onehot=50),
        "real",
        missing=True,
        **column,
    )
    _add("lgb_real_rf", functools.partial(regressor, **forest), "real")
    _add("lgb_real_dart", functools.partial(regressor, boosting_type="dart"), "real")
    goss = functools.partial(regressor, data_sample_strategy="goss", learning_rate=0.9)
    _add("lgb_real_goss", goss, "real")
    _add("lgb_zero_missing_nan", functools.partial(regressor, zero_as_missing=True), "real", missing=True)
    _add("lgb_no_missing_nan", functools.partial(regressor, use_missing=False), "real", missing=True)
    _add("lgb_sqrt", functools.partial(regressor, reg_sqrt=True), "real")
    _add("lgb_ranker", functools.partial(lgb.LGBMRanker, **common), "ranks", group=[24] * 10)
    xendcg = functools.partial(lgb.LGBMRanker, **common, objective="rank_xendcg")
    _add("lgb_ranker_xendcg", xendcg, "ranks", group=[24] * 10)
    for name, target in {
        "regression_l1": "real", "huber": "real", "fair": "real", "poisson": "positive", "quantile": "real",
        "mape": "positive", "gamma": "positive", "tweedie": "positive", "cross_entropy": "share",
        "cross_entropy_lambda": "share",
    }.items():  # fmt: skip
        _add(f"lgb_{name}", functools.partial(regressor, objective=name), target, missing=True)

    def own(y: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return score - y, np.ones_like(score)

    _add("lgb_own_objective", functools.partial(regressor, objective=own), "real")
    _add("lgb_own_objective_two", functools.partial(classifier, objective=own), "two")


_sklearn()
_xgboost()
_lightgbm()
