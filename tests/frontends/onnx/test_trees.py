"""Tree ensembles of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.frontends.onnx.models import model, node, rows, trees
from tests.frontends.onnx.oracle import TOLERANCE, check, predict, runtime

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
IN = {"X": ("float", [None, 3])}


def regressor(attributes: dict[str, Any], **more: Any) -> Any:
    one = node("TreeEnsembleRegressor", ["X"], ["variable"], "ai.onnx.ml", **attributes, **more)
    return model([one], {"variable": "float"}, inputs=IN)


def classifier(attributes: dict[str, Any], **more: Any) -> Any:
    one = node("TreeEnsembleClassifier", ["X"], ["label", "scores"], "ai.onnx.ml", **attributes, **more)
    kind = "str" if "classlabels_strings" in more else "int64"
    return model([one], {"label": kind, "scores": "float"}, inputs=IN)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), MODES], ids=lambda one: "+".join(one))
def test_comparisons(modes: tuple[str, ...], missing: bool) -> None:
    attributes = trees(1, count=4, depth=4, modes=modes, missing=missing)
    graph = check(regressor(attributes, n_targets=1), rows(2, missing=True), anchor="TreeEnsemble")
    assert isinstance(graph.anchor, TreeEnsemble)
    # Sets need columns of codes; all else is read from the rows as they are.
    assert bool(graph.feeds) == bool({"BRANCH_EQ", "BRANCH_NEQ"} & set(modes))


@pytest.mark.parametrize("modes", [("BRANCH_LEQ", "BRANCH_GT"), MODES], ids=["two", "all"])
def test_behind_operators(modes: tuple[str, ...]) -> None:
    """Trees on what no table holds: their input is a node."""
    attributes = trees(3, modes=modes, missing=True)
    nodes = [
        node("Neg", ["X"], ["minus"]),
        node("Max", ["minus", "X"], ["size"]),
        node("TreeEnsembleRegressor", ["size"], ["variable"], "ai.onnx.ml", **attributes, n_targets=1),
    ]
    X = rows(4)
    X[5:9, 1] = np.nan
    check(model(nodes, {"variable": "float"}, inputs=IN), X)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates(aggregate: str, targets: int) -> None:
    attributes = trees(5, count=5, targets=range(targets))
    base = [0.25, -1.0, 2.0][:targets]
    # ONNX Runtime adds base values to the least and largest of several targets, too.
    found = regressor(attributes, n_targets=targets, aggregate_function=aggregate, base_values=base)
    check(found, rows(6))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [1, 3])
def test_transforms_of_targets(transform: str, targets: int) -> None:
    attributes = trees(7, targets=range(targets))
    check(regressor(attributes, n_targets=targets, post_transform=transform), rows(8))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [None, [0.5, -0.25, 0.1]])
@pytest.mark.parametrize("strings", [False, True])
def test_three_classes(transform: str, base: Any, strings: bool) -> None:
    attributes = trees(9, targets=range(3), kind="class")
    labels: dict[str, Any] = (
        {"classlabels_strings": ["b", "a", "cc"]} if strings else {"classlabels_int64s": [7, 3, 5]}
    )
    found = classifier(attributes, post_transform=transform, base_values=base, **labels)
    graph = check(found, rows(10), anchor="Network" if transform == "SOFTMAX_ZERO" else "TreeEnsemble")
    assert graph.output.kind == "classifier"


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "PROBIT"])
@pytest.mark.parametrize("base", [None, [0.25], [0.125, 0.25]], ids=["none", "one", "two"])
@pytest.mark.parametrize("targets", [[0], [1], [0, 1]], ids=str)
@pytest.mark.parametrize("negative", [False, True])
def test_two_classes(transform: str, base: Any, targets: list[int], negative: bool) -> None:
    """ONNX Runtime tells about twenty cases apart."""
    attributes = trees(11, count=4, targets=targets, negative=negative, kind="class")
    found = classifier(attributes, post_transform=transform, base_values=base, classlabels_int64s=[0, 1])
    two = base is not None and len(base) == 2
    if (targets == [1] and two) or (targets == [0] and not two and transform == "PROBIT"):
        # Constants, and a score that is not set.
        with pytest.raises(UnsupportedModel, match=r"two (base values|labels)"):
            from_object(found)
    else:
        # ONNX Runtime's float32 cancels near one half.
        check(found, rows(12), tolerance=1e-3 if transform == "PROBIT" else TOLERANCE)


def test_double_input_is_compared_in_double() -> None:
    attributes = trees(13, values=(0.1, 0.2, -0.3))
    one = node("TreeEnsembleRegressor", ["X"], ["variable"], "ai.onnx.ml", **attributes, n_targets=1)
    found = model([one], {"variable": "float"}, inputs={"X": ("double", [None, 3])})
    X = np.random.default_rng(0).choice([0.1, 0.2, -0.3], (300, 3))
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.5, X.astype(np.float32), X)
    graph = check(found, X, anchor="TreeEnsemble")
    assert graph.anchor.compare_dtype == "float64"


def five(*, members: bool = False, loop: bool = False) -> Any:
    """A `TreeEnsemble` of version 5: two trees, one of a single leaf."""

    def tensor(values: list[float]) -> Any:
        return helper.make_tensor("", TensorProto.FLOAT, [len(values)], values)

    modes = [6 if members else 0, 4, 3, 0]
    more = {"membership_values": tensor([0.5, 1.0, float("nan")])} if members else {}
    one = node(
        "TreeEnsemble", ["X"], ["Y"], "ai.onnx.ml",
        n_targets=2, aggregate_function=1, post_transform=0,
        tree_roots=[0, 3], nodes_featureids=[0, 1, 2, 0],
        nodes_splits=tensor([0.5, 0.25, -0.5, 0.0]),
        nodes_modes=helper.make_tensor("", TensorProto.UINT8, [4], modes),
        nodes_truenodeids=[1, 0, 2, 4], nodes_trueleafs=[0, int(not loop), 1, 1],
        nodes_falsenodeids=[2, 1, 3, 4], nodes_falseleafs=[0, 1, 1, 1],
        nodes_missing_value_tracks_true=[0, 1, 0, 0],
        leaf_targetids=[0, 1, 0, 1, 1], leaf_weights=tensor([1.0, -2.0, 3.0, 0.5, 10.0]), **more,
    )  # fmt: skip
    return model([one], {"Y": "float"}, inputs=IN, versions={"ai.onnx.ml": 5})


@pytest.mark.parametrize("members", [False, True])
def test_version_5(members: bool) -> None:
    trees = check(five(members=members), rows(14, missing=True), anchor="TreeEnsemble").anchor
    # Leaves have their numbers in the list that trees share.
    at, weights = np.flatnonzero(trees.is_leaf()), np.array([1.0, -2.0, 3.0, 0.5, 10.0])
    np.testing.assert_array_equal(trees.value[at].sum(axis=1), weights[trees.leaf_id[at]])


def test_sets_of_categories_become_one_split() -> None:
    """Comparisons in a row that lead to one node, as converters write a categorical split."""
    attributes: dict[str, Any] = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [1, 1, 1, 0, 0],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        "nodes_values": [0.25, 0.5, -1.0, 0.0, 0.0],
        "nodes_truenodeids": [3, 3, 3, 0, 0],
        "nodes_falsenodeids": [1, 2, 4, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [3, 4],
        "target_ids": [0, 0],
        "target_weights": [1.5, -2.5],
    }
    graph = check(regressor(attributes, n_targets=1), rows(15, missing=True))
    assert isinstance(graph.anchor, TreeEnsemble) and graph.anchor.n_nodes == 3


def test_scaled_rows_end_in_the_same_leaves() -> None:
    """Deep trees behind a scaler, rows next to every threshold: sums of leaves tell of any other leaf."""
    rng = np.random.default_rng(16)
    attributes = trees(17, count=20, depth=7, values=rng.normal(size=50).astype(np.float32).tolist())
    offset, scale = [0.1, -3.0, 1e4], [1.7, 0.003, 1 / 3]
    nodes = [
        node("Scaler", ["X"], ["scaled"], "ai.onnx.ml", offset=offset, scale=scale),
        node("TreeEnsembleRegressor", ["scaled"], ["variable"], "ai.onnx.ml", **attributes, n_targets=1),
    ]
    found = model(nodes, {"variable": "float"}, inputs=IN)
    cuts = np.array(attributes["nodes_values"])[rng.integers(len(attributes["nodes_values"]), size=(4000, 3))]
    X = (cuts / np.array(scale) + np.array(offset)).astype(np.float32)
    for _ in range(3):
        check(found, X, anchor="TreeEnsemble", tolerance=2e-6)
        X = np.nextafter(X, np.float32(1e9))


def test_trees_beside_other_models_compare_in_float32() -> None:
    rng = np.random.default_rng(18)
    attributes = trees(19, count=10, depth=6, values=rng.normal(size=50).astype(np.float32).tolist())
    offset, scale = [0.1, -3.0, 0.7], [1.7, 0.3, 1 / 3]
    nodes = [
        node("Scaler", ["X"], ["scaled"], "ai.onnx.ml", offset=offset, scale=scale),
        node("TreeEnsembleRegressor", ["scaled"], ["a"], "ai.onnx.ml", **attributes, n_targets=1),
        node("LinearRegressor", ["scaled"], ["b"], "ai.onnx.ml", coefficients=[1e-3, 2e-3, 3e-3]),
        node("Add", ["a", "b"], ["Y"]),
    ]
    cuts = np.array(attributes["nodes_values"])[rng.integers(len(attributes["nodes_values"]), size=(4000, 3))]
    X = (cuts / np.array(scale) + np.array(offset)).astype(np.float32)
    check(model(nodes, {"Y": "float"}, inputs=IN), X, anchor="Network")


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("nodes_truenodeids", [99], "missing node"),
        ("nodes_modes", ["BRANCH_WHAT"], "the mode 'BRANCH_WHAT'"),
        ("nodes_featureids", [7], "column beyond 3"),
        ("target_ids", [5], "an output beyond"),
        ("nodes_nodeids", [1], "two nodes of the same number"),
        ("nodes_values", [float("nan")], "NaN"),
    ],
)
def test_damaged_trees_are_refused(name: str, values: list[Any], match: str) -> None:
    attributes = trees(20)
    attributes[name] = [*values, *attributes[name][1:]]
    with pytest.raises(ModelError, match=match):
        from_object(regressor(attributes, n_targets=1))


def test_what_claims_much_is_refused() -> None:
    with pytest.raises(ModelError, match="4,000,000,000 outputs"):
        from_object(regressor(trees(21), n_targets=4_000_000_000))
    with pytest.raises(ModelError, match="have loops"):
        from_object(five(loop=True))
    with pytest.raises(UnsupportedModel, match="maximum of 300 trees"):
        from_object(regressor(trees(22, count=300, depth=1), n_targets=1, aggregate_function="MAX"))


def test_one_row_and_other_types() -> None:
    """Rows of float64 and of integers are cast to float32, as callers of ONNX Runtime would."""
    found = regressor(trees(23), n_targets=1)
    graph, X = from_object(found), rows(24)[2:]
    expected = runtime(found, X)[0]
    np.testing.assert_allclose(predict(graph, X.astype(np.float64)), expected, rtol=1e-6)
    np.testing.assert_allclose(predict(graph, X[:1].tolist()), expected[:1], rtol=1e-6)
