"""Files of old versions of XGBoost and LightGBM, against what these versions predict (`make_files.py`)."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from hbtvm.errors import ModelError
from hbtvm.frontends import load_model
from hbtvm.frontends.lightgbm.model import from_text
from hbtvm.frontends.lightgbm.output import response_of
from hbtvm.frontends.xgboost.model import from_document, from_json
from hbtvm.operators.base import Input, in_order
from hbtvm.operators.pointwise import Elementwise
from tests.by_reference import predict

FILES = Path(__file__).parent.parent / "data" / "files"
MODELS = sorted(path.name for ending in ("json", "ubj", "txt") for path in FILES.glob(f"*.{ending}"))


@functools.cache
def expected(library: str) -> dict[str, np.ndarray]:
    with np.load(FILES / f"{library}.npz") as found:
        return dict(found)


def test_every_prediction_has_its_file() -> None:
    named = {
        key.partition("|")[0] for path in FILES.glob("*.npz") for key in expected(path.stem) if "|" in key
    }
    assert named == {*MODELS}
    assert len(MODELS) > 60


@pytest.mark.parametrize("name", MODELS)
def test_predicts_as_its_version_did(name: str) -> None:
    graph = load_model(FILES / name)
    library, version = name.split("-")[:2]
    found = expected(f"{library}-{version}")
    X: Any = found["X_marked" if "labels" in name else "X"]
    if "frame" in name:
        X = frame(X)
    for key, want in found.items():
        if not key.startswith(f"{name}|"):
            continue
        output = key.partition("|")[2]
        got = predict(graph, X, None if output == "predict" else output)
        if want.dtype.kind in "US":
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = 2e-6 if library == "xgboost" else 1e-12
            np.testing.assert_allclose(got.reshape(want.shape), want, rtol=tolerance, atol=1e-7)


def frame(X: np.ndarray) -> pd.DataFrame:
    """The first 40 rows of the frame that `make_files.py` trains with."""
    words, numbers = ["red", "green", "blue", "black", "white", "grey"], [40, 10, 60, 20, 50, 30]
    codes = np.nan_to_num(X[:, 4]).astype(int)
    result = pd.DataFrame(X[:, :3].astype(float), columns=["a", "b", "c"])
    result.insert(1, "word", pd.Categorical.from_codes(codes, words))
    result["number"] = pd.Categorical.from_codes((codes + 2) % 6, numbers)
    return result


@pytest.mark.parametrize("path", [*FILES.glob("*.model"), *FILES.glob("*.deprecated")], ids=lambda p: p.name)
@pytest.mark.parametrize("ending", [".model", ".json", ""])
def test_the_old_binary_format_says_what_to_do(path: Path, ending: str, tmp_path: Path) -> None:
    copy = shutil.copy(path, tmp_path / f"model{ending}")
    with pytest.raises(ModelError, match=r'old binary format.*save_model\("model.json"\)'):
        load_model(copy)


@pytest.mark.parametrize("name", ["x.model", "x", "x.bin", "x.ubj", "x.json"])
@pytest.mark.filterwarnings("ignore")
def test_what_todays_xgboost_writes_under_any_ending(name: str, tmp_path: Path) -> None:
    X = expected("xgboost-2.1.4")["X"]
    model = xgb.XGBClassifier(n_estimators=3, max_depth=3).fit(X, np.arange(len(X)) % 3)
    model.save_model(tmp_path / name)
    graph = load_model(tmp_path / name)
    assert graph.model == "XGBClassifier"
    np.testing.assert_allclose(predict(graph, X, "proba"), model.predict_proba(X), rtol=2e-6)


def test_a_document_of_xgboost_3_without_categories() -> None:
    X = expected("xgboost-2.1.4")["X"]
    booster = xgb.train({"max_depth": 3, "seed": 1}, xgb.DMatrix(X, np.nansum(X, 1)), 4)
    document = json.loads(bytes(booster.save_raw("json")))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        for field in (
            "split_type",
            "categories",
            "categories_nodes",
            "categories_segments",
            "categories_sizes",
        ):
            del tree[field]
    np.testing.assert_allclose(
        predict(from_document(document), X), booster.predict(xgb.DMatrix(X)), rtol=2e-6, atol=1e-7
    )


def test_categorical_splits_without_categories_are_damage() -> None:
    document = json.loads((FILES / "xgboost-1.3.3-squarederror.json").read_bytes())
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    for field in ("categories", "categories_nodes", "categories_segments", "categories_sizes"):
        del tree[field]
    assert from_document(document)
    tree["split_type"][0] = 1
    with pytest.raises(ModelError, match="categorical splits, but no categories"):
        from_document(document)


@pytest.mark.parametrize("library", ["xgboost-1.3.3-classifier3", "xgboost-1.7.6-classifier3"])
def test_estimators_tell_their_class(library: str) -> None:
    assert load_model(FILES / f"{library}.json").model == "XGBClassifier"
    assert load_model(FILES / f"{library.replace('classifier3', 'regressor')}.json").model == "XGBRegressor"


def test_labels_must_be_as_many_as_classes() -> None:
    document = (FILES / "xgboost-1.3.3-labels.json").read_text()
    with pytest.raises(ModelError, match="2 labels for 3 classes"):
        from_json(document.replace(r"[\"high\", \"low\", \"middle\"]", r"[\"high\", \"low\"]"))


@pytest.mark.parametrize(
    "name", ["lightgbm-2.0.12-multiclass", "lightgbm-2.0.12-frame", "lightgbm-3.3.5-binary"]
)
def test_texts_that_are_cut_short(name: str) -> None:
    text = (FILES / f"{name}.txt").read_text()
    end = text.index("feature importances:" if "2.0.12" in name else "end of trees")
    assert from_text(text)
    for size in [*range(0, end, 7), *range(end - 12, end)]:
        whole_trees = "2.0.12" in name and size >= end - 2
        if not whole_trees:
            with pytest.raises(ModelError, match=r"cut short|first line"):
                from_text(text[:size])


def test_an_old_text_may_end_with_its_trees() -> None:
    text = (FILES / "lightgbm-2.0.12-binary.txt").read_text()
    trees = text[: text.index("feature importances:")]
    X = expected("lightgbm-2.0.12")["X"]
    np.testing.assert_array_equal(predict(from_text(trees), X), predict(from_text(text), X))
    with pytest.raises(ModelError, match="has 2 trees, but announces 3"):
        from_text(text.replace(text[text.index("Tree=2") : text.index("feature importances:")], ""))


ALIASES = {
    "identity": "regression regression_l2 mean_squared_error mse l2 l2_root root_mean_squared_error rmse "
    "regression_l1 mean_absolute_error l1 mae mape mean_absolute_percentage_error huber fair quantile "
    "lambdarank rank_xendcg xendcg xe_ndcg xe_ndcg_mart xendcg_mart none null custom na",
    "softmax": "multiclass softmax",
    "sigmoid": "multiclassova multiclass_ova ova ovr binary cross_entropy xentropy",
    "softplus": "cross_entropy_lambda xentlambda",
    "exp": "poisson gamma tweedie",
}


FUNCTIONS = {
    "identity": [],
    "exp": ["exp"],
    "sigmoid": ["sigmoid"],
    "softmax": ["subtract", "exp", "divide"],
    "softplus": ["exp", "log1p"],
}


@pytest.mark.parametrize(("transform", "names"), ALIASES.items())
def test_objectives_by_all_their_names(transform: str, names: str) -> None:
    for name in names.split():
        functions = [
            node.function for node in in_order(response_of(name, Input(3))) if isinstance(node, Elementwise)
        ]
        assert functions == FUNCTIONS[transform], name


@pytest.mark.parametrize(
    "alias", ["xentropy", "xentlambda", "mse", "l1", "rmse", "mean_absolute_error", "na"]
)
def test_lightgbm_takes_these_names_too(alias: str) -> None:
    text = (FILES / "lightgbm-3.3.5-xentropy.txt").read_text().replace("=cross_entropy\n", f"={alias}\n")
    X = expected("lightgbm-3.3.5")["X"].astype(float)
    want = lgb.Booster(model_str=text).predict(X)
    np.testing.assert_allclose(predict(from_text(text), X), want, rtol=1e-12)
