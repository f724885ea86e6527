"""Models of CatBoost with features, losses and trees drawn at random, and rows at their borders.

``python -m tests.frontends.catboost.generated 200`` compares so many models; the suite compares the first.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.frontends.catboost import cbm
from tests.by_reference import predict
from tests.counters import counter_code

catboost = pytest.importorskip("catboost")

WORDS = [
    "",
    "a",
    "B",
    "é",
    "four",
    "five5",
    "eight_8_",
    "naïve text",
    "seventeen-letters",
    "x" * 33,
    "y" * 64,
]
WORDS += ["z" * 65, "long " * 40, "1", "0", "-3", "nan", "ü" * 20]
REGRESSIONS = (
    "RMSE", "MAE", "Quantile:alpha=0.3", "Poisson", "Tweedie:variance_power=1.3", "LogLinQuantile", "MAPE",
    "Huber:delta=1", "Expectile:alpha=0.7", "MultiQuantile:alpha=0.2,0.8", "RMSEWithUncertainty", "MultiRMSE",
    "SurvivalAft",
)  # fmt: skip
CLASSES = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy")
RANKS = ("YetiRank", "QueryRMSE", "PairLogit", "QuerySoftMax", "StochasticRank:metric=DCG")
LABELS: tuple[list[Any], ...] = ([0, 1, 2], [-4, 7, 9], [0.5, 1.5, 2.0], ["no", "yes", "é"], ["1", "2", "10"])


def frame(rng: np.random.Generator, numbers: int, kinds: list[str], n: int, missing: bool) -> pd.DataFrame:
    """Return rows of numbers and categories."""
    columns: dict[str, Any] = {}
    for i in range(numbers):
        x = np.round(rng.normal(size=n), rng.integers(0, 4))
        if missing:
            x[rng.random(n) < 0.15] = np.nan
        columns[f"x{i}"] = x.astype(np.float32) if i % 2 else x
    for i, kind in enumerate(kinds):
        words = rng.choice(rng.choice(WORDS, rng.integers(3, 18), replace=False), n).astype(object)
        values = {
            "text": words,
            "category": pd.Categorical(words),
            "integer": rng.integers(-3, 9, n),
            "bool": rng.random(n) < 0.5,
        }
        columns[f"{kind} {i}"] = values[kind]
    order = rng.permutation(len(columns))
    names = list(columns)
    return pd.DataFrame({names[i]: columns[names[i]] for i in order})


def trained(seed: int) -> tuple[Any, pd.DataFrame]:
    """Return a fitted estimator, and rows to predict."""
    rng = np.random.default_rng(seed)
    n, numbers = int(rng.integers(80, 400)), int(rng.integers(1, 5))
    kinds = list(rng.choice(["text", "category", "integer", "bool"], rng.integers(0, 4)))
    nan_mode = str(rng.choice(["Forbidden", "Min", "Max"]))
    X = frame(rng, numbers, kinds, n, nan_mode != "Forbidden")
    signal = np.nan_to_num(X["x0"].to_numpy(np.float64)) + 0.3 * rng.normal(size=n)
    categories = [name for name in X.columns if " " in name]
    parities = [
        X[name].astype(str).map(lambda text: sum(text.encode()) % 2).to_numpy() for name in categories
    ]
    for parity in parities:
        signal += parity - 0.5
    if len(parities) > 1:
        # Only combinations explain this.
        signal += 4 * (sum(parities) % 2)
    depth = int(rng.integers(1, 11))
    options: dict[str, Any] = {
        "iterations": int(rng.integers(1, 4 if depth > 6 else 40 if len(kinds) > 1 else 12)),
        "depth": depth,
        "nan_mode": nan_mode,
        "grow_policy": str(rng.choice(["SymmetricTree", "SymmetricTree", "Depthwise", "Lossguide"])),
        "one_hot_max_size": int(rng.choice([2, 5, 30])),
        "max_ctr_complexity": int(rng.integers(1, 4)),
        "border_count": int(rng.choice([4, 32, 254, 300])),
        "cat_features": categories,
        "random_seed": seed, "thread_count": 1, "verbose": False, "allow_writing_files": False,
    }  # fmt: skip
    counters = ["Borders", "Buckets", "BinarizedTargetMeanValue", "Counter"]
    if rng.random() < 0.5:
        options["simple_ctr"] = list(rng.choice(counters, 2, replace=False))
        options["combinations_ctr"] = [str(rng.choice(counters))]
    kind = str(rng.choice(["regressor", "classifier", "classifier", "ranker", "base"]))
    model, y, groups = _estimator(kind, rng, signal, options)
    model.fit(X, y, **({"group_id": groups} if groups is not None else {}))
    if rng.random() < 0.1 and model.get_param("loss_function") == "RMSE":
        model.set_scale_and_bias(1.5, -0.25)
    return model, _rows(rng, model, X)


def _estimator(
    kind: str, rng: np.random.Generator, signal: np.ndarray, options: dict[str, Any]
) -> tuple[Any, Any, Any]:
    n = len(signal)
    if kind == "ranker":
        loss = str(rng.choice(RANKS))
        return (
            catboost.CatBoostRanker(loss_function=loss, **_symmetric(options, loss)),
            (signal > np.median(signal)).astype(int),
            np.sort(rng.integers(0, n // 8, n)),
        )
    if kind != "classifier":
        loss = str(rng.choice(REGRESSIONS)) if kind == "regressor" else "RMSE"
        y: Any = np.exp(0.3 * signal) if loss != "RMSE" else signal
        if loss in ("MultiRMSE", "SurvivalAft"):
            y = np.column_stack([y, y + 1])
        options = _symmetric(options, loss)
        if kind == "base":
            return catboost.CatBoost({"loss_function": loss, **options}), y, None
        return catboost.CatBoostRegressor(loss_function=loss, **options), y, None
    loss = str(rng.choice(CLASSES))
    labels = np.array(LABELS[rng.integers(len(LABELS))], object)
    level = np.digitize(signal, np.quantile(signal, [0.3, 0.7]))
    if loss == "CrossEntropy":
        y = 1 / (1 + np.exp(-signal))
    elif loss == "Logloss":
        y = labels[np.minimum(level, 1)] if rng.random() < 0.8 else level > 0
    elif loss.startswith("MultiC") and loss != "MultiCrossEntropy":
        y = labels[level]
    else:
        y = np.column_stack([level > 0, level > 1]).astype(int)
    return catboost.CatBoostClassifier(loss_function=loss, **_symmetric(options, loss)), y, None


def _symmetric(options: dict[str, Any], loss: str) -> dict[str, Any]:
    """Return options that CatBoost takes with a loss."""
    if loss in ("MultiRMSE", "MultiLogloss", "MultiCrossEntropy", "SurvivalAft", "PairLogit"):
        options = {**options, "grow_policy": "SymmetricTree"}
    if loss.startswith(("StochasticRank", "YetiRank", "MultiRMSE", "MultiQ", "Surviv")):
        options = {key: value for key, value in options.items() if not key.endswith("_ctr")}
    return options


def _rows(rng: np.random.Generator, model: Any, X: pd.DataFrame) -> pd.DataFrame:
    """Return rows with borders and their neighbours, missing and infinite numbers, and unknown categories."""
    rows = X.astype(object).to_dict("records")
    for at, borders in model.get_borders().items():
        name = X.columns[int(at)] if isinstance(at, int) else at
        for border in rng.permutation(np.array(borders, np.float32))[:12]:
            wide = np.float64(border)
            values = [border, *(np.nextafter(border, np.float32(side)) for side in (-np.inf, np.inf))]
            values += [np.nextafter(wide, side) for side in (-np.inf, np.inf)]
            rows += [{**rows[rng.integers(len(X))], name: float(value)} for value in values]
        rows += [{**rows[rng.integers(len(X))], name: value} for value in (np.nan, np.inf, -np.inf, 1e300)]
    result = pd.DataFrame(rows, columns=X.columns)
    for name in X.columns:
        if name.startswith("x"):
            result[name] = result[name].astype(np.float64)
        elif name.startswith(("text", "category")):
            result.loc[rng.random(len(result)) < 0.1, name] = "unknown to training"
    return result.infer_objects()


def compare(seed: int) -> Counter[str]:
    """Compare a model with CatBoost: live, and from both kinds of files. Return facts of the model."""
    model, rows = trained(seed)
    raw, loss = catboost.CatBoost.predict(model, rows), str(model.get_all_params().get("loss_function"))
    wanted = {None: model.predict(rows), "raw": raw}
    if hasattr(model, "predict_proba"):
        wanted["proba"] = model.predict_proba(rows)
    objects = rows.astype(object).to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        sources = [model]
        for name in ("model.cbm", "model.json"):
            path = Path(folder, name)
            model.save_model(str(path), format=path.suffix.replace(".", ""))
            sources.append(path)
        parts = cbm.read(Path(folder, "model.cbm").read_bytes())
        for source in sources:
            if source is sources[-1] and parts.counters and loss.startswith(("MultiL", "MultiCr", "MultiR")):
                with pytest.raises(UnsupportedModel, match="only one of the model's targets; save it as"):
                    load_model(source)
                continue
            graph = load_model(source)
            inputs = [rows, objects] if source is model else [rows]
            for output, want in wanted.items():
                if output is None and source is not model and graph.model != type(model).__name__:
                    continue  # a file does not say which class it came from
                for X in inputs:
                    for code in (None, counter_code()):
                        _equal(predict(graph, X, output, code), want, f"seed {seed}, {output}, {source}")
            every = predict(graph, rows)
            for code in (None, counter_code()):
                for i in (0, len(rows) - 1):
                    alone = predict(graph, rows.iloc[i : i + 1], None, code)
                    _equal(alone, every[i : i + 1], f"seed {seed}, row {i}, {source}")
    facts = Counter[str]({type(model).__name__: 1, loss.partition(":")[0]: 1})
    facts.update({f"{counter.kind} of {len(counter.combination.categories)}" for counter in parts.counters})
    facts.update(["one-hot"] if parts.one_hot else [])
    facts.update(["float in counter"] if any(c.combination.above for c in parts.counters) else [])
    facts.update(["one-hot in counter"] if any(c.combination.equal for c in parts.counters) else [])
    facts.update({type(tree).__name__ for tree in parts.trees} | {feature.nan for feature in parts.numeric})
    return facts


def _equal(got: np.ndarray, want: np.ndarray, where: str) -> None:
    assert got.shape == want.shape, f"{where}: {got.shape}, {want.shape}"
    assert got.dtype == want.dtype, f"{where}: {got.dtype}, {want.dtype}"
    if got.dtype == np.float64:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=where)
    else:
        np.testing.assert_array_equal(got, want, err_msg=where)


def main(count: int) -> None:
    """Compare models, and print how often each fact occurred."""
    facts: Counter[str] = Counter()
    for seed in range(count):
        facts += compare(seed)
    print(f"{count} models: " + ", ".join(f"{fact} {times}" for fact, times in sorted(facts.items())))


if __name__ == "__main__":
    main(int(sys.argv[1]))
