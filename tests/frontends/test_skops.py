"""Files of skops: the same model as the live object, nothing run, and bounded work for damaged files."""

from __future__ import annotations

import copy
import io
import json
import random
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from hbtvm import codec
from hbtvm.comparison.library import from_file
from hbtvm.comparison.process import require_trust
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.by_reference import predict
from tests.mutants import VALUES

skops_io = pytest.importorskip("skops.io")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5))
Y = np.array(["no", "yes"])[(X[:, 0] + X[:, 1] > 0).astype(int)]
FRAME = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "u", "v")})
TEXTS = ["a word", "and others"] * 60

MODELS: dict[str, Callable[[], Any]] = {
    "forest": lambda: RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, Y),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, Y),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=3).fit(X, Y),
    "pipeline": lambda: make_pipeline(
        StandardScaler(), FunctionTransformer(np.expm1), LogisticRegression()
    ).fit(X, Y),
    "sparse": lambda: LogisticRegression().fit(X, Y).sparsify(),
    "loss": lambda: SGDClassifier(loss="log_loss", random_state=0).fit(X, Y),
    "stack": lambda: StackingClassifier(
        [("a", RandomForestClassifier(2, random_state=0)), ("b", LogisticRegression())]
    ).fit(X, Y),
}
BESIDE: dict[str, Callable[[], Any]] = {
    "frame": lambda: make_pipeline(
        make_column_transformer((OneHotEncoder(), ["b"]), remainder="passthrough"), LogisticRegression()
    ).fit(FRAME, Y),
    "texts": lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, Y),
}


def saved(path: Path, model: Any, **options: Any) -> Path:
    skops_io.dump(model, path, **options)
    return path


@pytest.mark.parametrize("name", [*MODELS, *BESIDE])
def test_reads_the_model_of_the_live_object(name: str, tmp_path: Path) -> None:
    model = {**MODELS, **BESIDE}[name]()
    # The bytes count, whatever the ending.
    path = saved(tmp_path / "model.bin", model, compression=zipfile.ZIP_DEFLATED)
    graph, live = load_model(path), from_object(model)
    assert (graph.model, graph.steps, graph.rewrites) == (live.model, live.steps, live.rewrites)
    assert codec.write(graph.input) == codec.write(live.input)
    assert codec.write(graph.output) == codec.write(live.output)
    assert len(graph.feeds) == len(live.feeds)
    if isinstance(graph.anchor, TreeEnsemble):
        np.testing.assert_array_equal(predict(graph, X), model.predict(X))
    else:
        rows = RNG.integers(0, 2, (20, live.anchor.n_features)).astype(float)
        np.testing.assert_array_equal(graph.anchor.reference(rows), live.anchor.reference(rows))


def test_reads_boosters(tmp_path: Path) -> None:
    """skops writes these as objects that hold the library's own bytes."""
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    for kind in (lightgbm.LGBMClassifier, xgboost.XGBClassifier):
        options = {"verbose": -1} if kind is lightgbm.LGBMClassifier else {}
        model = kind(n_estimators=3, n_jobs=1, **options).fit(X, (Y == "yes").astype(int))
        graph = load_model(saved(tmp_path / "model.skops", model))
        np.testing.assert_array_equal(predict(graph, X), model.predict(X))


def test_the_library_to_compare_with(tmp_path: Path) -> None:
    """skops loads types that it does not trust only if the user does."""
    path = saved(tmp_path / "model.skops", MODELS["forest"]())
    with pytest.raises(InputError, match="this file of skops has to be loaded, which can run any program"):
        require_trust(path, False)
    np.testing.assert_array_equal(from_file(str(path), "skops").predict(X), predict(load_model(path), X))


def rewritten(path: Path, change: Callable[[Any], Any]) -> Path:
    """Change the tree of objects in a file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["schema.json"] = json.dumps(change(json.loads(members["schema.json"]))).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def refused(path: Path, kind: type[ModelError] = ModelError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load_model(path, **options)
    assert str(caught.value).startswith(str(path)) and str(caught.value).isprintable()
    return str(caught.value)


def test_names_of_a_file_are_never_called(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.skops", MODELS["pipeline"]())
    text = json.dumps({"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"})

    def change(schema: Any) -> Any:
        step = schema["content"]["content"]["steps"]["content"][1]["content"][1]
        step["content"]["content"]["func"] = json.loads(text)
        return schema

    assert "system" in refused(rewritten(path, change), UnsupportedModel)
    path.unlink()
    other = {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ConstructorFromReduceNode"}
    arguments = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", json.dumps({**other, "content": arguments, "protocol": 2}))
    assert "a Popen (from module 'subprocess') is not a supported model" in refused(path, UnsupportedModel)


def test_claims_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"

    def write(schema: str, method: int = zipfile.ZIP_DEFLATED) -> Path:
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("schema.json", schema)
        return path

    assert "expands to more than 16" in refused(write("[" + "[]," * (6 << 20) + "0]"))
    assert "protocol 3" in refused(write('{"protocol": 3}'))
    assert "bzip2" in refused(write("{}", zipfile.ZIP_BZIP2))
    node: dict[str, Any] = {"__class__": "x", "__module__": "y", "__loader__": "TypeNode"}
    for _ in range(400):
        node = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [node]}
    assert "damaged" in refused(write(json.dumps(node)))
    for schema in (
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"__loader__": "NdArrayNode", "type": "numpy", "file": "a"}',
    ):
        assert "damaged" in refused(write(schema))
    array = io.BytesIO()
    np.save(array, np.zeros((3, 4)))
    claimed = array.getvalue().replace(b"(3, 4)", b"(3,4" + b"0)")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
        archive.writestr("schema.json", json.dumps({**node, "file": "a.npy"}))
        archive.writestr("a.npy", claimed)
    assert "damaged" in refused(path) or "bytes in place of" in refused(path)
    path = saved(tmp_path / "big.skops", MODELS["forest"]())
    assert "--max-size" in refused(path, max_bytes=1000)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "expected a file of skops, but it is damaged" in refused(path)


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rng, ends = random.Random(5), {"read": 0, "refused": 0}
    files = [saved(tmp_path / f"{name}.skops", MODELS[name]()) for name in ("hist", "pipeline", "sparse")]
    members = []
    for path in files:
        with zipfile.ZipFile(path) as archive:
            members.append({name: archive.read(name) for name in archive.namelist()})
    target = tmp_path / "mutant.skops"
    for _ in range(400):
        parts = dict(rng.choice(members))
        schema = json.loads(parts["schema.json"])
        for _ in range(rng.choice((1, 1, 3))):
            _mutate(schema, rng)
        parts["schema.json"] = json.dumps(schema).encode()
        name = rng.choice(list(parts))
        if rng.random() < 0.4:
            content = bytearray(parts[name])
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            parts[name] = bytes(content)
        with zipfile.ZipFile(target, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        if rng.random() < 0.2:
            content = bytearray(target.read_bytes())
            for _ in range(rng.choice((1, 4))):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            target.write_bytes(content)
        start = time.process_time()
        try:
            with np.errstate(all="ignore"):
                load_model(target)
            ends["read"] += 1
        except ModelError as error:
            assert str(error).isprintable() and len(str(error)) < 2000
            ends["refused"] += 1
        assert time.process_time() - start < 5
    assert min(ends.values()) > 20


def _mutate(schema: Any, rng: random.Random) -> None:
    at, path = schema, []
    while isinstance(at, (dict, list)) and at and (not path or rng.random() < 0.9):
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        path.append((at, key))
        at = at[key]
    into, key = path[-1]
    if rng.random() < 0.7:
        into[key] = copy.deepcopy(
            rng.choice([*VALUES, "NdArrayNode", "TreeNode", "DictNode", "JsonNode", "1"])
        )
    else:
        del into[key]
