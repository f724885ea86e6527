"""Operators of the ONNX-ML domain, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnx import TensorProto

from tests.frontends.onnx.models import model, node
from tests.frontends.onnx.oracle import check
from tests.frontends.onnx.test_operators import IN, RNG, ROW, X, one


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    rows = X.copy()
    rows[3] = 0
    one("Normalizer", "X", rows=rows, domain="ai.onnx.ml", norm=norm)


def test_features() -> None:
    ml: dict[str, Any] = {"domain": "ai.onnx.ml"}
    missing = np.where(X > 1, np.nan, X).astype(np.float32)
    one("Scaler", "X", **ml, offset=[1.0], scale=[0.5])
    one(
        "Scaler",
        "X",
        rows=X.astype(np.float64),
        **ml,
        offset=[0.1, 0.0, -1.0, 2.0],
        scale=[1.0, 2.0, 3.0, 0.3],
    )
    one("Imputer", "X", rows=missing, **ml, imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
        replaced_value_float=float("nan"))  # fmt: skip
    one("Binarizer", "X", **ml, threshold=0.25)
    one("ArrayFeatureExtractor", "X", np.array([3, 1, 1]), **ml)
    ints = RNG.integers(-1, 4, (50, 2))
    one("Imputer", "X", rows=ints, out="int64", **ml, imputed_value_int64s=[7], replaced_value_int64=-1)


@pytest.mark.parametrize("texts", [False, True])
def test_one_hot_encoder(texts: bool) -> None:
    rows = RNG.integers(0, 5, (60, 2)).astype(object if texts else np.int64)
    words = np.array(["a", "bb", "c", "d", "e"], object)
    rows = words[rows.astype(int)] if texts else rows
    cats: dict[str, Any] = {"cats_strings": ["c", "a", "e"]} if texts else {"cats_int64s": [3, 0, 4]}
    nodes = [
        node("OneHotEncoder", ["X"], ["cube"], "ai.onnx.ml", **cats),
        node("Reshape", ["cube", "shape"], ["Y"]),
    ]
    kind = "str" if texts else "int64"
    found = model(
        nodes, {"Y": "float"}, inputs={"X": (kind, [None, 2])}, constants={"shape": np.array([-1, 6])}
    )
    check(found, rows)


def test_one_hot_encoder_that_refuses() -> None:
    from hbtvm.errors import InputError
    from tests.frontends.onnx.oracle import predict

    nodes = [
        node("OneHotEncoder", ["X"], ["cube"], "ai.onnx.ml", cats_strings=["a", "b"], zeros=0),
        node("Reshape", ["cube", "shape"], ["Y"]),
    ]
    found = model(
        nodes, {"Y": "float"}, inputs={"X": ("str", [None, 1])}, constants={"shape": np.array([-1, 2])}
    )
    rows = np.array([["a"], ["b"]], object)
    graph = check(found, rows)
    with pytest.raises(InputError, match="'c' was not in the training data"):
        predict(graph, np.array([["c"]], object))


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    ("attributes", "kinds"),
    [
        ({"keys_strings": ["a", "bb"], "values_int64s": [5, 6], "default_int64": -7}, ("str", "int64")),
        ({"keys_strings": ["a", "bb"], "values_floats": [0.5, 1.5]}, ("str", "float")),
        ({"keys_int64s": [1, 3], "values_floats": [0.5, 1.5], "default_float": 9.0}, ("int64", "float")),
        ({"keys_int64s": [1, 3, 2], "values_int64s": [4, 5, 4]}, ("int64", "int64")),
        ({"keys_floats": [0.5, float("nan")], "values_floats": [1.0, 2.0]}, ("float", "float")),
    ],
)
def test_label_encoder(attributes: dict[str, Any], kinds: tuple[str, str], version: int) -> None:
    values = {
        "str": np.array(["a", "bb", "c", "A", ""], object),
        "int64": np.array([0, 1, 2, 3, -1]),
        "float": np.array([0.5, np.nan, 1.0, 0.5000001, 0.0], np.float32),
    }[kinds[0]]
    rows = RNG.choice(values, (40, 2))
    nodes = [node("LabelEncoder", ["X"], ["Y"], "ai.onnx.ml", **attributes)]
    check(
        model(nodes, {"Y": kinds[1]}, inputs={"X": (kinds[0], [None, 2])}, versions={"ai.onnx.ml": version}),
        rows,
    )


def test_label_encoder_of_computed_values_and_back_to_texts() -> None:
    nodes = [
        node("ArgMax", ["X"], ["at"], axis=1, keepdims=0),
        node("LabelEncoder", ["at"], ["label"], "ai.onnx.ml", keys_int64s=[0, 2, 3],
             values_strings=["zero", "two", "three"], default_string="?"),
        node("Softmax", ["X"], ["scores"], axis=1),
    ]  # fmt: skip
    graph = check(model(nodes, {"label": "str", "scores": "float"}, inputs=IN), X)
    assert graph.output.kind == "classifier"
    floats = [
        node("Max", ["X", "c"], ["m"]),
        node("LabelEncoder", ["m"], ["Y"], "ai.onnx.ml", keys_floats=[0.5, -1.0], values_floats=[7.0, 8.0]),
    ]
    check(model(floats, {"Y": "float"}, inputs=IN, constants={"c": ROW}), X - 3)


def test_category_mapper_and_vectorizer() -> None:
    frame = pd.DataFrame({"a": RNG.choice(["x", "y", "z"], 50), "b": RNG.normal(size=50).astype(np.float32)})
    nodes = [
        node("CategoryMapper", ["a"], ["code"], "ai.onnx.ml", cats_strings=["x", "z"], cats_int64s=[4, 9]),
        node("Cast", ["code"], ["number"], to=TensorProto.FLOAT),
        node("FeatureVectorizer", ["number", "b"], ["Y"], "ai.onnx.ml", inputdimensions=[1, 1]),
    ]
    inputs = {"a": ("str", [None, 1]), "b": ("float", [None, 1])}
    graph = check(model(nodes, {"Y": "float"}, inputs=inputs, versions={"ai.onnx.ml": 1}), frame)
    assert graph.input.feature_names == ("a", "b") and graph.input.by_name
    again = frame[["b", "a"]].assign(c=1)
    check(model(nodes, {"Y": "float"}, inputs=inputs), again)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_classifier(transform: str, classes: int) -> None:
    one = node(
        "LinearClassifier", ["X"], ["label", "scores"], "ai.onnx.ml",
        coefficients=RNG.normal(size=4 * classes).astype(np.float32).tolist(),
        intercepts=RNG.normal(size=classes).astype(np.float32).tolist(),
        classlabels_ints=[10, 20, 30][: max(2, classes)], post_transform=transform,
    )  # fmt: skip
    check(model([one], {"label": "int64", "scores": "float"}, inputs=IN), X)


@pytest.mark.parametrize("targets", [1, 2])
def test_linear_regressor(targets: int) -> None:
    weights = RNG.normal(size=4 * targets).astype(np.float32).tolist()
    one("LinearRegressor", "X", domain="ai.onnx.ml", coefficients=weights, targets=targets,
        intercepts=[0.5, -2.0][:targets])  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("probabilities", [False, True])
def test_support_vector_classifier(kernel: str, classes: int, probabilities: bool) -> None:
    pairs, each = classes * (classes - 1) // 2, 4
    more = {"prob_a": [-1.0, -2.0, -0.5][:pairs], "prob_b": [0.1, 0.0, -0.2][:pairs]} if probabilities else {}
    one = node(
        "SVMClassifier", ["X"], ["label", "scores"], "ai.onnx.ml",
        kernel_type=kernel, kernel_params=[0.2, 0.5, 3.0], classlabels_strings=["c", "a", "b"][:classes],
        support_vectors=RNG.normal(size=4 * each * classes).astype(np.float32).tolist(),
        vectors_per_class=[each] * classes, rho=[0.1, -0.2, 0.05][:pairs],
        coefficients=RNG.normal(size=(classes - 1) * each * classes).astype(np.float32).tolist(), **more,
    )  # fmt: skip
    check(model([one], {"label": "str", "scores": "float"}, inputs=IN), X)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("outliers", [0, 1])
def test_support_vector_regressor(kernel: str, outliers: int) -> None:
    one("SVMRegressor", "X", domain="ai.onnx.ml", kernel_type=kernel, kernel_params=[0.2, 0.5, 2.0],
        n_supports=5, support_vectors=RNG.normal(size=20).astype(np.float32).tolist(), rho=[0.3],
        coefficients=RNG.normal(size=5).astype(np.float32).tolist(), one_class=outliers)  # fmt: skip
