"""XGBoost's documents: older versions, binary ones, damaged ones."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.frontends.xgboost import ubjson
from hbtvm.frontends.xgboost.model import from_document, from_json, from_ubjson
from hbtvm.graph.trees import reference
from tests.models import ZOO, data
from tests.oracle import assert_close, assert_same_as_booster, edge_rows, margins

X = data()[0]


@functools.cache
def _document(name: str) -> Any:
    model = ZOO[name]()
    booster = model if isinstance(model, xgb.Booster) else model.get_booster()
    return json.loads(bytes(booster.save_raw("json")))


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_value(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same_value, one, other))
    if isinstance(one, float):
        return bool(np.float32(one) == np.float32(other))
    return bool(one == other)


def _damage(document: Any, rng: np.random.Generator) -> None:
    """Change one value somewhere below."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        if isinstance(place[key], (dict, list)) and len(place[key]) and rng.random() < 0.9:
            place = place[key]
            continue
        kinds: list[Any] = [None, "text", -1, 10**9, 1.5, [], {}, float("nan")]
        value = kinds[rng.integers(len(kinds))]
        if value is None and isinstance(place, dict):
            del place[key]
        else:
            place[key] = value
        return


@pytest.mark.parametrize(
    "name",
    ["xgb_two_nan", "xgb_three", "xgb_real_base", "xgb_binary:logitraw", "xgb_count:poisson", "xgb_dart"],
)
def test_documents_of_older_versions(name: str, tmp_path: Path) -> None:
    """One base score, no list of iterations, no categories: as XGBoost 1.7 and 2 wrote."""
    document = json.loads(json.dumps(_document(name)))
    learner = document["learner"]
    learner["learner_model_param"]["base_score"] = "2.5E-1"
    booster = learner["gradient_booster"]
    model = booster["gbtree"]["model"] if "gbtree" in booster else booster["model"]
    for key in ("iteration_indptr", "cats"):
        model.pop(key, None)
    document["version"] = [2, 1, 4]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    found = load_model(path)
    assert_same_as_booster(xgb.Booster(model_file=path), found, edge_rows(found, "float32", inf=False))


@pytest.mark.parametrize("name", ["vector.ubj", "categories.json"])
def test_files_that_version_2_1_wrote(name: str) -> None:
    """Its vector leaves stand elsewhere in the file; XGBoost 3.2 crashes on them."""
    folder = Path(__file__).parents[1] / "data"
    kept = np.load(folder / "xgboost_2_1.npz")
    graph = load_model(folder / f"xgboost_2_1_{name}")
    found = graph.output.compute("raw", margins(graph, kept["X"]))
    assert_close(found, kept[name.partition(".")[0]], False)


@pytest.mark.parametrize("name", ["xgb_three", "xgb_pair_vector", "xgb_partition_cat", "xgb_dart"])
def test_binary_documents_say_the_same(name: str) -> None:
    model = ZOO[name]()
    booster = model if isinstance(model, xgb.Booster) else model.get_booster()
    content = bytes(booster.save_raw("ubj"))
    assert _same_value(ubjson.loads(content), _document(name))
    # A cut or a changed byte gives an error of ours, or another model.
    rng = np.random.default_rng(6)
    for at in rng.integers(0, len(content), 60).tolist():
        with pytest.raises(ModelError, match="expected an XGBoost model in UBJSON"):
            from_ubjson(content[:at])
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        try:
            graph = from_ubjson(bytes(changed))
        except ModelError:
            continue
        reference.leaves(graph.anchor, X[:3])


def test_an_objective_that_is_not_known_is_named() -> None:
    document = json.loads(json.dumps(_document("xgb_two_nan")))
    document["learner"]["objective"]["name"] = "reg:novel"
    with pytest.raises(UnsupportedModel, match="'reg:novel' is not supported"):
        from_document(document)


@pytest.mark.parametrize("name", ["xgb_three", "xgb_pair_vector", "xgb_partition_cat"])
def test_damaged_documents_raise_model_errors(name: str) -> None:
    """Any part missing or of another kind: one of our errors, never another one."""
    text = json.dumps(_document(name))
    for cut in np.random.default_rng(1).integers(0, len(text) - 1, 20).tolist():
        with pytest.raises(ModelError, match="damaged or cut short"):
            from_json(text[:cut])
    rng = np.random.default_rng(2)
    for _ in range(150):
        document = json.loads(text)
        _damage(document, rng)
        try:
            from_document(document)
        except ModelError as error:
            assert "\n" not in str(error)


def test_json_that_is_no_model() -> None:
    for text in ("[]", "{}", '{"learner": 3}', '{"learner": {}}', '"tree"', "null", "[" * 100_000):
        with pytest.raises(ModelError, match="XGBoost"):
            from_json(text)
