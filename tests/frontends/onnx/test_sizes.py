"""Small files that ask for much: they are read, or refused in a sentence, in bounded time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.onnx.models import model, node
from tests.frontends.onnx.oracle import check

ML = "ai.onnx.ml"
MEMORY, SECONDS = 3 << 30, 300
"""Address space of a process that reads a file, most of it libraries; a bound far above what is needed."""


def chain(kind: str, count: int, dtype: str = "float", *, computed: bool = False, width: int = 2) -> Any:
    """One operator again and again, on a constant or on the input."""
    names = ["X", *(f"v{i}" for i in range(count - 1)), "Y"]
    other = "X" if computed else "c"
    nodes = [node(kind, [names[i], other], [names[i + 1]]) for i in range(count)]
    constants = {"c": np.array([3], {"float": np.float32, "double": float, "int64": int}[dtype])}
    return model(nodes, {"Y": dtype}, inputs={"X": (dtype, [None, width])}, constants=constants)


def encoder(categories: int) -> Any:
    """A one-hot encoder of many categories and a product behind it."""
    rng = np.random.default_rng(0)
    nodes = [
        node("OneHotEncoder", ["X"], ["hot"], ML, cats_int64s=list(range(categories))),
        node("Reshape", ["hot", "shape"], ["flat"]),
        node("MatMul", ["flat", "w"], ["Y"]),
    ]
    weight = rng.normal(size=(categories, 1)).astype(np.float32)
    constants = {"shape": np.array([-1, categories]), "w": weight}
    return model(nodes, {"Y": "float"}, inputs={"X": ("int64", [None, 1])}, constants=constants)


def wide() -> Any:
    """Many operators on many columns."""
    return chain("Add", 100, width=100_000)


def outer() -> Any:
    """Columns by columns."""
    nodes = [
        node("Unsqueeze", ["X", "one"], ["a"]),
        node("Unsqueeze", ["X", "two"], ["b"]),
        node("Add", ["a", "b"], ["Y"]),
    ]
    constants = {"one": np.array([1]), "two": np.array([2])}
    return model(nodes, {"Y": "float"}, inputs={"X": ("float", [None, 100_000])}, constants=constants)


def sums() -> Any:
    nodes = [node("CumSum", ["X", "axis"], ["Y"])]
    inputs = {"X": ("float", [None, 100_000])}
    return model(nodes, {"Y": "float"}, inputs=inputs, constants={"axis": np.array(1)})


def encoders() -> Any:
    nodes = [node("OneHotEncoder", ["X"], ["Y"], ML, cats_int64s=list(range(20_000)))]
    return model(nodes, {"Y": "float"}, inputs={"X": ("int64", [None, 100_000])})


FILES = {
    "adds": (lambda: chain("Add", 900), ""),
    "adds_of_rows": (lambda: chain("Add", 900, "double", computed=True), ""),
    "too_many_adds": (lambda: chain("Add", 4200), "operators for each row; at most 4,096"),
    "products_of_integers": (lambda: chain("Mul", 1000, "int64"), ""),
    "categories": (lambda: encoder(20_000), ""),
    "encoders": (encoders, "2,000,000,000 columns"),
    "wide": (wide, "too many columns in all"),
    "outer": (outer, "10,000,000,000 columns"),
    "sums": (sums, "sums up 100,000 columns"),
}

READ = """
import sys
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import load_model
for path in sys.argv[1:]:
    try:
        load_model(path)
        print("read")
    except UnsupportedModel as error:
        print(error)
"""


def test_small_files_take_little_memory(tmp_path: Path) -> None:
    """One process for all of them: a process that starts takes longer than it reads."""
    for name, (make, _) in FILES.items():
        (tmp_path / f"{name}.onnx").write_bytes(make().SerializeToString())
    done = subprocess.run(
        [sys.executable, "-c", READ, *(str(tmp_path / f"{name}.onnx") for name in FILES)],
        capture_output=True, text=True, timeout=SECONDS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(FILES), done.stderr[-2000:]
    for (name, (_, said)), line in zip(FILES.items(), lines, strict=True):
        assert (said in line and line != "read") if said else line == "read", (name, line[:200])


@pytest.mark.parametrize("computed", [False, True])
def test_long_chains_are_right(computed: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    check(chain("Add", 100, computed=computed), rows)


def test_many_categories_are_right() -> None:
    check(encoder(3000), np.arange(-1, 3001, 7)[:, None])


def test_strings_with_many_steps_are_refused() -> None:
    nodes = []
    for i in range(80):
        before = f"s{i - 1}" if i else "X"
        nodes += [
            node("Equal", [before, f"t{i}"], [f"b{i}"]),
            node("Where", [f"b{i}", "t0", before], [f"s{i}"]),
        ]
    nodes.append(node("OneHotEncoder", ["s79"], ["Y"], ML, cats_strings=["a"]))
    constants = {f"t{i}": np.array([f"w{i}"], object) for i in range(80)}
    found = model(nodes, {"Y": "float"}, inputs={"X": ("str", [None, 1])}, constants=constants)
    with pytest.raises(UnsupportedModel, match="strings"):
        from_object(found)
