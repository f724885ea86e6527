"""Output specifications as front ends make them, and the native code that finishes their scores."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import codec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators import formulas
from hbtvm.operators.base import Input, Node, in_order
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.pointwise import FUNCTIONS, Elementwise, apply
from hbtvm.operators.shapes import Select, concat, reduce, select
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, Rule, fields_of
from hbtvm.runtime.native.epilogues.select import epilogue_of
from hbtvm.runtime.native.functions import NUMBERS
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

Nodes = dict[str, Node]
"""Outputs by name."""


def _softplus(x: Node) -> Node:
    return apply("log1p", apply("exp", x))


def _positive(x: Node) -> Node:
    return apply("greater", x, 0.0)


def _position(x: Node) -> Node:
    return reduce("argmax", x)


def _identity(x: Node) -> Node:
    return x


RESPONSES: dict[str, Callable[[Node], Node]] = {
    "identity": _identity,
    "sigmoid": formulas.sigmoid,
    "float32_sigmoid": formulas.float32_sigmoid,
    "scaled_sigmoid": partial(formulas.sigmoid, scale=2.0),
    "exp": partial(apply, "exp"),
    "softplus": _softplus,
    "signed_square": formulas.signed_square,
    "hinge": _positive,
    "modified_huber": formulas.modified_huber,
}
"""Responses to one score, each by itself."""

_FLOAT64 = ("scaled_sigmoid", "softplus", "modified_huber")
"""Those that no library computes in float32."""

INVERSES: dict[str, tuple[tuple[str, Any], ...]] = {
    "standard": (("multiply", 2.5), ("add", -3.0)),
    "minmax": (("subtract", 0.25), ("divide", 0.3)),
    "radians": (("multiply", np.pi / 180),),
    **{name: ((name, None),) for name in FUNCTIONS if name in NUMBERS},
}
"""What may be done to responses behind a model: functions with their constants."""


def undone(x: Node, steps: Sequence[tuple[str, Any]], dtype: str) -> Node:
    """Responses behind steps, rounded to float32 after each if that is their type."""
    for name, constants in steps:
        x = rounded(apply(name, x) if constants is None else apply(name, x, constants), dtype)
    return x


def rounded(x: Node, dtype: str) -> Node:
    """Numbers in a type."""
    return apply("round_float32", x) if dtype == "float32" else x


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


def spec_of(kind: Any, n_outputs: int, nodes: Nodes, *classes: np.ndarray, **values: Any) -> OutputSpec:
    """Return a specification whose nodes have been through a package's JSON."""
    found = codec.read(OutputSpec, codec.write(OutputSpec(kind, n_outputs, nodes, **values)))
    return replace(found, classes=classes)


def forests() -> Iterator[OutputSpec]:
    """Yield specifications of models whose outputs follow from raw scores."""
    yield from _regressors()
    yield from _of_two_classes()
    yield from _of_several_classes()
    yield from _others()


def _regressors() -> Iterator[OutputSpec]:
    for dtype, function, count in itertools.product(("float32", "float64"), RESPONSES, (1, 3)):
        if dtype == "float32" and function in _FLOAT64:
            continue
        raw = rounded(Input(count), dtype)
        response = rounded(RESPONSES[function](raw), dtype)
        margin = raw if dtype == "float32" else apply("multiply", raw, 4.0)
        yield spec_of("booster", count, {"response": response, "raw": margin})
        yield spec_of("regressor", count, {"response": response}, keeps_axis=True)
    for dtype, count in itertools.product(("float32", "float64"), (3, 19)):
        raw = rounded(Input(count), dtype)
        for picked in (formulas.softmax, _position):
            yield spec_of("booster", count, {"response": rounded(picked(raw), dtype), "raw": raw})
    several = (("multiply", np.array([2.0, 0.3, 1.0])), ("add", np.array([1.0, -1.0, 1e9])), ("expm1", None))
    for dtype in ("float32", "float64"):
        for steps in INVERSES.values():
            yield spec_of("regressor", 1, {"response": undone(rounded(Input(1), dtype), steps, dtype)})
        yield spec_of("regressor", 3, {"response": undone(rounded(Input(3), dtype), several, dtype)})


def _of_two_classes() -> Iterator[OutputSpec]:
    labels = TABLES["int64"][:2]
    for dtype, function in itertools.product(("float32", "float64"), RESPONSES):
        if dtype == "float32" and function in _FLOAT64:
            continue
        raw = rounded(Input(1), dtype)
        response = rounded(RESPONSES[function](raw), dtype)
        proba = rounded(formulas.with_complement(response), dtype)
        rules = {
            "positive": apply("greater", raw, 0.0),
            "not_negative": apply("greater_equal", raw, 0.0),
            "half": apply("greater", response, 0.5),
            "likelier": formulas.likelier(response),
        }
        for index in rules.values():
            nodes = {"index": index, "proba": proba, "raw": raw, "decision": raw}
            yield spec_of("classifier", 1, nodes, labels)
    for table in TABLES.values():
        yield spec_of("classifier", 1, {"index": _positive(Input(1))}, table[:2])
    share = Input(1)
    yield spec_of("classifier", 1, {"index": _position(share), "proba": share}, TABLES["text"][:1])


def _of_several_classes() -> Iterator[OutputSpec]:
    functions: dict[str, Callable[[Node], Node]] = {
        "identity": _identity,
        "softmax": formulas.softmax,
        "sigmoid": formulas.sigmoid,
        "one_vs_rest": lambda x: formulas.shares(formulas.sigmoid(x)),
        "modified_huber": formulas.modified_huber,
    }
    wide = np.array([f"class {i}" for i in range(300)])
    for dtype, name, count in itertools.product(("float32", "float64"), functions, (3, 5, 300)):
        if dtype == "float32" and name in ("one_vs_rest", "modified_huber"):
            continue
        raw = rounded(Input(count), dtype)
        proba = rounded(functions[name](raw), dtype)
        saturated = dtype == "float32" and name == "sigmoid"  # the last bit decides about large scores
        for index in (_position(raw), _position(raw if saturated else proba)):
            nodes = {"index": index, "proba": proba, "raw": raw, "decision": raw}
            yield spec_of("classifier", count, nodes, TABLES["int32"][:count] if count < 300 else wide)
    for name, table in TABLES.items():
        if name != "bool":
            yield spec_of("classifier", 5, {"index": _position(Input(5)), "proba": Input(5)}, table)


def _others() -> Iterator[OutputSpec]:
    for names in (("text", "int64"), ("bytes", "bytes"), ("int8", "bool", "int64"), ("object", "text")):
        tables = tuple(TABLES[name][: 2 + i] for i, name in enumerate(names))
        shares = Input(sum(map(len, tables)))
        ends = [0, *itertools.accumulate(map(len, tables))]
        parts = [_position(select(shares, range(*run))) for run in itertools.pairwise(ends)]
        yield spec_of("classifier", shares.width, {"index": concat(parts), "proba": shares}, *tables)
    for count, dtype in itertools.product((1, 4), ("int64", "float64")):
        raw = Input(count)
        nodes: Nodes = {"index": _positive(raw), "decision": raw}
        yield spec_of("classifier", count, nodes, label_dtype=dtype)
        proba = rounded(formulas.float32_sigmoid(rounded(raw, "float32")), "float32")
        nodes = {"index": apply("greater", proba, 0.5), "proba": proba, "raw": rounded(raw, "float32")}
        yield spec_of("classifier", count, nodes, label_dtype=dtype)
    for mean in (0.0, 512.5):
        share = apply("divide", Input(1), mean) if mean else apply("multiply", Input(1), 0.0)
        score = apply("negative", apply("power", 2.0, apply("negative", share)))
        side = apply("subtract", 1.0, apply("multiply", apply("less", score, -0.5), 2.0))
        nodes = {"index": side, "score": score, "decision": apply("subtract", score, -0.5)}
        yield spec_of("anomaly", 1, nodes)


def columns() -> Iterator[OutputSpec]:
    """Yield specifications of kernels that compute outputs whole; their first column is no output's."""

    def of(kind: str, widths: dict[str, int], *classes: np.ndarray, **values: Any) -> OutputSpec:
        scores, first, nodes = Input(2 + sum(widths.values())), 1, dict[str, Node]()
        for name, width in widths.items():
            nodes[name] = select(scores, range(first, first + width))
            first += width
        return spec_of(kind, scores.width, nodes, *classes, finite=first, **values)

    for name, table in TABLES.items():
        yield of("classifier", {"index": 1, "proba": len(table)}, table)
        if name != "text":
            tables = (TABLES["text"], table)
            if table.dtype == object:
                tables = tables[::-1]
            widths = {"index": 2, "proba": 5 + len(table), "decision": 1}
            yield of("classifier", widths, *tables, keeps_axis=True)
    for dtype, keeps_axis, width in itertools.product((None, "int64", "float64"), (False, True), (1, 3)):
        widths = {"index": width, "proba": 1, "decision": 2}
        yield of("classifier", widths, label_dtype=dtype, keeps_axis=keeps_axis)
    for dtype, width in itertools.product((None, "int32", "int64", "float32", "float64"), (1, 3)):
        widths = {"response": width, "decision": 1, "score": 1}
        yield of("clusterer", widths, label_dtype=dtype)
    for count in (2, 3, 5):
        pairs = count * (count - 1) // 2
        scores = Input(2 + pairs)
        coupling = Coupling(select(scores, range(2, 2 + pairs)), count)
        nodes: Nodes = {"index": select(scores, [1]), "proba": coupling}
        yield spec_of("classifier", scores.width, nodes, TABLES["text"][:count])


def named(spec: OutputSpec) -> str:
    """A specification in short, for a test's name."""
    functions = [node.function for node in in_order(*spec.nodes.values()) if isinstance(node, Elementwise)]
    parts = [spec.kind, str(spec.n_outputs), str(spec.label_dtype), *dict.fromkeys(functions)]
    return "-".join((*parts, *(labels.dtype.str for labels in spec.classes)))


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
    with np.errstate(invalid="ignore", over="ignore"):
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
    if spec.kind == "anomaly":
        raw = np.abs(raw) * 100
    index, proba = spec.nodes.get("index"), spec.nodes.get("proba")
    if isinstance(index, Select) and spec.classes:
        counts = [len(labels) for labels in spec.classes]
        raw[:, index.indices] = rng.integers(0, counts, (n, len(counts)))
    if isinstance(proba, Coupling):
        raw[:, 2:] = rng.uniform(1e-7, 1 - 1e-7, (n, proba.x.width))
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
                    without_label = found.labels.size and not found.step.size and found.rule is Rule.VALUES
                    assert finisher.run(found, raw, gap)[0] == (n - 1 if without_label else -1)
    print("done")


if __name__ == "__main__":
    _run_all(sys.argv[1])
