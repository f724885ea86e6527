"""Pipelines made at random, in the manner of OpenML-CC18's: do they compile, and agree?

88% of that suite's pipelines (2,328 of them; Hummingbird, section 6) have 3.3 operators on average: imputers,
scalers, encoders, selections and one predictor, on frames of 1 to 200 columns of numbers, strings and missing
values.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 600


def frame(rng: np.random.Generator, rows: int = ROWS) -> tuple[Any, list[str], list[str]]:
    """A frame; and the names of its columns of numbers and of strings."""
    import pandas as pd

    wide = rng.random() < 0.25
    count = int(rng.integers(20, 150)) if wide else int(rng.integers(0, 15))
    texts = int(rng.integers(0, 50)) if wide else int(rng.integers(0, 9))
    if count + texts == 0:
        count = 1
    columns: dict[str, Any] = {}
    for i in range(count):
        kind = rng.integers(4)
        values = rng.normal(size=rows) * 10.0 ** rng.integers(-3, 5)
        if kind == 1:
            values = rng.lognormal(1, 1, rows).round(2)
        elif kind == 2:
            values = rng.integers(0, 10, rows).astype(float)
        if kind != 3 and rng.random() < 0.4:
            values[rng.random(rows) < 0.08] = np.nan
        columns[f"n{i}"] = values
    for i in range(texts):
        known = np.array([f"{'abcdefgh'[k % 8]}{k}" for k in range(int(rng.integers(2, 40)))], object)
        values = known[rng.integers(0, len(known), rows)]
        if rng.random() < 0.4:
            values[rng.random(rows) < 0.08] = np.nan
        columns[f"s{i}"] = values
    names = list(columns)
    rng.shuffle(names)
    made = pd.DataFrame({name: columns[name] for name in names})
    made = made.astype({name: "str" for name in names if name[0] == "s" and rng.random() < 0.7})
    return made, [n for n in names if n[0] == "n"], [n for n in names if n[0] == "s"]


def _pick(rng: np.random.Generator, choices: list[Callable[[], Any]]) -> Any:
    return choices[int(rng.integers(len(choices)))]()


def pipeline(rng: np.random.Generator, numbers: list[str], texts: list[str]) -> Any:
    """A pipeline for such columns, not fitted."""
    from sklearn import feature_selection as fs
    from sklearn import impute, preprocessing
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.pipeline import Pipeline, make_pipeline

    imputers = [
        lambda: impute.SimpleImputer(strategy="mean"),
        lambda: impute.SimpleImputer(strategy="median", add_indicator=bool(rng.random() < 0.3)),
        lambda: impute.SimpleImputer(strategy="most_frequent"),
        lambda: impute.SimpleImputer(strategy="constant", fill_value=-1.0),
    ]
    scalers: list[Callable[[], Any]] = [
        preprocessing.StandardScaler,
        preprocessing.StandardScaler,
        preprocessing.MinMaxScaler,
        lambda: preprocessing.MinMaxScaler(clip=True),
        preprocessing.MaxAbsScaler,
        preprocessing.RobustScaler,
        lambda: preprocessing.Binarizer(threshold=0.5),
        preprocessing.Normalizer,
    ]
    encoders = [
        lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"),
        lambda: preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        lambda: preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20),
        lambda: preprocessing.OneHotEncoder(drop="first", handle_unknown="ignore"),
        lambda: preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ]
    number_steps = [_pick(rng, imputers)]
    if rng.random() < 0.75:
        number_steps.append(_pick(rng, scalers))
    number = make_pipeline(*number_steps) if len(number_steps) > 1 else number_steps[0]
    text: Any = _pick(rng, encoders)
    if rng.random() < 0.5:
        strategy = "most_frequent" if rng.random() < 0.5 else "constant"
        filled = {"fill_value": "missing"} if strategy == "constant" else {}
        text = make_pipeline(impute.SimpleImputer(strategy=strategy, **filled), text)
    steps: list[tuple[str, Any]] = []
    if texts:
        parts = []
        if numbers:
            named: Any = numbers if rng.random() < 0.6 else make_column_selector(dtype_include=np.number)
            parts.append(("num", number, named))
        parts.append(("cat", text, texts))
        steps.append(("columns", ColumnTransformer(parts)))
    else:
        steps += [(f"number{i}", step) for i, step in enumerate(number_steps)]
    if rng.random() < 0.3:
        selections: list[Callable[[], Any]] = [
            fs.VarianceThreshold,
            lambda: fs.SelectKBest(k=1),
            lambda: fs.SelectPercentile(percentile=40),
        ]
        steps.append(("select", _pick(rng, selections)))
    steps.append(("model", _model(rng)))
    return Pipeline(steps)


def _model(rng: np.random.Generator) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn import ensemble, linear_model, svm, tree
    from xgboost import XGBClassifier, XGBRegressor

    boosted = {"n_estimators": 20, "n_jobs": 1}
    return _pick(
        rng,
        [
            lambda: linear_model.LogisticRegression(max_iter=200),
            lambda: linear_model.LogisticRegression(max_iter=200),
            lambda: linear_model.SGDClassifier(loss="log_loss", random_state=0),
            linear_model.RidgeClassifier,
            svm.LinearSVC,
            linear_model.Ridge,
            linear_model.Lasso,
            lambda: tree.DecisionTreeClassifier(max_depth=6, random_state=0),
            lambda: ensemble.RandomForestClassifier(20, random_state=0),
            lambda: ensemble.ExtraTreesClassifier(20, random_state=0),
            lambda: ensemble.RandomForestRegressor(20, random_state=0),
            lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
            lambda: LGBMClassifier(**boosted, verbose=-1),
            lambda: LGBMRegressor(**boosted, verbose=-1),
            lambda: XGBClassifier(**boosted),
            lambda: XGBRegressor(**boosted),
        ],
    )


def fitted(seed: int) -> tuple[Any, Any]:
    """A fitted pipeline, and rows to predict."""
    rng = np.random.default_rng(seed)
    rows, numbers, texts = frame(rng)
    model = pipeline(rng, numbers, texts)
    if type(model[-1]).__name__.endswith(("Regressor", "Ridge", "Lasso")):
        target: Any = rng.normal(size=len(rows))
    else:
        classes = int(rng.choice([2, 2, 3, 5]))
        target = rng.integers(0, classes, len(rows))
        # XGBoost takes no other labels than 0, 1, 2, ...
        if rng.random() < 0.4 and not type(model[-1]).__name__.startswith("XGB"):
            target = np.array([f"class {k}" for k in target])
    half = len(rows) // 2
    model.fit(rows.iloc[:half], target[:half])
    return model, rows.iloc[half:]


def compare(model: Any, compiled: Any, rows: Any) -> str | None:
    """What differs between a pipeline's answers and its compiled form's; None if nothing does."""
    for method in ("predict", "predict_proba", "decision_function"):
        if not hasattr(model, method):
            continue
        expected = np.asarray(getattr(model, method)(rows))
        if method == "decision_function" and "decision" not in compiled.package.output.outputs:
            continue
        got = np.asarray(getattr(compiled, method)(rows))
        if expected.shape != got.shape:
            return f"{method}: shape {got.shape}, expected {expected.shape}"
        if expected.dtype.kind in "OUS" or (method == "predict" and expected.dtype.kind in "iu"):
            wrong = float(np.mean(expected != got))
            if wrong:
                return f"{method}: {wrong:.1%} of the labels differ"
        else:
            # Libraries that sum in float32 are themselves off by more where sums are close to zero.
            single = expected.dtype == np.float32
            scale = (1e-2 if single else 1e-3) * max(float(np.abs(expected).max()), 1e-30)
            off = float((np.abs(got - expected) / np.maximum(np.abs(expected), scale)).max())
            if not off <= (1e-5 if single else 1e-6):
                return f"{method}: off by {off:.2g}"
    return None


def main(output: Path, count: int, seed: int) -> int:
    """Compile and compare so many that scikit-learn can fit; returns the exit status."""
    import hbtvm

    warnings.simplefilter("ignore")
    tally: dict[str, list[str]] = {"agree": [], "differ": [], "refused": [], "not fitted": []}
    number = seed - 1
    while sum(map(len, tally.values())) - len(tally["not fitted"]) < count:
        number += 1
        start = time.perf_counter()
        told = ""
        try:
            model, rows = fitted(number)
        except (ValueError, TypeError) as error:
            kind, told = "not fitted", str(error)
        else:
            names = [type(step).__name__ for _, step in model.steps]
            try:
                difference = compare(model, hbtvm.compile(model, batch_sizes=100, dtype="float64"), rows)
                kind, told = ("agree", "") if difference is None else ("differ", difference)
            except hbtvm.ModelError as error:
                kind, told = "refused", str(error)
            except Exception as error:
                kind, told = "differ", f"{type(error).__name__}: {error}"
                traceback.print_exc()
            told = f"{' → '.join(names)} {told}"
        tally[kind].append(f"{number}: {told}")
        if kind not in ("agree", "not fitted"):
            print(
                f"{kind} {number}: {told[:300]} ({time.perf_counter() - start:.1f} s)",
                file=sys.stderr,
                flush=True,
            )
    (output / "generated.json").write_text(json.dumps(tally, indent=1))
    print(", ".join(f"{len(found)} {kind}" for kind, found in tally.items()))
    return 1 if tally["differ"] else 0
