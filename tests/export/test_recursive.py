"""Recursive models as libraries for C: bit for bit what packages compute in Python, from programs, too."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.cli.main import main
from hbtvm.compiler.exporting.export import write_library
from hbtvm.compiler.exporting.recursive_header import input_names
from hbtvm.runtime.model import Model
from hbtvm.runtime.recursive.structures import Structures
from tests.exported import C_OPTIONS, compile_program, run_program
from tests.recursive.random_cells import random_structures

TYPES = {"float": np.float32, "double": np.float64, "int64_t": np.int64}


@rec.cell(
    children=2,
    state={"h": 5, "c": 3},
    inputs={"word": rec.embedding("words", optional=True), "class": rec.vector(3)},
)
def first_cell(node, w):  # type: ignore[no-untyped-def]
    c = rec.tanh(w.V @ rec.total(node.children.h) + getattr(node, "class"))
    return {"h": rec.sigmoid(w.U @ rec.total(node.children.h) + node.word), "c": c}


@rec.cell(children=None, state={"h": 5}, inputs={"word": rec.embedding("words")})
def second_cell(node, w):  # type: ignore[no-untyped-def]
    return {"h": rec.tanh(w.U @ rec.total(node.children.h) + node.word)}


def _model(cell: Any, output: Any, **options: Any) -> rec.Model:
    rng = np.random.default_rng(2)
    shapes = {"words": (9, 5), "U": (5, 5), "V": (3, 5), "three": (3, 5), "one": (1, 3)}
    return rec.Model(
        cell, {name: rng.normal(size=shape) for name, shape in shapes.items()}, output, **options
    )


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """By the names of their libraries."""
    given = {
        "classes": _model(
            first_cell, rec.roots("h") | rec.linear("three") | rec.softmax(), classes=('"low\\', "mid", "é")
        ),
        "value": _model(first_cell, rec.mean("c") | rec.linear("one")),
        "nodes": _model(second_cell, rec.nodes("h")),
    }
    return {name: hbtvm.compile(one, batch_sizes=(1, 8), threads=2) for name, one in given.items()}


@pytest.fixture(scope="module")
def folder(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported") / "libraries"
    for name, model in models.items():
        assert hbtvm.export(model, made, name, force=True).lacking == ()
    return made


class Error(ctypes.Structure):
    """``NAME_error``."""

    _fields_ = (("code", ctypes.c_int), *((name, ctypes.c_int64) for name in ("structure", "node", "input")))


class Loaded:
    """A shared library, called as C calls it."""

    def __init__(self, folder: Path, name: str, threads: int = 0) -> None:
        self.library, self.name = ctypes.CDLL(str(folder / f"lib{name}.so")), name
        self.function("open").restype = ctypes.c_void_p
        for end in ("message", "class_name", "cpu_lacks"):
            if hasattr(self.library, f"{name}_{end}"):
                self.function(end).restype = ctypes.c_char_p
        self.model = ctypes.c_void_p(self.function("open")(threads))
        assert self.model.value

    def function(self, end: str) -> Any:
        return getattr(self.library, f"{self.name}_{end}")

    def call(
        self, end: str, given: Structures, names: Sequence[str], out: np.ndarray, threads: int = 0
    ) -> tuple[int, int, Error]:
        """Returns the code, how many results there are, and the error."""
        arrays = [given.starts, given.first, given.child, *(given.inputs[name] for name in names)]
        counts = [len(given.starts) - 1, len(given.first) - 1, len(given.child)]
        batch = (ctypes.c_int64 * (3 + len(arrays)))(*counts, *(one.ctypes.data for one in arrays))
        results, error = ctypes.c_int64(len(out)), Error()
        code = self.function(end)(
            self.model, batch, ctypes.c_void_p(out.ctypes.data), ctypes.byref(results), threads,
            ctypes.byref(error),
        )  # fmt: skip
        assert code == error.code
        return int(code), results.value, error


def in_python(model: Model, end: str, given: Structures) -> np.ndarray:
    if end == "readout":
        assert model._kernels.front is not None
        return model._kernels.front.rows(given)
    if end == "predict_class":
        classes = model.classes_.tolist()
        return np.array([classes.index(one) for one in model.predict(given)])
    found = model.predict(given) if end == "predict" else getattr(model, end)(given)
    return np.asarray(found)


def _names(model: Model) -> list[str]:
    assert model.package.recursion is not None
    return [one.name for one in model.package.recursion.inputs]


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("classes", ["predict_class", "predict_proba", "readout"]),
        ("value", ["predict", "readout"]),
        ("nodes", ["predict"]),
    ],
)
def test_results_are_python_s(
    name: str, functions: list[str], models: dict[str, Model], folder: Path
) -> None:
    model, cell = models[name], (second_cell if name == "nodes" else first_cell)
    bound = _model(cell, rec.roots("h")).cell
    text = (folder / f"{name}.h").read_text()
    types = dict(re.findall(rf"^int {name}_(\w+)\(const [^;]*?(\w+) \*out", text, re.MULTILINE))
    assert [*types] == functions
    for threads in (0, 1, 2):
        loaded = Loaded(folder, name, threads)
        for count in (1, 2, 7, 60):
            given = random_structures(bound, count, count, 30)
            for end in functions:
                wanted = in_python(model, end, given)
                assert wanted.dtype == TYPES[types[end]], end
                out = np.zeros(wanted.shape, wanted.dtype)
                code, results, _ = loaded.call(end, given, _names(model), out, threads)
                assert (code, results) == (0, len(wanted))
                assert out.tobytes() == wanted.tobytes(), (end, threads, count)
        loaded.function("close")(loaded.model)


def test_facts(folder: Path) -> None:
    loaded = Loaded(folder, "classes")
    assert loaded.function("classes")() == 3
    names = [loaded.function("class_name")(ctypes.c_int64(at)) for at in range(-1, 4)]
    assert names == [None, b'"low\\', b"mid", "é".encode(), None]
    assert loaded.function("abi_version")() == 1 and loaded.function("cpu_lacks")() is None
    text = (folder / "classes.h").read_text()
    assert "#define CLASSES_CHILDREN 2\n" in text and "CLASSES_PREDICT_PROBA_COLUMNS 3\n" in text
    assert "#define NODES_CHILDREN -1\n" in (folder / "nodes.h").read_text()
    # `class` is a word of C++.
    assert "const int32_t *word;" in text and "const float *input_1; /* nodes x 3, class */" in text
    for number, name in re.findall(r"CLASSES_(?:ERROR_\w+|OK) = (\d+),? /\* (.*) \*/", text):
        assert loaded.function("message")(int(number)) != b"no such error code", name
    assert loaded.function("message")(27) == loaded.function("message")(-1) == b"no such error code"
    assert loaded.function("open")(-1) is None


def _two() -> dict[str, Any]:
    """Two structures of two nodes."""
    word = np.array([1, 2, 3, -1], np.int32)
    return {
        "starts": np.array([0, 2, 4]), "first": np.array([0, 0, 1, 1, 2], np.int32),
        "child": np.array([0, 2], np.int32), "inputs": {"word": word, "class": np.ones((4, 3), np.float32)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"starts": np.array([0, 3, 2])}, 20, None),
        ({"first": np.array([0, 0, 1, 1, 3], np.int32)}, 20, None),
        ({"child": np.array([0, 3], np.int32)}, 21, (1, 1, -1)),
        ({"child": np.array([0, 1], np.int32)}, 22, (1, 1, -1)),
        (
            {"first": np.array([0, 0, 3, 3, 3], np.int32), "child": np.zeros(3, np.int32)},
            23,
            (0, 1, -1),
        ),
        ({"inputs": {"word": np.array([1, 2, 9, 3], np.int32)}}, 24, (1, 0, 0)),
    ],
)
def test_errors_tell_the_place(
    change: dict[str, Any], code: int, place: tuple[int, ...] | None, folder: Path
) -> None:
    loaded, given = Loaded(folder, "classes"), _two()
    given.update(change, inputs={**given["inputs"], **change.get("inputs", {})})
    for end, width in (("readout", 5), ("predict_proba", 3)):
        out = np.zeros((2, width))
        found, _, error = loaded.call(end, Structures(**given), ["word", "class"], out)
        assert found == code
        if place is not None:
            assert (error.structure, error.node, error.input) == place


def test_room_and_wrong_arguments(folder: Path) -> None:
    loaded, given = Loaded(folder, "classes"), Structures(**_two())
    names = ["word", "class"]
    for end in ("readout", "predict_proba"):
        code, results, _ = loaded.call(end, given, names, np.zeros((1, 5)))
        assert (code, results) == (25, 2)
        code, results, _ = loaded.call(end, given, names, np.zeros((9, 5)))
        assert (code, results) == (0, 2)
        code, _, error = loaded.call(end, given, names, np.zeros((2, 5)), -1)
        assert code == 1 and (error.structure, error.node, error.input) == (-1, -1, -1)
        function, out, room = loaded.function(end), np.zeros((2, 5)), ctypes.c_int64(2)
        arrays = [given.starts, given.first, given.child, given.inputs["word"], given.inputs["class"]]
        whole = [2, 4, 2, *(one.ctypes.data for one in arrays)]

        def batch(*changed: tuple[int, int], whole: list[int] = whole) -> Any:
            own = {**dict(enumerate(whole)), **dict(changed)}
            return (ctypes.c_int64 * len(own))(*own.values())

        to, count = ctypes.c_void_p(out.ctypes.data), ctypes.byref(room)
        assert function(loaded.model, batch(), to, count, 0, None) == 0
        for at in (0, 1, 2):
            assert function(loaded.model, batch((at, -1)), to, count, 0, None) == 1
        for at in (3, 4, 5, 6, 7):
            assert function(loaded.model, batch((at, 0)), to, count, 0, None) == 1
        assert function(None, batch(), to, count, 0, None) == 1
        assert function(loaded.model, None, to, count, 0, None) == 1
        assert function(loaded.model, batch(), None, count, 0, None) == 1
        assert function(loaded.model, batch(), to, None, 0, None) == 1
        room.value = -1
        assert function(loaded.model, batch(), to, count, 0, None) == 1


def test_no_structures(folder: Path) -> None:
    loaded = Loaded(folder, "classes")
    inputs = {"word": np.zeros(0, np.int32), "class": np.zeros((0, 3), np.float32)}
    nothing = Structures(np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(0, np.int32), inputs)
    for end in ("readout", "predict_proba"):
        assert loaded.call(end, nothing, ["word", "class"], np.zeros((0, 5)))[:2] == (0, 0)


PROGRAM = Path(__file__).with_name("recursive_program.c").read_text()
"""Written in what C and C++ have in common."""


@pytest.fixture(scope="module")
def expected(models: dict[str, Model]) -> list[float]:
    """What the program writes, computed in Python."""
    nodes = np.arange(200)
    owns = [[], [], [0, 1], [], [3, 2]]
    child = np.concatenate([np.array(owns[v % 5], np.int32) + v // 5 * 5 for v in nodes])
    first = np.concatenate([[0], np.cumsum([len(owns[v % 5]) for v in nodes])])
    word, vector = nodes * 7 % 9, ((nodes[:, None] + np.arange(3)) % 8 / 4).astype(np.float32)
    given = Structures(np.arange(0, 201, 5), first, child, {"word": word, "class": vector})
    shares = models["classes"].predict_proba(given)
    states = models["nodes"].predict(Structures(given.starts, first, child, {"word": word}))
    return [*shares.ravel().tolist(), *states.astype(float).ravel().tolist()]


def _program(folder: Path, compiler: str, kind: str, into: Path, *options: str) -> list[float]:
    source = into / ("program.cpp" if "+" in compiler else "program.c")
    source.write_text(PROGRAM)
    linked = [str(folder / f"lib{name}.a") for name in ("classes", "nodes")]
    if kind == "shared":
        linked = [f"-L{folder}", "-lclasses", "-lnodes", f"-Wl,-rpath,{folder}"]
    compile_program(compiler, [source], into / "program", f"-I{folder}", *options, *linked)
    environment = {"ASAN_OPTIONS": "detect_leaks=1"}
    return [float.fromhex(one) for one in run_program(into / "program", **os.environ, **environment).split()]


@pytest.mark.parametrize(("compiler", "kind"), [("gcc", "shared"), ("clang++", "static")])
def test_two_libraries_in_one_program(
    compiler: str, kind: str, folder: Path, expected: list[float], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    assert _program(folder, compiler, kind, tmp_path) == expected


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(
    sanitizer: str, models: dict[str, Model], expected: list[float], tmp_path: Path
) -> None:
    """In the executor, and in what is generated; kernels are compiled by TVM."""
    options = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O1"]
    for name in ("classes", "nodes"):
        write_library(models[name].package, tmp_path, name, options)
    assert _program(tmp_path, "gcc", "static", tmp_path, *options) == expected


def test_headers_stand_alone(folder: Path, tmp_path: Path) -> None:
    for compiler, name in itertools.product(("gcc", "g++"), ("classes", "nodes")):
        source = tmp_path / ("only.cpp" if "+" in compiler else "only.c")
        source.write_text(f'#include "{name}.h"\n#include "{name}.h"\nint main(void) {{ return 0; }}\n')
        compile_program(compiler, [source], tmp_path / "only", f"-I{folder}")


@pytest.mark.parametrize("name", ["classes", "value", "nodes"])
def test_examples(name: str, models: dict[str, Model], tmp_path: Path) -> None:
    """As their first lines say, and by the command."""
    models[name].save(tmp_path / f"{name}.tar")
    assert main(["export", str(tmp_path / f"{name}.tar"), "-o", str(tmp_path / "lib")]) == 0
    lib = tmp_path / "lib"
    command = re.search(r"cc (example\.c lib.*\.a .*)", (lib / "example.c").read_text())
    assert command is not None
    subprocess.run(["gcc", *C_OPTIONS, *command[1].split()], cwd=lib, check=True)
    lines = subprocess.run([lib / "example"], capture_output=True, text=True, check=True).stdout.splitlines()
    inputs = {"word": np.zeros(3, int), "class": np.zeros((3, 3))}
    chain = Structures(
        np.array([0, 3]), np.array([0, 0, 1, 2]), np.array([0, 1]),
        {key: inputs[key] for key in _names(models[name])},
    )  # fmt: skip
    function = {"classes": "predict_class"}.get(name, "predict")
    wanted = in_python(models[name], function, chain)
    found = [[float(one) for one in line.split()] for line in lines]
    np.testing.assert_allclose(found, wanted.reshape(len(wanted), -1), rtol=1e-5)


def test_names_of_inputs() -> None:
    """Those that are no names in C, or words of it, get others."""

    class Entry:
        inputs = tuple(
            type("One", (), {"name": name})() for name in ("x", "a b", "int", "first", "é", "NULL", "y2")
        )

    found = input_names(Entry())  # type: ignore[arg-type]
    assert found == ["x", "input_1", "input_2", "input_3", "input_4", "input_5", "y2"]
