"""Libraries for C in tests: written, compiled into programs, and called by `ctypes`."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.exporting.methods import Method, methods_of
from hbtvm.runtime.model import Model

SUFFIXES = {"float32": "f32", "float64": "f64"}
C_OPTIONS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


class Error(ctypes.Structure):
    """``NAME_error``."""

    _fields_ = (("code", ctypes.c_int), ("row", ctypes.c_int64), ("column", ctypes.c_int64))


class Loaded:
    """A shared library, called as C calls it.

    Parameters
    ----------
    path
        ``libNAME.so``.
    threads
        What the model is opened with.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        self.name = path.name.removeprefix("lib").removesuffix(".so")
        self.library = ctypes.CDLL(str(path))
        opened, text = self.function("open"), ctypes.c_char_p
        opened.restype = ctypes.c_void_p
        for end in ("message", "column_name", "output_name", "class_name", "cpu_lacks"):
            if hasattr(self.library, f"{self.name}_{end}"):
                self.function(end).restype = text
        self.model = ctypes.c_void_p(opened(threads))
        assert self.model.value

    def function(self, end: str) -> Any:
        """One of the library's functions."""
        return getattr(self.library, f"{self.name}_{end}")

    def call(
        self, end: str, rows: np.ndarray, out: np.ndarray, threads: int = 0, error: Error | None = None
    ) -> int:
        """Compute an output; returns the code."""
        return int(
            self.function(end)(
                self.model,
                ctypes.c_void_p(rows.ctypes.data),
                ctypes.c_int64(len(rows)),
                ctypes.c_void_p(out.ctypes.data),
                threads,
                ctypes.byref(error) if error is not None else None,
            )
        )

    def close(self) -> None:
        """Close the model."""
        self.function("close")(self.model)


def in_python(model: Model, method: Method, rows: np.ndarray) -> np.ndarray:
    """What the method returns in Python, in the form that C gives it."""
    if method.name == "predict_class":
        labels = model.predict(rows).reshape(len(rows), -1)
        tables = model._output.classes
        places = [{label: at for at, label in enumerate(table.tolist())} for table in tables]
        found = [[place[label] for place, label in zip(places, row, strict=True)] for row in labels.tolist()]
        return np.array(found, np.int64)
    called = {
        "predict_raw": lambda X: model.predict(X, "raw"),
        "predict_label": lambda X: model.predict(X, "label"),
        "contributions": lambda X: model.views["reasons"].predict(X),
    }
    result = called.get(method.name, getattr(model, method.name, None))(rows)
    if isinstance(result, list):
        result = np.concatenate(result, axis=1)
    return np.asarray(result)


def assert_same(model: Model, loaded: Loaded, rows: np.ndarray, threads: Sequence[int] = (1, 2)) -> None:
    """Compare all outputs for rows of both types with Python's, bit for bit."""
    methods, lacking = methods_of(model.package)
    assert methods and not lacking
    for method in methods:
        for at, dtype in enumerate(SUFFIXES):
            X = np.ascontiguousarray(rows, dtype)
            wanted = in_python(model, method, X).reshape(len(X), -1)
            epilogue = method.epilogues[at]
            assert wanted.dtype == epilogue.dtype, method.name
            for count in threads:
                out = np.zeros((len(X), epilogue.columns), epilogue.dtype)
                assert loaded.call(f"{method.name}_{SUFFIXES[dtype]}", X, out, count) == 0
                what = (method.name, dtype, len(X), count)
                if method.name == "decision_function" and model.package.output.kind == "anomaly":
                    # The power is C's, whose last bit is not numpy's.
                    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-15, err_msg=str(what))
                else:
                    assert out.tobytes() == wanted.tobytes(), what


def compile_program(compiler: str, sources: Sequence[Path], output: Path, *options: str) -> None:
    """Compile and link a program, without any warning."""
    standard = "-std=c++17" if "+" in compiler else "-std=c11"
    command = [
        compiler,
        standard,
        *C_OPTIONS,
        *map(str, sources),
        *options,
        "-lm",
        "-pthread",
        "-o",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run_program(path: Path, *arguments: str, **environment: str) -> str:
    """Run a program; returns what it wrote."""
    done = subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, timeout=120, env=environment or None
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}{done.stdout[-500:]}"
    return done.stdout
