"""ONNX files, bytes and objects, whole: read, refused, compiled, predicted from."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

import hbtvm
from hbtvm.errors import InputError, MissingPackageError, ModelError, UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.frontends.recognize import kind_of
from tests.frontends.onnx.models import model, node, rows, trees
from tests.frontends.onnx.oracle import close, predict, runtime

ROOT = Path(__file__).parent.parent.parent.parent
ML = "ai.onnx.ml"


def forest() -> Any:
    attributes = trees(1, count=3, targets=range(3), kind="class")
    one = node("TreeEnsembleClassifier", ["X"], ["label", "p"], ML, **attributes,
               classlabels_strings=["a", "b", "c"])  # fmt: skip
    return model([one], {"label": "str", "p": "float"}, inputs={"X": ("float", [None, 3])})


def pipeline() -> Any:
    """Columns by name, trees and a linear model behind a scaler and an encoder."""
    attributes = trees(2, count=3, depth=3)
    nodes = [
        node("Scaler", ["size"], ["scaled"], ML, offset=[0.5], scale=[2.0]),
        node("OneHotEncoder", ["colour"], ["cube"], ML, cats_strings=["red", "blue"]),
        node("Reshape", ["cube", "shape"], ["hot"]),
        node("Concat", ["scaled", "hot"], ["all"], axis=1),
        node("TreeEnsembleRegressor", ["all"], ["a"], ML, **attributes, n_targets=1),
        node("LinearRegressor", ["all"], ["b"], ML, coefficients=[1.0, -2.0, 3.0], intercepts=[0.5]),
        node("Add", ["a", "b"], ["Y"]),
    ]
    inputs: dict[str, Any] = {"size": ("float", [None, 1]), "colour": ("str", [None, 1])}
    return model(nodes, {"Y": "float"}, inputs=inputs, constants={"shape": np.array([-1, 2])})


def test_ways_in(tmp_path: Path) -> None:
    proto = forest()
    path = tmp_path / "model.bin"
    path.write_bytes(proto.SerializeToString())
    assert kind_of(path.read_bytes()[:600]) == "onnx"
    X = rows(3)
    expected = runtime(proto, X)
    for source in (path, str(path), proto, proto.SerializeToString(), bytearray(proto.SerializeToString())):
        graph = load_model(source)
        assert (graph.library, graph.model) == ("onnx", "TreeEnsembleClassifier")
        assert predict(graph, X).tolist() == expected[0].tolist()
    assert kind_of(onnx.ModelProto(graph=proto.graph).SerializeToString()) == "unknown"
    # Without a version in front, the ending tells.
    other = tmp_path / "model.onnx"
    other.write_bytes(onnx.ModelProto(graph=proto.graph, opset_import=proto.opset_import).SerializeToString())
    assert predict(load_model(other), X).tolist() == expected[0].tolist()


def test_compiled_from_the_command_line(tmp_path: Path) -> None:
    proto = forest()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    X = rows(4)[2:]
    expected = runtime(proto, X)
    done = subprocess.run(
        [sys.executable, "-m", "hbtvm", "compile", "model.onnx", "-o", "model.tar"],
        cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    compiled = hbtvm.load(tmp_path / "model.tar")
    assert compiled.predict(X).tolist() == expected[0].tolist()
    close(compiled.predict_proba(X), expected[1])


def test_compiled_with_columns_by_name() -> None:
    proto = pipeline()
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"colour": rng.choice(["red", "blue", "green"], 100), "size": rng.normal(size=100).astype(np.float32)}
    )
    expected = runtime(proto, frame)[0]
    compiled = hbtvm.compile(proto)
    found = compiled.predict(frame.assign(more=0))
    assert found.shape == expected.shape and found.dtype == expected.dtype
    close(found, expected)
    close(compiled.predict({"size": frame["size"][0], "colour": frame["colour"][0]}), expected[:1])
    with pytest.raises(InputError, match="'size'"):
        compiled.predict(frame[["colour"]])


def test_compiled_powers() -> None:
    """The exponent is an expression that names what it mentions twice."""
    nodes = [
        node("Abs", ["X"], ["size"]),
        node("Sum", ["size", "X", "tenth"], ["sum"]),
        node("Max", ["sum", "tenth"], ["bent"]),
        node("Neg", ["bent"], ["minus"]),
        node("Pow", ["two", "minus"], ["Y"]),
    ]
    constants = {"two": np.array([2.0], np.float32), "tenth": np.array([0.1], np.float32)}
    proto = model(nodes, {"Y": "float"}, inputs={"X": ("float", [None, 1])}, constants=constants)
    X = np.random.default_rng(7).normal(size=(50, 1)).astype(np.float32)
    close(hbtvm.compile(proto).predict(X), runtime(proto, X)[0])


def test_damaged_files(tmp_path: Path) -> None:
    content = forest().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(content[:-20])
    with pytest.raises(
        ModelError, match=r"cut.onnx: expected an ONNX model, but it is damaged, cut short or"
    ):
        load_model(path)
    path.write_bytes(b"\x08\x09")
    with pytest.raises(ModelError, match="it has no graph"):
        load_model(path)


def test_what_is_not_read() -> None:
    proto = pipeline()
    tensor = proto.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    with pytest.raises(UnsupportedModel, match="'shape' is stored in another file"):
        load_model(proto)
    proto = pipeline()
    proto.graph.initializer[0].data_type = onnx.TensorProto.BFLOAT16
    with pytest.raises(UnsupportedModel, match="of the type 16"):
        load_model(proto)
    proto = forest()
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 40
    with pytest.raises(UnsupportedModel, match="columns; at most"):
        load_model(proto)


def test_what_claims_much_takes_no_memory() -> None:
    huge = np.array([1 << 20, 1 << 20])
    inputs: dict[str, Any] = {"X": ("float", [None, 3])}
    doubling = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(60)]
    cases = [
        ([node("ConstantOfShape", ["huge"], ["c"]), node("Add", ["X", "c"], ["Y"])], "shape"),
        ([node("Tile", ["X", "huge"], ["Y"])], "shape"),
        ([node("Expand", ["X", "huge"], ["Y"])], "shape"),
        ([*doubling, node("Add", ["X", "t60"], ["Y"])], "constant"),
        ([node("Range", ["zero", "most", "one"], ["r"]), node("Add", ["X", "r"], ["Y"])], "constant"),
        ([node("OneHot", ["X", "most", "pair"], ["Y"])], "columns"),
    ]
    constants = {
        "huge": huge, "t0": np.zeros(4, np.float32), "zero": np.array(0), "one": np.array(1),
        "most": np.array(1 << 40), "pair": np.array([0.0, 1.0], np.float32),
    }  # fmt: skip
    for nodes, match in cases:
        proto = model(nodes, {"Y": "float"}, inputs=inputs, constants=constants)
        tracemalloc.start()
        with pytest.raises(ModelError, match=match):
            load_model(proto)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (1e9 if match == "constant" else 1e7), nodes[0].op_type


def test_own_operators_of_the_model() -> None:
    proto = model([node("Twice", ["X"], ["Y"], "own")], {"Y": "float"}, inputs={"X": ("float", [None, 2])},
                  versions={"own": 1})  # fmt: skip
    body = [node("Add", ["a", "a"], ["b"]), node("Neg", ["b"], ["c"])]
    proto.functions.append(onnx.helper.make_function("own", "Twice", ["a"], ["c"], body, proto.opset_import))
    X = np.random.default_rng(6).normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_allclose(predict(load_model(proto), X), -2 * X)
    # One that calls itself.
    proto.functions[0].node.append(node("Twice", ["c"], ["d"], "own"))
    np.testing.assert_allclose(predict(load_model(proto), X), -2 * X)  # and that nothing reads
    proto.functions[0].output[0] = "d"
    with pytest.raises(UnsupportedModel, match="operators within operators"):
        load_model(proto)


def test_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    content = forest().SerializeToString()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hbtvm\[onnx\]'") as caught:
        load_model(content)
    assert caught.value.name == "onnx"


def test_mutants_are_read_or_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.frontends.onnx.mutants", "300", "3"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-2_000:]
    assert "ModelError" in done.stdout and "'read'" in done.stdout
