"""treelite's checkpoints against its own interpreter (GTIL): comparisons, categories, outputs, damage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

from hbtvm.comparison.library import Live, from_file
from hbtvm.comparison.process import needs_trust
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.treelite.model import from_bytes
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import TreeEnsemble

treelite = pytest.importorskip("treelite")
builder = pytest.importorskip("treelite.model_builder")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
TWO = (X[:, 0] > 0).astype(int)
THREE = TWO + (X[:, 1] > 0)
SKLEARN: dict[str, Callable[[], Any]] = {
    "two": lambda: RandomForestClassifier(4, max_depth=4, random_state=0).fit(X, TWO),
    "three": lambda: RandomForestClassifier(4, max_depth=4, random_state=0).fit(X, THREE),
    "targets": lambda: RandomForestRegressor(4, max_depth=4, random_state=0).fit(X, np.c_[X[:, 0], TWO]),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X, THREE),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=4).fit(X, TWO),
    "isolation": lambda: IsolationForest(n_estimators=4, random_state=0).fit(X),
}


def built(
    splits: list[Any], kind: str = "float32", postprocessor: str = "identity", classes: int = 1, **more: Any
) -> Any:
    """Return a model of a tree for each of `splits`: arguments of a test, by its kind."""
    model = builder.ModelBuilder(
        threshold_type=kind,
        leaf_output_type=kind,
        metadata=builder.Metadata(
            num_feature=2,
            task_type="kMultiClf" if classes > 1 else "kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[classes],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=builder.TreeAnnotation(
            num_tree=len(splits),
            target_id=[0] * len(splits),
            class_id=[at % classes for at in range(len(splits))],
        ),
        postprocessor=builder.PostProcessorFunc(name=postprocessor, **more),
        base_scores=[0.25] * classes,
    )
    for number, split in enumerate(splits):
        model.start_tree()
        model.start_node(0)
        name = "categorical_test" if "category_list" in split else "numerical_test"
        getattr(model, name)(feature_id=number % 2, left_child_key=1, right_child_key=2, **split)
        model.end_node()
        for leaf in (1, 2):
            model.start_node(leaf)
            model.leaf(leaf * (0.3 + number) - 1)
            model.end_node()
        model.end_tree()
    return model.commit()


def same(graph: Graph, model: Any, rows: np.ndarray, tolerance: float = 1e-6) -> None:
    anchor = graph.anchor
    assert isinstance(anchor, TreeEnsemble)
    rows = rows.astype(model.input_type)
    margins = reference.margins(anchor, rows)
    # treelite computes some responses in float32.
    for output, options, most in ((None, {}, 1e-6), ("raw", {"pred_margin": True}, tolerance)):
        found = np.asarray(graph.output.compute(output, margins))
        expected = treelite.gtil.predict(model, rows, **options).reshape(found.shape)
        np.testing.assert_allclose(found, expected, rtol=most, atol=most)


@pytest.mark.parametrize("name", SKLEARN)
def test_forests_of_scikit_learn(name: str, tmp_path: Path) -> None:
    model = treelite.sklearn.import_model(SKLEARN[name]())
    model.serialize(tmp_path / "forest.bin")
    rows = np.concatenate([X, X * 3, np.full((1, 3), np.inf), np.full((1, 3), -np.inf)])
    for source in (tmp_path / "forest.bin", model):
        same(load_model(source), model, rows, 1e-12)


def test_boosters() -> None:
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    kinds = np.array(RNG.integers(0, 8, 200), float)
    rows = np.c_[X[:, :2], kinds]
    rows[RNG.random(rows.shape) < 0.1] = np.nan
    matrix = xgboost.DMatrix(rows, THREE)
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3, "nthread": 1}, matrix, 3)
    models = [treelite.frontend.from_xgboost(booster)]
    data = lightgbm.Dataset(rows, TWO, categorical_feature=[2])
    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_per_group": 5}
    models.append(treelite.frontend.from_lightgbm(lightgbm.train(options, data, 3)))
    more = rows.copy()
    more[:20, 2] = np.linspace(-3, 12, 20)
    for model in models:
        same(from_object(model), model, np.concatenate([rows, more]))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_comparisons(kind: str, operator: str) -> None:
    threshold = float(np.float32(0.1))
    splits = [{"threshold": threshold, "opname": operator, "default_left": left} for left in (True, False)]
    model = built(splits, kind)
    edges = [np.float32(0.1)]
    edges += [np.nextafter(edge, np.array(side, kind)) for edge in edges for side in (-np.inf, np.inf)]
    values = np.array([*edges, np.nan, np.inf, -np.inf, 0.0], kind)
    same(from_object(model), model, np.stack([values, values], axis=1))


@pytest.mark.parametrize("right", [True, False])
def test_categories(right: bool) -> None:
    splits = [
        {"category_list": [1, 4, 70], "category_list_right_child": right, "default_left": left}
        for left in (True, False)
    ]
    values = np.array([0, 1, 1.5, 4, 5, 70, 71, -1, -0.5, np.nan, 1e9, np.inf, -np.inf, 3.99])
    model = built(splits)
    same(from_object(model), model, np.stack([values, values], axis=1))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("signed_square", {}),
        ("hinge", {}),
        ("sigmoid", {"sigmoid_alpha": 2.5}),
        ("exponential", {}),
        ("exponential_standard_ratio", {"ratio_c": 3.0}),
        ("logarithm_one_plus_exp", {}),
        ("softmax", {}),
        ("multiclass_ova", {"sigmoid_alpha": 0.5}),
        ("identity_multiclass", {}),
    ],
)
def test_postprocessors(name: str, more: dict[str, float]) -> None:
    classes = 3 if name in ("softmax", "multiclass_ova", "identity_multiclass") else 1
    splits = [{"threshold": t, "opname": "<", "default_left": True} for t in (-0.5, 0.0, 0.5)]
    model = built(splits, "float64", name, classes, **more)
    same(from_object(model), model, X[:, :2], 1e-12)


def test_the_library_to_compare_with(tmp_path: Path) -> None:
    models = [treelite.sklearn.import_model(SKLEARN[name]()) for name in ("three", "isolation")]
    for model in models:
        model.serialize(tmp_path / "model.tl")
        assert not needs_trust(tmp_path / "model.tl")
        graph = load_model(tmp_path / "model.tl")
        library = Live(from_file(str(tmp_path / "model.tl"), "treelite"), ("predict", "raw"), 1)
        library.take(X)
        assert isinstance(graph.anchor, TreeEnsemble)
        margins = reference.margins(graph.anchor, X)
        for output in ("predict", "raw"):
            found = graph.output.compute(None if output == "predict" else output, margins)
            np.testing.assert_allclose(found, library.result(output), rtol=1e-6)
        library.close()


def test_refusals(tmp_path: Path) -> None:
    content = treelite.sklearn.import_model(SKLEARN["two"]()).serialize_bytes()
    (tmp_path / "old.tl").write_bytes(b"\x03" + content[1:])
    with pytest.raises(UnsupportedModel, match=r"old\.tl: the treelite checkpoint is of version 3"):
        load_model(tmp_path / "old.tl")
    with pytest.raises(UnsupportedModel, match="compares numbers for equality"):
        from_object(built([{"threshold": 1.0, "opname": "==", "default_left": True}]))
    with pytest.raises(UnsupportedModel, match="several targets of classes"):
        forest = RandomForestClassifier(2, max_depth=2).fit(X, np.c_[TWO, THREE])
        from_object(treelite.sklearn.import_model(forest))
    huge = {"category_list": [1 << 30], "category_list_right_child": False, "default_left": False}
    with pytest.raises(UnsupportedModel, match=r"categories up to 1,073,741,824"):
        from_object(built([huge]))


def test_damaged_checkpoints() -> None:
    split = {"category_list": [1, 4], "category_list_right_child": True, "default_left": True}
    models = [treelite.sklearn.import_model(SKLEARN[name]()) for name in ("two", "targets", "hist")]
    contents = [model.serialize_bytes() for model in (*models, built([split, split]))]
    rng, ends = random.Random(1), {"read": 0, "refused": 0}
    for _ in range(1500):
        content = bytearray(rng.choice(contents))
        at = rng.randrange(12, min(len(content), rng.choice((250, len(content)))))
        match rng.randrange(4):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                content[at : at + 8] = rng.choice((b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f\0\0\0\0"))
            case 2:
                del content[at : at + rng.randrange(1, 9)]
            case 3:
                del content[at:]
        start = time.process_time()
        try:
            from_bytes(bytes(content))
            ends["read"] += 1
        except ModelError as error:
            assert str(error).isprintable() and len(str(error)) < 2000
            ends["refused"] += 1
        assert time.process_time() - start < 2
    assert min(ends.values()) > 100
