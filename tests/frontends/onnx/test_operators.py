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
        *("Atan", "Asinh", "Atanh", "Sigmoid", "Relu", "Reciprocal", "LeakyRelu", "Elu", "Selu", "Softplus"),
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
    with pytest.raises(InputError, match="'c' was not there"):
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
