"""Operators of ONNX and ai.onnx.ml, one small graph each, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnx import TensorProto

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.onnx.models import model, node
from tests.frontends.onnx.oracle import check

IN = {"X": ("float", [None, 4])}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
WIDE = RNG.normal(size=(4, 3)).astype(np.float32)
ROW = np.array([0.5, -1.0, 0.0, 2.0], np.float32)
INTS = np.array([1, 0], np.int64)


def one(
    kind: str, *inputs: Any, rows: np.ndarray = X, out: str = "float", domain: str = "", versions: Any = None,
    **attributes: Any,
) -> Any:  # fmt: skip
    """Check a graph of one operator: of inputs, names of values and constants."""
    names, constants = [], {}
    for i, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            constants[f"c{i}"] = value
            names.append(f"c{i}")
        else:
            names.append(value)
    nodes = [node(kind, names, ["Y"], domain, **attributes)]
    kind_of = {"f": "float", "d": "double", "l": "int64", "O": "str"}[rows.dtype.char]
    found = model(
        nodes,
        {"Y": out},
        inputs={"X": (kind_of, [None, rows.shape[1]])},
        constants=constants,
        versions=versions,
    )
    return check(found, rows)


@pytest.mark.parametrize(
    "kind",
    [
        *("Exp", "Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Tanh", "Sinh", "Cosh"),
        *(
            "Asin",
            "Atan",
            "Asinh",
            "Atanh",
            "Sigmoid",
            "Relu",
            "Reciprocal",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Softplus",
        ),
        "Softsign",
        *("HardSigmoid", "ThresholdedRelu", "Identity", "Softmax", "LogSoftmax"),
    ],
)
def test_functions(kind: str) -> None:
    one(kind, "X")


@pytest.mark.parametrize("kind", ["Log", "Sqrt"])
def test_functions_of_positive_numbers(kind: str) -> None:
    one(kind, "X", rows=POSITIVE)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_arithmetic(kind: str, side: str) -> None:
    constant = np.array([0.5, 1.5, 3.0, 2.0], np.float32)
    pairs = {"left": (constant, "X"), "right": ("X", constant), "both": ("X", "X")}
    one(kind, *pairs[side], rows=POSITIVE)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_of_integers(kind: str) -> None:
    rows = RNG.integers(-20, 20, (40, 3))
    one(kind, "X", np.array([3, -2, 7]), rows=rows, out="int64")


@pytest.mark.parametrize("kind", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
def test_comparisons(kind: str) -> None:
    rows = np.where(X > 1, np.nan, np.round(X, 1)).astype(np.float32)
    names = [f"b{i}" for i in range(2)]
    nodes = [
        node(kind, ["X", "c"], ["b0"]),
        node(kind, ["c", "X"], ["b1"]),
        node("And", names, ["b2"]),
        node("Or", names, ["b3"]),
        node("Xor", names, ["b4"]),
        node("Not", ["b0"], ["b5"]),
        node("IsNaN", ["X"], ["b6"]),
        node("Where", ["b5", "X", "c"], ["f7"]),
        *(node("Cast", [f"b{i}"], [f"f{i}"], to=TensorProto.FLOAT) for i in range(7)),
        node("Concat", [f"f{i}" for i in range(8)], ["Y"], axis=1),
    ]
    constants = {"c": np.array([0.5, -0.5, 0.0, 1.0], np.float32)}
    check(model(nodes, {"Y": "float"}, inputs=IN, constants=constants), rows)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min"])
def test_several_tensors(kind: str) -> None:
    one(kind, "X", ROW, "X")


@pytest.mark.parametrize(
    "kind",
    [
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"),
        *("ReduceL2", "ReduceLogSumExp"),
    ],
)
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(kind: str, keep: int) -> None:
    nodes = [
        node("Reshape", ["X", "shape"], ["cube"]),
        node(kind, ["cube", *(["axes"] if kind == "ReduceSum" else [])], ["reduced"], keepdims=keep,
             axes=None if kind == "ReduceSum" else [1]),
        node("Reshape", ["reduced", "flat"], ["Y"]),
    ]  # fmt: skip
    constants = {"shape": np.array([-1, 2, 2]), "axes": np.array([1]), "flat": np.array([-1, 2])}
    versions = {"": 13}
    check(model(nodes, {"Y": "float"}, inputs=IN, constants=constants, versions=versions), X)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions(kind: str, last: int) -> None:
    nodes = [node(kind, ["X"], ["Y"], axis=1, select_last_index=last)]
    check(model(nodes, {"Y": "int64"}, inputs=IN), np.round(X).astype(np.float32))


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(largest: int) -> None:
    nodes = [
        node("TopK", ["X", "k"], ["values", "at"], largest=largest, axis=1),
        node("GatherElements", ["X", "at"], ["again"], axis=1),
        node("Cast", ["at"], ["at_float"], to=TensorProto.FLOAT),
        node("ArrayFeatureExtractor", ["table", "at"], ["looked"], "ai.onnx.ml"),
        node("Reshape", ["looked", "two"], ["looked_up"]),
        node("Concat", ["values", "again", "at_float", "looked_up"], ["Y"], axis=1),
    ]
    constants = {
        "k": np.array([2]),
        "table": np.array([[5.0, 6.0, 7.0, 8.0]], np.float32),
        "two": np.array([-1, 2]),
    }
    check(model(nodes, {"Y": "float"}, inputs=IN, constants=constants), X)


def test_products() -> None:
    bias = np.array([1.0, 2.0, 3.0], np.float32)
    one("MatMul", "X", WIDE)
    one("Gemm", "X", WIDE, bias, alpha=0.5, beta=2.0)
    one("Gemm", "X", WIDE.T.copy(), bias, transB=1)
    one("CumSum", "X", np.array(1))
    one("CumSum", "X", np.array(1), exclusive=1, reverse=1)
    nodes = [
        node("Transpose", ["X"], ["T"]),
        node("MatMul", ["W", "T"], ["P"]),
        node("Transpose", ["P"], ["Y"]),
    ]
    check(model(nodes, {"Y": "float"}, inputs=IN, constants={"W": WIDE.T.copy()}), X)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    points = RNG.normal(size=(5, 4)).astype(np.float32)
    one("CDist", "X", points, domain="com.microsoft", metric=metric)


def test_shapes() -> None:
    """A way through the operators that move columns about, with the number of rows computed."""
    nodes = [
        node("Shape", ["X"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Concat", ["n", "two_two"], ["wanted"], axis=0),
        node("Reshape", ["X", "wanted"], ["cube"]),
        node("Transpose", ["cube"], ["turned"], perm=[2, 0, 1]),
        node("Gather", ["turned", "one"], ["second"], axis=0),
        node("Unsqueeze", ["second", "axis1"], ["lifted"]),
        node("Squeeze", ["lifted", "axis1"], ["again"]),
        node("Slice", ["X", "starts", "ends", "axes", "steps"], ["sliced"]),
        node("Split", ["X", "sizes"], ["p", "q"], axis=1),
        node("Tile", ["p", "times"], ["tiled"]),
        node("Expand", ["row", "like"], ["stretched"]),
        node("ConstantOfShape", ["like"], ["zeros"]),
        node("Flatten", ["cube"], ["flat"]),
        node("Concat", ["again", "sliced", "tiled", "q", "stretched", "zeros", "flat"], ["Y"], axis=1),
        node("Concat", ["n", "three"], ["like"], axis=0),
    ]
    nodes.insert(3, nodes.pop())
    constants = {
        "zero": np.array([0]), "one": np.array(1), "two_two": np.array([2, 2]), "axis1": np.array([1]),
        "starts": np.array([-1]), "ends": np.array([-(1 << 40)]), "axes": np.array([1]),
        "steps": np.array([-2]),
        "sizes": np.array([1, 3]), "times": np.array([1, 3]), "three": np.array([3]),
        "row": np.array([[1.0, 2.0, 3.0]], np.float32),
    }  # fmt: skip
    check(model(nodes, {"Y": "float"}, inputs=IN, constants=constants), X)


def test_casts_and_one_hot() -> None:
    nodes = [
        node("Cast", ["X"], ["whole"], to=TensorProto.INT64),
        node("Cast", ["whole"], ["truth"], to=TensorProto.BOOL),
        node("Cast", ["truth"], ["a"], to=TensorProto.FLOAT),
        node("Cast", ["whole"], ["b"], to=TensorProto.FLOAT),
        node("Gather", ["whole", "at"], ["first"], axis=1),
        node("Abs", ["first"], ["positive"]),
        node("OneHot", ["positive", "depth", "values"], ["c"]),
        node("Clip", ["X", "low", "high"], ["d"]),
        node("LpNormalization", ["X"], ["e"], axis=1, p=1),
        node("Concat", ["a", "b", "c", "d", "e"], ["Y"], axis=1),
    ]
    constants = {
        "at": np.array(0), "depth": np.array(4), "values": np.array([-1.0, 2.0], np.float32),
        "low": np.array(-0.5, np.float32), "high": np.array(0.75, np.float32),
    }  # fmt: skip
    check(model(nodes, {"Y": "float"}, inputs=IN, constants=constants), X * 2)


def test_inputs_of_one_axis() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    nodes = [node("Add", ["a", "b"], ["c"]), node("Unsqueeze", ["c", "axes"], ["Y"])]
    inputs: dict[str, Any] = {"a": ("float", [None]), "b": ("float", ["rows"])}
    check(model(nodes, {"Y": "float"}, inputs=inputs, constants={"axes": np.array([1])}), frame)
    check(model(nodes[:1], {"c": "float"}, inputs=inputs), frame)


def test_columns_that_only_operators_tell() -> None:
    nodes = [
        node("Cast", ["X"], ["x"], to=TensorProto.FLOAT),
        node("LinearRegressor", ["x"], ["Y"], "ai.onnx.ml", coefficients=[1.0, 2.0, 3.0, 4.0]),
    ]
    graph = check(model(nodes, {"Y": "float"}, inputs={"X": ("float", [None, None])}), X)
    assert graph.input.n_features == 4
    with pytest.raises(UnsupportedModel, match="does not say how many columns"):
        from_object(model([node("Neg", ["X"], ["Y"])], {"Y": "float"}, inputs={"X": ("float", [None, None])}))


def test_missing_numbers() -> None:
    """Products refuse NaN where nothing fills it; other operators pass it on."""
    from hbtvm.errors import InputError
    from tests.frontends.onnx.oracle import predict

    rows = X.copy()
    rows[3, 1] = np.nan
    one("Tanh", "X", rows=rows)
    weights = {"coefficients": [1.0, 2.0, 3.0, 4.0]}
    graph = one("LinearRegressor", "X", domain="ai.onnx.ml", **weights)
    with pytest.raises(InputError, match="NaN"):
        predict(graph, rows)


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        (
            [node("NonZero", ["X"], ["Y"])],
            r"operator NonZero \(node 'n_Y'\) is not supported: it counts rows",
        ),
        ([node("Spam", ["X"], ["Y"], "ai.spam")], "operator ai.spam.Spam"),
        ([node("ReduceSum", ["X"], ["Y"])], "reduces over the rows"),
        ([node("MatMul", ["X", "X"], ["Y"])], "both depend on the rows"),
        ([node("Concat", ["X", "X"], ["Y"], axis=0)], "row by row"),
        ([node("Reshape", ["X", "shape"], ["Y"])], "rows are mixed"),
        ([node("Reshape", ["X", "one"], ["Y"])], "rows are mixed"),
        ([node("Slice", ["X", "one", "shape"], ["Y"])], "some of the rows"),
        ([node("Cast", ["X"], ["Y"], to=TensorProto.STRING)], "casts float32 to str"),
        ([node("Add", ["X", "Z"], ["Y"])], "'Z' is not computed before"),
        ([node("Add", ["X", "five"], ["Y"])], "don't fit each other"),
    ],
)
def test_what_is_not_supported_is_named(nodes: Any, match: str) -> None:
    from hbtvm.errors import ModelError

    constants = {"shape": np.array([2, -1]), "one": np.array([-1, 1]), "five": np.ones(5, np.float32)}
    if "Slice" in nodes[0].op_type:
        constants = {"one": np.array([1]), "shape": np.array([3])}
    with pytest.raises(ModelError, match=match):
        from_object(model(nodes, {"Y": "float"}, inputs=IN, constants=constants))
