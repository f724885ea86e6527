"""Each edge's type decides how its numbers are rounded: decisions behind arithmetic, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn import gaussian_process, pipeline, preprocessing

import hbtvm
from hbtvm.frontends import from_object
from hbtvm.operators.base import in_order
from tests.frontends.onnx.models import model, node, trees
from tests.frontends.onnx.oracle import close, predict, runtime
from tests.frontends.onnx.test_converted import converted

TYPES = {
    "float32": ("float", TensorProto.FLOAT),
    "float64": ("double", TensorProto.DOUBLE),
    "int32": ("int32", TensorProto.INT32),
    "int64": ("int64", TensorProto.INT64),
    "bool": ("bool", TensorProto.BOOL),
}
COLUMNS = 3


class Chain:
    """A graph of random casts and arithmetic on ``X``; `name` and `dtype` are those of its last value."""

    def __init__(self, seed: int, dtype: str, *, computed: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.name, self.dtype = "X", dtype
        if computed:
            # A value that is no column of the input: all that follows is computed by nodes.
            self._then("Add", "X", "X")
        for _ in range(int(self.rng.integers(2, 6))):
            self._step()
        if self.dtype not in ("float32", "float64"):
            self._cast(str(self.rng.choice(["float32", "float64"])))

    def _then(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, [name], domain, **attributes))
        self.name = name

    def _cast(self, to: str) -> None:
        self._then("Cast", self.name, to=TYPES[to][1])
        self.dtype = to

    def _constant(self) -> str:
        kind = self.rng.choice(["all", "each"])
        values = self.rng.uniform(0.1, 3, 1 if kind == "all" else COLUMNS)
        name = f"c{len(self.constants)}"
        whole = "int" in self.dtype
        self.constants[name] = (np.ceil(values * 3) if whole else values).astype(self.dtype)
        return name

    def _step(self) -> None:
        if self.dtype == "bool" or self.rng.random() < 0.35:
            self._cast(str(self.rng.choice(["float32", "float32", "float64", "float64", "int32", "int64"])))
        elif self.rng.random() < 0.1:
            self._cast("bool")
        elif self.rng.random() < 0.15 and self.dtype != "int32":
            numbers = self.rng.uniform(0.1, 3, (2, COLUMNS)).tolist()
            self._then("Scaler", self.name, domain="ai.onnx.ml", offset=numbers[0], scale=numbers[1])
            self.dtype = "float32"
        elif self.rng.random() < 0.15 and self.dtype.startswith("float"):
            self._then(str(self.rng.choice(["Neg", "Abs", "Floor"])), self.name)
        else:
            kind = str(self.rng.choice(["Add", "Sub", "Mul", "Div"]))
            pair = [self.name, self._constant()]
            if kind in ("Add", "Sub", "Mul") and self.rng.random() < 0.3:
                pair.reverse()
            self._then(kind, *pair)

    def model(self, dtype: str, nodes: Any = (), out: tuple[str, str] | None = None) -> onnx.ModelProto:
        """The chain with further nodes."""
        name, kind = out or (self.name, TYPES[self.dtype][0])
        inputs = {"X": (TYPES[dtype][0], [None, COLUMNS])}
        return model([*self.nodes, *nodes], {name: kind}, inputs=inputs, constants=self.constants)


def rows_of(dtype: str, seed: int) -> np.ndarray:
    """Rows of a type, each of the floats beside its neighbours in both types of floats."""
    rng = np.random.default_rng(seed)
    if "int" in dtype:
        return rng.integers(-30, 30, (150, COLUMNS)).astype(dtype)
    X = rng.normal(size=(60, COLUMNS)).astype(np.float32).astype(np.float64)
    X[0], X[1] = 0.0, -0.0
    around = [X, *(np.nextafter(X.astype(np.float32), np.float32(to)) for to in (-9, 9))]
    if dtype == "float64":
        around += [np.nextafter(X, to) for to in (-9.0, 9.0)] + [X / 3]
    return np.concatenate(around).astype(dtype)


def deciding(chain: Chain, dtype: str, X: np.ndarray, kind: str) -> onnx.ModelProto:
    """The chain in front of trees, or of a comparison, with thresholds at values that rows have there."""
    values = runtime(chain.model(dtype), X)[0]
    finite = values[np.isfinite(values)]
    if kind == "trees":
        bounds = chain.rng.choice(finite, 60).astype(np.float32).astype(np.float64)
        own = trees(int(chain.rng.integers(1000)), count=8, depth=6, values=bounds.tolist())
        if chain.dtype == "float64":
            # Thresholds in float64, too.
            exact = np.array(own.pop("nodes_values"))
            shifted = np.where(
                chain.rng.random(len(exact)) < 0.5, exact, chain.rng.choice(finite, len(exact))
            )
            own["nodes_values_as_tensor"] = onnx.numpy_helper.from_array(shifted)
            own["target_weights_as_tensor"] = onnx.numpy_helper.from_array(
                np.array(own.pop("target_weights"))
            )
        nodes = [node("TreeEnsembleRegressor", [chain.name], ["Y"], "ai.onnx.ml", n_targets=1, **own)]
        return chain.model(dtype, nodes, ("Y", "float"))
    chain.constants["bound"] = chain.rng.choice(finite, COLUMNS).astype(chain.dtype)
    comparison = str(chain.rng.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]))
    nodes = [
        node(comparison, [chain.name, "bound"], ["b"]),
        node("Cast", ["b"], ["Y"], to=TensorProto.FLOAT),
    ]
    return chain.model(dtype, nodes, ("Y", "float"))


@pytest.mark.parametrize("kind", ["trees", "comparison"])
@pytest.mark.parametrize("computed", [False, True], ids=["columns", "computed"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_decisions_behind_arithmetic(dtype: str, computed: bool, kind: str) -> None:
    for seed in range(8):
        chain = Chain(seed, dtype, computed=computed)
        X = rows_of(dtype, seed)
        found = deciding(chain, dtype, X, kind)
        expected = runtime(found, X)[0]
        graph = from_object(found)
        # Integers may arrive as floats, and floats in the other type, too.
        others = (X, X.astype(np.float64)) if dtype != "float64" else (X,)
        for rows in others:
            result = np.asarray(predict(graph, rows)).reshape(expected.shape)
            steps = [one.op_type for one in found.graph.node]
            np.testing.assert_allclose(result, expected, 1e-4, 1e-5, err_msg=f"{seed}: {steps}")


def test_rows_of_the_other_type_are_rounded_to_the_declared_one() -> None:
    """A threshold between a float64 number and its float32 neighbour."""
    bound = np.array([0.1, 0.3, 0.7], np.float32)
    nodes = [node("Greater", ["X", "c"], ["b"]), node("Cast", ["b"], ["Y"], to=TensorProto.FLOAT)]
    inputs = {"X": ("float", [None, 3])}
    graph = from_object(model(nodes, {"Y": "float"}, inputs=inputs, constants={"c": bound}))
    rows = np.array([[0.1, 0.3, 0.7]])
    np.testing.assert_array_equal(predict(graph, rows), [[0, 0, 0]])
    wide = {"X": ("double", [None, 3])}
    graph = from_object(model(nodes, {"Y": "float"}, inputs=wide, constants={"c": np.array([0.1, 0.3, 0.7])}))
    single = rows.astype(np.float32)
    np.testing.assert_array_equal(predict(graph, single), single.astype(np.float64) > rows)


def test_division_as_skl2onnx_writes_it_ends_in_the_same_leaves_when_compiled() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, COLUMNS)).astype(np.float32)
    mean, scale = rng.normal(size=COLUMNS), rng.uniform(0.5, 3, COLUMNS)
    scaled = ((X.astype(np.float64) - mean) / scale).astype(np.float32)
    own = trees(1, count=20, depth=7, values=rng.choice(scaled.ravel(), 300).tolist())
    nodes = [
        node("Cast", ["X"], ["wide"], to=TensorProto.DOUBLE),
        node("Sub", ["wide", "mean"], ["centred"]),
        node("Div", ["centred", "scale"], ["scaled"]),
        node("Cast", ["scaled"], ["narrow"], to=TensorProto.FLOAT),
        node("TreeEnsembleRegressor", ["narrow"], ["Y"], "ai.onnx.ml", n_targets=1, **own),
    ]
    inputs = {"X": ("float", [None, COLUMNS])}
    found = model(nodes, {"Y": "float"}, inputs=inputs, constants={"mean": mean, "scale": scale})
    near = np.concatenate([X, *(np.nextafter(X, np.float32(to)) for to in (-9, 9))])
    expected = runtime(found, near)[0].ravel()
    compiled = hbtvm.compile(found, batch_sizes=1, threads=1)
    for rows in (near, near.astype(np.float64)):
        np.testing.assert_allclose(np.asarray(compiled.predict(rows)).ravel(), expected, 1e-5, 1e-5)


def test_roundings_that_nothing_decides_by_are_left_out() -> None:
    nodes = [
        node("Div", ["X", "c"], ["scaled"]),
        node("Exp", ["scaled"], ["power"]),
        node("Add", ["power", "power"], ["Y"]),
    ]
    inputs = {"X": ("float", [None, 3])}
    constants = {"c": np.array([3.0], np.float32)}
    graph = from_object(model(nodes, {"Y": "float"}, inputs=inputs, constants=constants))
    functions = [getattr(one, "function", "") for one in in_order(graph.anchor.output)]  # type: ignore[union-attr]
    assert "exp" in functions and "round_float32" not in functions


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "scaler",
    [preprocessing.StandardScaler(), preprocessing.MinMaxScaler()],
    ids=lambda one: type(one).__name__,
)
def test_distances_of_near_points(scaler: Any, dtype: str) -> None:
    """A Gaussian process that interpolates multiplies what is left of two rounded numbers that are near."""
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(60, COLUMNS)) * [1, 5, 0.1] + [100, -50, 3]).astype(dtype)
    types = [("X", (FloatTensorType if dtype == "float32" else DoubleTensorType)([None, COLUMNS]))]
    process = gaussian_process.GaussianProcessRegressor()
    found = converted(pipeline.make_pipeline(scaler, process), X, rng.normal(size=60), types)
    near = np.concatenate([X, *(np.nextafter(X, np.dtype(dtype).type(to)) for to in (-999, 999))])
    graph = from_object(found)
    (expected,) = runtime(found, near)
    close(np.asarray(predict(graph, near)), expected)
    if dtype == "float32" and isinstance(scaler, preprocessing.StandardScaler):
        compiled = hbtvm.compile(found, batch_sizes=(1,), threads=1)
        close(compiled.predict(near), expected)
        close(compiled.predict(near.astype(np.float64)), expected)
