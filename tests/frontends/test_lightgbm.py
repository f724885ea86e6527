"""LightGBM models against LightGBM itself."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.lightgbm.model import from_text
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from tests.models import CATEGORY_COLUMN, ZOO, data, targets
from tests.oracle import assert_close, assert_same_as_library, assert_same_leaves, edge_rows, margins

X, Y = data()
SMALL = {
    "n_estimators": 4, "num_leaves": 7, "min_child_samples": 5, "verbose": -1, "n_jobs": 1,
    "random_state": 1, "deterministic": True,
}  # fmt: skip
MODELS = [name for name in ZOO if name.startswith("lgb_")]


def _check_booster(booster: lgb.Booster, graph: Graph, rows: np.ndarray) -> None:
    raw = margins(graph, rows)
    assert_close(graph.output.compute(None, raw), booster.predict(rows))
    assert_close(graph.output.compute("raw", raw), booster.predict(rows, raw_score=True))
    assert_same_leaves(graph, rows, booster.predict(rows, pred_leaf=True))


def _check(model: Any) -> Graph:
    graph = from_object(model)
    for dtype in ("float32", "float64"):
        rows = edge_rows(graph, dtype)
        if isinstance(model, lgb.Booster):
            _check_booster(model, graph, rows)
            continue
        for part in (rows, rows[:1]):
            assert_same_as_library(model, graph, part)
            raw = margins(graph, part)
            assert_close(graph.output.compute("raw", raw), model.predict(part, raw_score=True))
            assert_same_leaves(graph, part, model.predict(part, pred_leaf=True))
    return graph


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_predicts_as_lightgbm(name: str) -> None:
    model = ZOO[name]()
    graph = _check(model)
    assert (graph.library, graph.model) == ("lightgbm", type(model).__name__)
    assert _check(model.booster_).model == "Booster"


@pytest.mark.parametrize("name", MODELS)
def test_text_files(name: str, tmp_path: Path) -> None:
    model = ZOO[name]()
    path = tmp_path / "model.txt"
    model.booster_.save_model(path)
    graph = load_model(path)
    _check_booster(lgb.Booster(model_file=path), graph, edge_rows(graph, "float64"))
    # Windows line ends are the same text.
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    np.testing.assert_array_equal(load_model(path).anchor.value, graph.anchor.value)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(row=st.lists(st.floats(width=64), min_size=4, max_size=4), category=st.integers(-40, 300))
def test_any_row(row: list[float], category: int) -> None:
    rows = np.array([row, row])
    rows[1, CATEGORY_COLUMN] = category / 2
    for name in ("lgb_zero_missing_nan", "lgb_no_missing_nan", "lgb_three_nan", "lgb_three_cat"):
        booster = ZOO[name]().booster_
        _check_booster(booster, _pipeline(name), rows)


@functools.cache
def _pipeline(name: str) -> Graph:
    return from_object(ZOO[name]().booster_)


@pytest.mark.parametrize("options", [{}, {"zero_as_missing": True}, {"use_missing": False}])
def test_values_about_zero(options: dict[str, Any]) -> None:
    """LightGBM reads what is within 1e-35 of zero as zero, before it compares."""
    tiny = float(np.float32(1e-35))
    values = [0.0, -0.0, tiny, -tiny, 1e-36, -1e-36, 5e-324, -5e-324, np.nan, 1.0, -1.0]
    values += [np.nextafter(v, s) for v in (tiny, -tiny) for s in (-1, 1)]
    rows = np.array(values)[:, None]
    x = np.tile(np.array([-1.0, 0.0, 0.0, 1.0, np.nan]), 60)
    for goal in (x < 0, x == 0, x > 0, np.isnan(x)):
        model = lgb.LGBMRegressor(**SMALL, **options, min_data_in_bin=1).fit(x[:, None], goal.astype(float))
        graph = from_object(model)
        for dtype in (np.float64, np.float32):
            _check_booster(model.booster_, graph, rows.astype(dtype))


@pytest.mark.parametrize(("kind", "target"), [(lgb.LGBMRegressor, "real"), (lgb.LGBMClassifier, "three")])
def test_early_stopping_of_estimators(kind: Any, target: str) -> None:
    y = targets(target)
    model = kind(**{**SMALL, "n_estimators": 60, "learning_rate": 0.8}).fit(
        X[:150], y[:150], eval_X=X[150:], eval_y=y[150:], callbacks=[lgb.early_stopping(2, verbose=False)]
    )
    assert 0 < model.best_iteration_ < 60
    graph = _check(model)
    assert graph.anchor.n_trees == model.best_iteration_ * graph.output.n_outputs


def test_best_iteration_counts(tmp_path: Path) -> None:
    rows = lgb.Dataset(X[:150], Y[:150])
    booster = lgb.train(
        {"learning_rate": 0.8, "verbose": -1, "num_leaves": 7, "num_threads": 1, "min_data_in_leaf": 5},
        rows,
        60,
        valid_sets=[rows.create_valid(X[150:], Y[150:])],
        callbacks=[lgb.early_stopping(2, verbose=False)],
        keep_training_booster=True,
    )
    assert 0 < booster.best_iteration < booster.current_iteration()
    assert _check(booster).anchor.n_trees == booster.best_iteration
    path = tmp_path / "model.txt"
    booster.save_model(path)
    assert load_model(path).anchor.n_trees == booster.best_iteration
    # Asked for all trees, LightGBM writes all.
    booster.save_model(path, num_iteration=-1)
    everything = load_model(path)
    assert everything.anchor.n_trees == booster.current_iteration()
    _check_booster(lgb.Booster(model_file=path), everything, edge_rows(everything, "float64"))


VARIANTS: dict[str, Any] = {
    "stumps": lambda: lgb.LGBMRegressor(**{**SMALL, "num_leaves": 2}).fit(X, Y),
    "no splits": lambda: lgb.LGBMRegressor(**{**SMALL, "min_child_samples": 200}).fit(X, Y),
    "no splits of classes": lambda: lgb.LGBMClassifier(**{**SMALL, "min_child_samples": 200}).fit(
        X, targets("names")
    ),
    "some splits": lambda: lgb.LGBMRegressor(**{**SMALL, "n_estimators": 30}, min_split_gain=20).fit(X, Y),
    "one class": lambda: lgb.LGBMClassifier(**SMALL).fit(X, np.full(len(X), "only")),
    "bools": lambda: lgb.LGBMClassifier(**SMALL).fit(X, Y > 1),
    "two classes as many": lambda: lgb.LGBMClassifier(**SMALL, objective="multiclass", num_class=2).fit(
        X, targets("yes_no")
    ),
    "unbalanced": lambda: lgb.LGBMClassifier(**SMALL, is_unbalance=True).fit(X, targets("two")),
    "weights": lambda: lgb.LGBMClassifier(**SMALL, class_weight="balanced").fit(X, targets("names")),
    "dart classes": lambda: lgb.LGBMClassifier(**SMALL, boosting_type="dart").fit(X, targets("three")),
    "rf classes": lambda: lgb.LGBMClassifier(
        **SMALL, boosting_type="rf", subsample=0.5, subsample_freq=1
    ).fit(X, targets("three")),
    "goss as boosting": lambda: lgb.LGBMRegressor(**SMALL, boosting_type="goss").fit(X, Y),
    "model": lambda: lgb.LGBMModel(**SMALL, objective="regression").fit(X, Y),
    "monotone": lambda: lgb.LGBMRegressor(**SMALL, monotone_constraints=[1, 0, 0, -1]).fit(X, Y),
    "path smoothing": lambda: lgb.LGBMRegressor(**SMALL, path_smooth=3.0, extra_trees=True).fit(X, Y),
    "many categories": lambda: lgb.LGBMRegressor(
        **{**SMALL, "n_estimators": 10}, max_cat_threshold=200, cat_smooth=0.1, min_data_per_group=1
    ).fit(
        np.column_stack([np.arange(2400) % 300, np.arange(2400) % 7]),
        np.sin(np.arange(2400) % 300 * 7.0),
        categorical_feature=[0],
    ),
    "rare categories": lambda: lgb.LGBMRegressor(**SMALL, cat_smooth=0.1, min_data_per_group=1).fit(
        np.column_stack([np.arange(240) % 5 * 1000, X[:, 0]]), Y, categorical_feature=[0]
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore")
def test_variants(name: str) -> None:
    model = VARIANTS[name]()
    _check(model)
    _check(model.booster_)


def test_a_booster_that_was_never_an_estimator() -> None:
    booster = lgb.train(
        {"objective": "multiclass", "num_class": 3, "verbose": -1, "num_leaves": 5, "num_threads": 1},
        lgb.Dataset(X, targets("three"), feature_name=["a", "b", "c", "d e"]),
        3,
    )
    graph = _check(booster)
    assert graph.input.feature_names == ("a", "b", "c", "d_e")
    assert graph.output.kind == "booster"


def test_categories_of_a_data_frame(tmp_path: Path) -> None:
    colours = np.array(["red", "green", "blue", "grey"])[np.arange(len(X)) % 4]
    sizes = np.arange(len(X)) % 3 * 10
    frame = pd.DataFrame(
        {"a": X[:, 0], "colour": pd.Categorical(colours), "b": X[:, 1], "size": pd.Categorical(sizes)}
    )
    y = Y + (colours == "red") * 3 + sizes
    model = lgb.LGBMRegressor(**SMALL, min_data_per_group=1, cat_smooth=0.1).fit(frame, y)
    model.booster_.save_model(tmp_path / "model.txt")
    later = frame.assign(colour=pd.Categorical(["pink", "red", None, "blue"] * 60))
    for graph in (from_object(model), load_model(tmp_path / "model.txt")):
        assert graph.input.feature_names == ("a", "colour", "b", "size")
        assert graph.input.categories == {1: ("blue", "green", "grey", "red"), 3: (0, 10, 20)}
        assert graph.input.unknown_category == "missing"
        codes = {value: code for code, value in enumerate(graph.input.categories[1])}
        rows = later.assign(colour=[codes.get(c, np.nan) for c in later["colour"]], size=sizes / 10).to_numpy(
            np.float64
        )
        raw = reference.margins(graph.anchor, rows)
        assert_close(graph.output.compute(None, raw), model.predict(later))


@pytest.mark.parametrize("kind", ["LGBMClassifier", "LGBMRegressor", "LGBMRanker", "LGBMModel"])
def test_models_that_are_not_fitted_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"the {kind} is not fitted"):
        from_object(getattr(lgb, kind)())


def test_other_objects_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="lightgbm's Dataset is not supported"):
        from_object(lgb.Dataset(X))


def _text(name: str = "lgb_three_cat") -> str:
    return str(ZOO[name]().booster_.model_to_string())


def test_an_objective_that_is_not_known_is_named() -> None:
    with pytest.raises(UnsupportedModel, match="'novel' is not supported"):
        from_text(_text("lgb_sqrt").replace("objective=regression", "objective=novel"))


def test_text_that_is_cut_short_is_refused() -> None:
    text = _text()
    end = text.index("end of parameters")
    for cut in [0, 3, *np.random.default_rng(3).integers(5, end, 40).tolist()]:
        with pytest.raises(ModelError, match=r"LightGBM model text"):
            from_text(text[:cut])


def test_text_that_was_changed_raises_no_other_error() -> None:
    lines = _text().splitlines()
    rng = np.random.default_rng(4)
    for _ in range(300):
        at = int(rng.integers(len(lines)))
        key, equals, value = lines[at].partition("=")
        words = value.split(" ")
        words[int(rng.integers(len(words)))] = ["-7", "999999999", "nan", "x", "", "inf", "1 2"][
            rng.integers(7)
        ]
        changed = [*lines[:at], key + equals + " ".join(words), *lines[at + 1 :]]
        if rng.random() < 0.2:
            del changed[at]
        try:
            graph = from_text("\n".join(changed))
        except ModelError as error:
            assert "\n" not in str(error)
        else:
            reference.leaves(graph.anchor, X[:3])


def test_text_needs_no_library(tmp_path: Path) -> None:
    """A LightGBM text and an XGBoost JSON document are read without either library."""
    ZOO["lgb_three_cat"]().booster_.save_model(tmp_path / "model.txt")
    ZOO["xgb_three"]().save_model(tmp_path / "model.json")
    program = (
        "import sys\n"
        "for name in ('lightgbm', 'xgboost', 'sklearn', 'pandas', 'joblib'): sys.modules[name] = None\n"
        "from hbtvm.frontends import load_model\n"
        "print(load_model(sys.argv[1]).library, load_model(sys.argv[2]).library)\n"
    )
    files = [str(tmp_path / "model.txt"), str(tmp_path / "model.json")]
    found = subprocess.run(
        [sys.executable, "-c", program, *files], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["lightgbm", "xgboost"]
