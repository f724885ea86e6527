"""Damaged ONNX files, and what the reader makes of them.

A program of its own, so that its memory can be limited and a crash is seen:

    python -W error -m tests.frontends.onnx.mutants 500 [SEED]

reads so many mutants of small models (fields of the document and bytes of the file changed), and prints how
each ended. Anything but a graph or a `ModelError`, or a read that takes too long or too much memory, ends
it with a status of 1.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hbtvm import codec
from hbtvm.errors import HbtvmError, InputError, ModelError
from hbtvm.frontends import onnx as reader
from hbtvm.frontends.recognize import kind_of
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from tests.frontends.onnx.models import model, node, trees
from tests.frontends.onnx.oracle import predict

MEMORY = 1 << 30
"""Bytes that reading may add to the process."""

SECONDS = 4.0

INTEGERS = (0, -1, 1, 2, 3, 7, 1 << 20, 1 << 31, 1 << 40, -(1 << 62), (1 << 62))
FLOATS = (0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-40, 3.5)
KINDS = (
    *(
        "Tile",
        "Expand",
        "Reshape",
        "Concat",
        "MatMul",
        "Gather",
        "ConstantOfShape",
        "Range",
        "Split",
        "Where",
        "Loop",
    ),
    *(
        "Add",
        "Transpose",
        "Cast",
        "TopK",
        "OneHot",
        "Scan",
        "Slice",
        "ArgMax",
        "ReduceSum",
        "Gemm",
        "Unsqueeze",
    ),
)


def samples() -> list[bytes]:
    """Models with many kinds of operators."""
    inputs: dict[str, Any] = {"X": ("float", [None, 3])}
    label = {"label": "int64", "scores": "float"}
    ml = "ai.onnx.ml"
    forest = trees(1, targets=range(3), kind="class", modes=("BRANCH_LEQ", "BRANCH_EQ"))
    classifier = [
        node("Scaler", ["X"], ["s"], ml, offset=[1.0, 2.0, 3.0], scale=[0.5, 1.5, 2.5]),
        node(
            "TreeEnsembleClassifier", ["s"], ["label", "scores"], ml, **forest, classlabels_int64s=[1, 2, 3]
        ),
    ]
    vectors = [
        node("SVMClassifier", ["X"], ["label", "scores"], ml, kernel_type="RBF",
             kernel_params=[0.5, 0.0, 3.0],
             support_vectors=[float(i) for i in range(12)], coefficients=[1.0, -1.0, 0.5, -0.5], rho=[0.1],
             vectors_per_class=[2, 2], classlabels_ints=[0, 1], prob_a=[-1.0], prob_b=[0.1]),
    ]  # fmt: skip
    network = [
        node("Shape", ["X"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Concat", ["n", "three"], ["wanted"], axis=0),
        node("Expand", ["row", "wanted"], ["wide"]),
        node("Gemm", ["X", "W", "row"], ["g"], transB=1),
        node("Add", ["g", "wide"], ["h"]),
        node("Softmax", ["h"], ["p"], axis=1),
        node("TopK", ["p", "two"], ["top", "at"], axis=1),
        node("Tile", ["top", "times"], ["tiled"]),
        node("Concat", ["p", "tiled"], ["all"], axis=1),
        node("ReduceSum", ["all", "one"], ["sum"], keepdims=1),
        node("Div", ["all", "sum"], ["Y"]),
    ]
    constants = {
        "zero": np.array([0]), "three": np.array([3]), "one": np.array([1]), "two": np.array([2]),
        "times": np.array([1, 2]),
        "row": np.array([[1.0, 2.0, 3.0]], np.float32), "W": np.eye(3, dtype=np.float32),
    }  # fmt: skip
    texts = [
        node("LabelEncoder", ["X"], ["code"], ml, keys_strings=["a", "b"], values_int64s=[1, 0]),
        node("OneHotEncoder", ["code"], ["cube"], ml, cats_int64s=[0, 1]),
        node("Reshape", ["cube", "flat"], ["hot"]),
        node("LinearRegressor", ["hot"], ["Y"], ml, coefficients=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], targets=1),
    ]
    found = [
        model(classifier, label, inputs=inputs),
        model(vectors, label, inputs=inputs),
        model(network, {"Y": "float"}, inputs=inputs, constants=constants),
        model(texts, {"Y": "float"}, inputs={"X": ("str", [None, 3])}, constants={"flat": np.array([-1, 6])},
              versions={"ai.onnx.ml": 2}),
    ]  # fmt: skip
    return [one.SerializeToString() for one in found]


def document(sample: bytes, rng: random.Random) -> bytes:
    """One to three fields changed."""
    proto = onnx.ModelProto.FromString(sample)
    for _ in range(rng.choice((1, 1, 2, 3))):
        graph = proto.graph
        one = rng.choice(list(graph.node)) if graph.node else None
        match rng.randrange(9):
            case 0 if one is not None and one.attribute:
                _attribute(rng.choice(list(one.attribute)), rng)
            case 1 if one is not None and one.attribute:
                del one.attribute[rng.randrange(len(one.attribute))]
            case 2 if one is not None and one.input:
                names = [name for other in graph.node for name in other.output] + ["", "X", "?"]
                one.input[rng.randrange(len(one.input))] = rng.choice(names)
            case 3 if one is not None:
                one.op_type = rng.choice(KINDS)
            case 4 if one is not None:
                graph.node.remove(one)
            case 5 if graph.initializer:
                _tensor(rng.choice(list(graph.initializer)), rng)
            case 6:
                dims = graph.input[0].type.tensor_type.shape.dim
                if dims:
                    dims[rng.randrange(len(dims))].dim_value = rng.choice(INTEGERS)
            case 7 if one is not None:
                graph.node.insert(rng.randrange(len(graph.node) + 1), one)
            case _:
                proto.opset_import[0].version = rng.choice((1, 5, 9, 11, 13, 99))
    return bytes(proto.SerializeToString())


def _attribute(one: Any, rng: random.Random) -> None:
    for values, choices in ((one.ints, INTEGERS), (one.floats, FLOATS)):
        if values:
            kind = rng.randrange(3)
            if kind == 0:
                values[rng.randrange(len(values))] = rng.choice(choices)
            elif kind == 1:
                del values[rng.randrange(len(values))]
            else:
                values.append(rng.choice(choices))
    if one.strings:
        one.strings[rng.randrange(len(one.strings))] = rng.choice((b"", b"LEAF", b"\xff\xfe", b"x" * 5_000))
    if one.HasField("i"):
        one.i = rng.choice(INTEGERS)
    if one.HasField("s"):
        one.s = rng.choice((b"", b"\xff", b"SOFTMAX", b"\x1b[31m" * 50))
    if rng.random() < 0.2:
        one.type = rng.randrange(12)


def _tensor(one: Any, rng: random.Random) -> None:
    kind = rng.randrange(5)
    if kind == 0 and one.dims:
        one.dims[rng.randrange(len(one.dims))] = rng.choice(INTEGERS)
    elif kind == 1:
        one.raw_data = one.raw_data[: rng.randrange(len(one.raw_data) + 1)]
    elif kind == 2 and one.data_type == onnx.TensorProto.INT64:
        count = len(one.raw_data) // 8
        one.raw_data = np.array([rng.choice(INTEGERS) for _ in range(count)], "<i8").tobytes()
    elif kind == 3:
        one.data_type = rng.randrange(20)
    else:
        one.data_location = onnx.TensorProto.EXTERNAL


def flipped(sample: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, left out, added, or said twice."""
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 1, 4, 8, 100))
        match rng.randrange(4):
            case 0:
                data[at : at + size] = rng.randbytes(size)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[rng.randrange(len(data) + 1) :][:size]
            case _:
                data[at : at + 1] = bytes([rng.choice((0, 0x7F, 0xFF, 0x80, 1))])
    return bytes(data)


def use(graph: Graph) -> None:
    """What was read can be kept, and predicts."""
    assert codec.read(InputSpec, json.loads(json.dumps(codec.write(graph.input)))) == graph.input
    assert codec.write(codec.read(OutputSpec, codec.write(graph.output))) == codec.write(graph.output)
    if graph.input.n_features < 100 and not graph.feeds:
        with np.errstate(all="ignore"):
            predict(graph, np.ones((2, graph.input.n_features)))


def main(count: int, seed: int) -> int:
    """Read so many mutants; the exit status."""
    originals = samples()
    for one in originals:
        assert kind_of(one) == "onnx"
        use(reader.from_bytes(one))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    rng, ends, slowest, bad = random.Random(seed), Counter[str](), 0.0, 0
    for number in range(count):
        mutate = document if rng.random() < 0.7 else flipped
        mutant = mutate(rng.choice(originals), rng)
        start = time.process_time()
        try:
            use(reader.from_bytes(mutant))
            ends["read"] += 1
        except ModelError as error:
            ends[type(error).__name__] += 1
            if not str(error).isprintable() or len(str(error)) > 1_000:
                bad += 1
                print(f"mutant {number}: {str(error)[:300]!r}")
        except InputError as error:
            ends[type(error).__name__] += 1
        except (Exception, HbtvmError) as error:
            ends[type(error).__name__] += 1
            bad += 1
            print(f"mutant {number}: {''.join(traceback.format_exception(error))[-2000:]}")
        took = time.process_time() - start
        slowest = max(slowest, took)
        if took > SECONDS:
            bad += 1
            print(f"mutant {number} took {took:.1f} s")
    print(f"{dict(ends)}, slowest {slowest:.2f} s, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
