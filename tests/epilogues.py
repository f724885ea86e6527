"""Output specifications as front ends make them, and the native code that finishes their scores."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, Rule, fields_of
from hbtvm.runtime.native.epilogues.select import epilogue_of
from hbtvm.runtime.native.objects.build import OPTIONS

NATIVE = Path(__file__).resolve().parents[1] / "hbtvm" / "native"
FLAGS = (*OPTIONS, "-shared", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")

TABLES = {
    "int64": np.array([7, -2, 9, 4, 1]),
    "int32": np.arange(5, dtype=np.int32),
    "int8": np.array([3, 1, 2, 0, -7], np.int8),
    "uint16": np.array([1, 2, 3, 60000, 0], np.uint16),
    "float64": np.array([0.5, -1.0, np.inf, 2.0, 3.0]),
    "float32": np.array([0.5, -1.0, 1e30, 2.0, 3.0], np.float32),
    "bool": np.array([False, True]),
    "text": np.array(["a", "bcd", "déjà", "", "xy"]),
    "bytes": np.array([b"no", b"yes", b"perhaps", b"x", b""]),
    "object": np.array(["a", None, 3, (1, 2), "e"], dtype=object),
}
"""Labels of each type that models may have."""

INVERSES: dict[str, Any] = {
    "standard": (("multiply", (2.5,)), ("add", (-3.0,))),
    "minmax": (("subtract", (0.25,)), ("divide", (0.3,)), ("column", ())),
    **{
        name: ((name, ()),)
        for name in (
            *("log", "log1p", "log2", "log10", "exp", "exp2", "expm1", "sqrt", "cbrt", "arcsinh", "arctan"),
            *("tanh", "sinh", "cosh", "sin", "cos", "tan", "negative", "positive", "floor", "ceil", "rint"),
            *("trunc", "sign", "square", "absolute", "fabs", "reciprocal", "deg2rad", "rad2deg"),
            *("degrees", "radians"),
        )
    },
}
"""What may be done to responses behind a model."""


EDGES = [
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    1e-300,
    -1e-300,
    1e300,
    -1e300,
    5e-324,
    88.7,
    -88.8,
    745.2,
    -745.2,
]
"""Scores, and powers of e, that are unlike others."""


def compiled(folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """Return the library of the native epilogues, compiled with some more flags."""
    made = folder / f"epilogue{len(list(folder.iterdir()))}.so"
    subprocess.run(
        [
            compiler,
            *FLAGS,
            *flags,
            f"-I{NATIVE}",
            str(NATIVE / "epilogue/epilogue.c"),
            "-lm",
            "-o",
            str(made),
        ],
        check=True,
    )
    return made


class Finisher:
    """Calls `hbtvm_finish` of a library."""

    def __init__(self, path: Path) -> None:
        self._finish = ctypes.CDLL(str(path)).hbtvm_finish
        self._finish.restype = ctypes.c_int64
        self._finish.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
            ctypes.c_void_p,
        ]

    def run(self, epilogue: Epilogue, raw: np.ndarray, gap: int = 0) -> tuple[int, Any]:
        """Return what the function returns, and the output of raw scores that are `gap` numbers apart."""
        n, width = raw.shape
        rows = np.full((n, width + gap), np.nan)
        rows[:, :width] = raw
        # The end of the last row's scores is the end of the memory.
        scores = rows.ravel()[: n * (width + gap) - gap].copy()
        results, fields = epilogue.results(n), fields_of(epilogue)
        assert results.nbytes == n * epilogue.row_bytes
        out = np.full(results.nbytes, 0xA5, np.uint8)
        missing = self._finish(ctypes.addressof(fields), scores.ctypes.data, width + gap, n, out.ctypes.data)
        made = out.view(results.dtype).reshape(results.shape)
        return missing, epilogue.output(made) if missing < 0 else None


def spec_of(kind: Any, n_outputs: int, **values: Any) -> OutputSpec:
    """Return a specification that has been through a package's JSON."""
    return OutputSpec(kind, n_outputs, **values)


def forests() -> Iterator[OutputSpec]:
    """Yield specifications of models whose outputs follow from raw scores."""
    yield from _regressors()
    yield from _of_two_classes()
    yield from _of_several_classes()
    yield from _others()


def _regressors() -> Iterator[OutputSpec]:
    for dtype, transform, count in itertools.product(
        ("float32", "float64"),
        ("identity", "sigmoid", "exp", "softplus", "signed_square", "hinge"),
        (1, 3),
    ):
        values: dict[str, Any] = {"dtype": dtype, "transform": transform, "outputs": ("raw",)}
        yield spec_of("booster", count, **values, raw_factor=4.0 if dtype == "float64" else 1.0)
        if count == 1:
            yield spec_of("regressor", count, **values, keeps_axis=True)
    for dtype, transform in itertools.product(("float32", "float64"), ("softmax", "class_index")):
        yield spec_of("booster", 3, dtype=dtype, transform=transform, outputs=("raw",))
        yield spec_of("booster", 19, dtype=dtype, transform=transform, outputs=("raw",))
    for dtype, inverse in itertools.product(("float32", "float64"), INVERSES.values()):
        yield spec_of("regressor", 1, dtype=dtype, inverse=inverse)
    several = (("multiply", (2.0, 0.3, 1.0)), ("add", (1.0, -1.0, 1e9)), ("expm1", ()))
    yield spec_of("regressor", 3, inverse=several)
    yield spec_of("regressor", 3, dtype="float32", inverse=several)


def _of_two_classes() -> Iterator[OutputSpec]:
    for dtype, transform, rule in itertools.product(
        ("float32", "float64"),
        ("identity", "sigmoid", "hinge", "modified_huber", "softplus"),
        ("raw_positive", "raw_not_negative", "above_half", "argmax"),
    ):
        if dtype == "float32" and transform == "modified_huber":
            continue
        yield spec_of(
            "classifier", 1, dtype=dtype, transform=transform, outputs=("label", "proba", "raw", "decision"),
            classes=(TABLES["int64"][:2],), label_rule=rule, scale=2.0 if rule == "argmax" else 1.0,
        )  # fmt: skip
    for table in TABLES.values():
        yield spec_of("classifier", 1, outputs=("label",), classes=(table[:2],), label_rule="raw_positive")
    yield spec_of(
        "classifier", 1, outputs=("label", "proba"), classes=(TABLES["text"][:1],), label_rule="argmax"
    )


def _of_several_classes() -> Iterator[OutputSpec]:
    for dtype, transform, rule, count in itertools.product(
        ("float32", "float64"),
        ("identity", "softmax", "sigmoid", "one_vs_rest", "modified_huber", "class_index"),
        ("raw_argmax", "argmax"),
        (3, 5),
    ):
        if dtype == "float32" and transform in ("one_vs_rest", "modified_huber"):
            continue
        yield spec_of(
            "classifier", count, dtype=dtype, transform=transform,
            outputs=("label", "proba", "raw", "decision"), classes=(TABLES["int32"][:count],),
            label_rule=rule,
        )  # fmt: skip
    for name, table in TABLES.items():
        if name != "bool":
            yield spec_of("classifier", 5, outputs=("label", "proba"), classes=(table,), label_rule="argmax")
    wide = np.array([f"class {i}" for i in range(300)])
    for transform in ("softmax", "one_vs_rest", "modified_huber"):
        yield spec_of(
            "classifier", 300, transform=transform, outputs=("label", "proba"), classes=(wide,),
            label_rule="argmax",
        )  # fmt: skip


def _others() -> Iterator[OutputSpec]:
    for names in (("text", "int64"), ("bytes", "bytes"), ("int8", "bool", "int64"), ("object", "text")):
        tables = tuple(TABLES[name][: 2 + i] for i, name in enumerate(names))
        yield spec_of(
            "classifier", sum(map(len, tables)), outputs=("label", "proba"), classes=tables,
            label_rule="argmax",
        )  # fmt: skip
    for count, dtype in itertools.product((1, 4), ("int64", "float64")):
        yield spec_of(
            "classifier", count, outputs=("label", "decision"), label_rule="each_raw_positive",
            label_dtype=dtype,
        )  # fmt: skip
        yield spec_of(
            "classifier", count, transform="sigmoid", dtype="float32", outputs=("label", "proba", "raw"),
            label_rule="each_above_half", label_dtype=dtype,
        )  # fmt: skip
    for scale in (0.0, 512.5):
        yield spec_of(
            "anomaly", 1, transform="isolation", scale=scale, outputs=("label", "decision", "score"),
            label_rule="side", offset=-0.5,
        )  # fmt: skip


def columns() -> Iterator[OutputSpec]:
    """Yield specifications of kernels that compute outputs whole; their first column is no output's."""

    def of(width: int, *, kind: str = "classifier", outputs: Sequence[str] = (), **values: Any) -> OutputSpec:
        return spec_of(kind, width, transform="columns", outputs=tuple(outputs), **values)

    for name, table in TABLES.items():
        slices = {"index": (1, 2), "proba": (2, 2 + len(table)), "finite": (2 + len(table), 3 + len(table))}
        yield of(3 + len(table), outputs=("label", "proba"), classes=(table,), slices=slices)
        if name != "text":
            tables = (TABLES["text"], table)
            slices = {
                "index": (1, 3),
                "proba": (3, 8 + len(table)),
                "decision": (8 + len(table), 9 + len(table)),
            }
            outputs = ("label", "proba", "decision")
            width = 9 + len(table)
            if table.dtype == object:
                tables = tables[::-1]
            yield of(width, outputs=outputs, classes=tables, slices=slices, keeps_axis=True)
    for dtype, keeps_axis, width in itertools.product((None, "int64", "float64"), (False, True), (1, 3)):
        slices = {
            "index": (1, 1 + width),
            "proba": (1 + width, 2 + width),
            "decision": (2 + width, 4 + width),
        }
        outputs = ("label", "proba", "decision")
        yield of(4 + width, outputs=outputs, slices=slices, label_dtype=dtype, keeps_axis=keeps_axis)
    for dtype, width in itertools.product((None, "int32", "int64", "float32", "float64"), (1, 3)):
        slices = {"response": (1, 1 + width), "decision": (1 + width, 2 + width), "score": (0, 1)}
        outputs = ("decision", "score")
        yield of(2 + width, kind="clusterer", outputs=outputs, slices=slices, label_dtype=dtype)
    for inverse in INVERSES.values():
        yield of(2, kind="regressor", slices={"response": (1, 2)}, inverse=inverse)
    for count in (2, 3, 5):
        slices = {"index": (1, 2), "pairs": (2, 2 + count * (count - 1) // 2)}
        table = TABLES["text"][:count]
        yield of(slices["pairs"][1], outputs=("label", "proba"), classes=(table,), slices=slices)


def ordinals(x: np.ndarray) -> np.ndarray:
    """Integers that are one apart for neighbouring floats."""
    bits = x.view(np.int32 if x.dtype == np.float32 else np.int64)
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)


def assert_same(found: Any, expected: Any, ulp: int, unit: float = 0.0) -> None:
    """Assert the same types and shapes, and floats within some units in the last place.

    Parameters
    ----------
    unit
        Where results are differences of numbers, the largest of these: their units count.
    """
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, ulp, unit)
        return
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if expected.dtype.kind != "f" or not ulp:
        np.testing.assert_array_equal(found, expected)
        return
    missing = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), missing)
    found, expected = found[~missing], expected[~missing]
    # Infinities are neighbours of the largest numbers here.
    off = np.abs(ordinals(found) - ordinals(expected))
    with np.errstate(invalid="ignore"):
        close = np.abs(found - expected) <= ulp * unit * np.finfo(expected.dtype).eps
    off[close] = 0
    assert not off.size or off.max() <= ulp, f"{off.max()} units in the last place"


def scores_of(spec: OutputSpec, n: int, seed: int = 0) -> np.ndarray:
    """Random raw scores that such a model may have: many ties, some huge, tiny, or not finite."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(n, spec.n_outputs)) * rng.choice([1e-3, 1.0, 30.0], (n, 1))
    some = rng.random((n, 1)) < 0.3
    raw = np.where(some, np.round(raw * 2) / 2, raw)
    odd = rng.random(raw.shape) < 0.05 * (rng.random((n, 1)) < 0.5)
    raw[odd] = rng.choice(EDGES, odd.sum())
    if spec.transform == "isolation":
        raw = np.abs(raw) * 100
    for name in ("index", "pairs"):
        if name in spec.slices and (name == "pairs" or spec.classes):
            first, last = spec.slices[name]
            if name == "index":
                counts = [len(labels) for labels in spec.classes]
                raw[:, first:last] = rng.integers(0, counts, (n, last - first))
            else:
                raw[:, first:last] = rng.uniform(1e-7, 1 - 1e-7, (n, last - first))
    return raw


def _run_all(path: str) -> None:
    """Every epilogue once, in a process that sanitizers watch."""
    finisher = Finisher(Path(path))
    for spec in (*forests(), *columns()):
        for output in (None, *spec.outputs):
            found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
            assert found is not None
            for n, gap in ((1, 0), (7, 0), (7, 2)):
                raw = scores_of(spec, n, seed=n)
                assert finisher.run(found, raw, gap)[0] == -1
                for bad in (np.nan, np.inf, 2.0**63, -(2.0**64), 2.0**31, -(2.0**31) - 1):
                    raw[-1] = bad
                    without_label = found.rule is Rule.POSITION
                    assert finisher.run(found, raw, gap)[0] == (n - 1 if without_label else -1)
    print("done")


if __name__ == "__main__":
    _run_all(sys.argv[1])
