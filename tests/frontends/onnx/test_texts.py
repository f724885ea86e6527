"""Strings: missing values as ONNX Runtime writes them, and integers that a file casts to strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn import compose, ensemble, pipeline, preprocessing

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.frontends.onnx.texts import spelled
from tests.frontends.onnx.models import model, node
from tests.frontends.onnx.oracle import check, close, predict, runtime
from tests.frontends.onnx.test_converted import converted

ML = "ai.onnx.ml"
EQUAL = {"": 19}
"""The first version that compares strings."""


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def encoders(keys: list[str]) -> dict[str, tuple[list[Any], str]]:
    """Nodes that look up strings ``s`` in each way, and the type of their output ``Y``."""
    count = list(range(10, 10 + len(keys)))
    return {
        "integers": (
            [node("LabelEncoder", ["s"], ["Y"], ML, keys_strings=keys, values_int64s=count)],
            "int64",
        ),
        "floats": (
            [node("LabelEncoder", ["s"], ["Y"], ML, keys_strings=keys, values_floats=[c / 4 for c in count])],
            "float",
        ),
        "one_hot": (
            [
                node("OneHotEncoder", ["s"], ["cube"], ML, cats_strings=keys),
                node("Reshape", ["cube", "shape"], ["Y"]),
            ],
            "float",
        ),
        "equal": ([node("Equal", ["s", "key"], ["same"]), node("Cast", ["same"], ["Y"], to=1)], "float"),
    }


WAYS = list(encoders(["a"]))


def looked_up(way: str, keys: list[str], kind: str, before: list[Any], width: int = 2) -> Any:
    nodes, out = encoders(keys)[way]
    constants = {"shape": np.array([-1, width * len(keys)]), "key": np.array([keys[0]], object)}
    used = {name for one in (*before, *nodes) for name in one.input}
    return model(
        [*before, *nodes],
        {"Y": out},
        inputs={"X": (kind, [None, width])},
        constants={name: value for name, value in constants.items() if name in used},
        versions=EQUAL,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "keys", [["nan", "a", "None"], ["None", "a"], ["a", "nan"], ["a", "b"]], ids="-".join
)
def test_missing_values_are_strings(way: str, keys: list[str]) -> None:
    values = np.empty(6, object)
    values[:] = ["a", "b", float("nan"), None, np.float32("nan"), "nan"]
    found = looked_up(way, keys, "str", [node("Identity", ["X"], ["s"])])
    check(found, rng().choice(values, (60, 2)))


@pytest.mark.parametrize("missing", ["nan", "None", ""])
def test_missing_values_are_filled(missing: str) -> None:
    """As sklearn-onnx writes imputers of strings."""
    values = np.array(["a", "b", float("nan"), None, "nan", ""], object)
    nodes = [
        node("Equal", ["X", "missing"], ["gone"]),
        node("Where", ["gone", "fill", "X"], ["s"]),
        node(
            "LabelEncoder", ["s"], ["Y"], ML, keys_strings=["a", "b", "nan", ""], values_int64s=[0, 1, 2, 3]
        ),
    ]
    constants = {"missing": np.array([missing], object), "fill": np.array(["b"], object)}
    inputs = {"X": ("str", [None, 1])}
    rows = rng().choice(values, (60, 1))
    check(model(nodes, {"Y": "int64"}, inputs=inputs, constants=constants, versions=EQUAL), rows)
    # Before strings could be compared.
    nodes[0] = node(
        "LabelEncoder", ["X"], ["one"], ML, keys_strings=[missing], values_int64s=[1], default_int64=0
    )
    nodes.insert(1, node("Cast", ["one"], ["gone"], to=9))
    del constants["missing"]
    check(model(nodes, {"Y": "int64"}, inputs=inputs, constants=constants), rows)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["int64", "int32", "bool"])
def test_integers_that_are_cast_to_strings(way: str, kind: str) -> None:
    keys = ["1", "0", "-2", "03", "+4", "a", "", "5.0", "-0", "9007199254740991", "1_0", "²"]
    values = np.array([0, 1, -2, 3, 4, 5, 10, 2**53 - 1 if kind == "int64" else 7])
    rows = rng().choice(values, (80, 2))
    rows = rows > 0 if kind == "bool" else rows
    check(looked_up(way, keys, kind, [node("Cast", ["X"], ["s"], to=8)]), rows)


def test_integers_beside_strings() -> None:
    """What sklearn-onnx writes for an encoder of columns of both kinds."""
    frame = pd.DataFrame({"a": rng().choice(["x", "1", "2"], 90), "b": rng(1).integers(0, 4, 90)})
    nodes = [
        node("Cast", ["b"], ["text"], to=8),
        node("Concat", ["a", "text"], ["both"], axis=1),
        node("LabelEncoder", ["both"], ["Y"], ML, keys_strings=["1", "x", "3"], values_int64s=[7, 8, 9]),
    ]
    inputs = {"a": ("str", [None, 1]), "b": ("int64", [None, 1])}
    graph = check(model(nodes, {"Y": "int64"}, inputs=inputs), frame)
    assert predict(graph, frame.astype({"b": float})).tolist() == predict(graph, frame).tolist()


def test_target_encoder_of_strings_and_integers() -> None:
    frame = pd.DataFrame(
        {
            "c": rng().choice(["u", "v", "w"], 200),
            "k": rng(1).integers(0, 3, 200),
            "x": rng(2).normal(size=200),
        }
    )
    target = (frame["c"] == "u") * 2.0 + frame["k"] + frame["x"]
    columns = compose.ColumnTransformer(
        [("t", preprocessing.TargetEncoder(random_state=0), ["c", "k"])], remainder="passthrough"
    )
    last = ensemble.RandomForestRegressor(3, max_depth=4, random_state=0)
    types = [
        ("c", StringTensorType([None, 1])),
        ("k", Int64TensorType([None, 1])),
        ("x", FloatTensorType([None, 1])),
    ]
    check(converted(pipeline.make_pipeline(columns, last), frame, target, types), frame)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_as_strings(kind: str) -> None:
    """As `Cast` writes them, in constants; those of rows are refused."""
    dtype = {"float": np.float32, "double": np.float64}[kind]
    numbers = [
        0.0,
        -0.0,
        0.1,
        1 / 3,
        1e10,
        123456789.0,
        1e-7,
        np.nan,
        np.inf,
        -np.inf,
        *rng().normal(size=40),
    ]
    values = np.array(numbers, dtype)
    found = model([node("Cast", ["X"], ["Y"], to=8)], {"Y": "str"}, inputs={"X": (kind, [None, 1])})
    (texts,) = runtime(found, values[:, None])
    assert [spelled(one) for one in values.tolist()] == texts.ravel().tolist()
    with pytest.raises(UnsupportedModel, match="casts float"):
        from_object(looked_up("integers", ["1"], kind, [node("Cast", ["X"], ["s"], to=8)]))


def test_labels_that_are_cast_to_strings() -> None:
    """Positions of classes as floats, as strings, as integers."""
    floats = [0.5, 3.0, 1e9]
    nodes = [
        node("ArgMax", ["X"], ["at"], axis=1, keepdims=1),
        node("LabelEncoder", ["at"], ["f"], ML, keys_int64s=[0, 1, 2], values_floats=floats),
        node("Cast", ["f"], ["s"], to=8),
        node("LabelEncoder", ["s"], ["Y"], ML, keys_strings=["0.5", "3", "1e+09", "3.0"],
             values_floats=[1.0, 2.0, 3.0, 4.0]),
    ]  # fmt: skip
    found = model(nodes, {"Y": "float"}, inputs={"X": ("float", [None, 3])})
    rows = rng().normal(size=(50, 3)).astype(np.float32)
    close(np.asarray(predict(from_object(found), rows)), runtime(found, rows)[0])
