"""Native epilogues: numpy's methods of `OutputSpec` are the oracle."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm.errors import InputError
from hbtvm.graph import output_columns
from hbtvm.graph.output import OutputSpec
from hbtvm.runtime.native import epilogue as native
from hbtvm.runtime.native.epilogue import EpilogueFields
from hbtvm.runtime.native.epilogues import epilogue_of, epilogue_of_columns
from tests.epilogues import NATIVE, TABLES, Finisher, columns, compiled, forests, spec_of

OUTPUTS = (None, "label", "proba", "raw", "decision", "score")
FORESTS, COLUMNS = list(forests()), list(columns())
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


@pytest.fixture(scope="session")
def finisher(tmp_path_factory: pytest.TempPathFactory) -> Finisher:
    return Finisher(compiled(tmp_path_factory.mktemp("epilogue")))


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


def ordinals(x: np.ndarray) -> np.ndarray:
    """Integers that are one apart for neighbouring floats."""
    bits = x.view(np.int32 if x.dtype == np.float32 else np.int64)
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)


def assert_same(found: Any, expected: Any, ulp: int) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, ulp)
        return
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if expected.dtype.kind != "f" or not ulp:
        np.testing.assert_array_equal(found, expected)
        return
    missing = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), missing)
    # Infinities are neighbours of the largest numbers here.
    off = np.abs(ordinals(found[~missing]) - ordinals(expected[~missing]))
    assert not off.size or off.max() <= ulp, f"{off.max()} units in the last place"


def ulp_of(spec: OutputSpec, output: str | None) -> int:
    """Units in the last place that numpy's functions and ours are apart, both within their own errors."""
    if spec.inverse:
        return 4 if spec.dtype == "float32" else 3
    if output in ("raw", "decision") or spec.transform in ("identity", "class_index"):
        return (
            0 if spec.transform != "isolation" and (output, spec.transform) != ("proba", "class_index") else 2
        )
    return 3 if spec.transform in ("softmax", "one_vs_rest", "class_index") else 2


def named(spec: OutputSpec) -> str:
    return "-".join(
        (
            spec.kind, spec.transform, spec.dtype, str(spec.n_outputs), str(spec.label_rule),
            str(spec.label_dtype), *(labels.dtype.str for labels in spec.classes), *(name for name, _ in spec.inverse), *spec.slices,
        )
    )  # fmt: skip


@pytest.mark.parametrize("spec", FORESTS, ids=named)
def test_scores(spec: OutputSpec, finisher: Finisher) -> None:
    offered = [None, *spec.outputs]
    for output in offered:
        found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
        assert found is not None, output
        for n in (1, 2, 7, 300):
            raw = scores_of(spec, n, seed=n)
            with np.errstate(all="ignore"):
                expected = spec.maker(output)(raw.copy())
            if spec.transform == "isolation" and output in (None, "label"):
                # The last bit of a power is the platform's.
                near = np.abs(spec.score(raw) - spec.offset) < 1e-15
                raw, expected = raw[~near], expected[~near]
            for gap in (0, 3):
                missing, given = finisher.run(found, raw, gap)
                assert missing == -1
                assert_same(given, expected, ulp_of(spec, output))


@pytest.mark.parametrize("spec", COLUMNS, ids=named)
def test_columns(spec: OutputSpec, finisher: Finisher) -> None:
    for output in (None, *spec.outputs):
        found = epilogue_of(spec, output, n_outputs=spec.n_outputs)
        assert found is not None, output
        for n in (1, 2, 7, 300):
            raw = scores_of(spec, n, seed=n)
            with np.errstate(all="ignore"):
                expected = spec.maker(output)(raw.copy())
            for gap in (0, 2):
                missing, given = finisher.run(found, raw, gap)
                assert missing == -1
                if "pairs" in spec.slices and output == "proba":
                    np.testing.assert_allclose(given, expected, rtol=1e-12, strict=True)
                else:
                    assert_same(given, expected, ulp_of(spec, None) if spec.inverse else 0)


def test_coupling_of_nan(finisher: Finisher) -> None:
    spec = next(one for one in COLUMNS if "pairs" in one.slices and len(one.classes[0]) == 3)
    found = epilogue_of(spec, "proba", n_outputs=spec.n_outputs)
    assert found is not None
    raw = scores_of(spec, 5)
    raw[2, 3] = np.nan
    with np.errstate(all="ignore"):
        expected = spec.maker("proba")(raw.copy())
    assert_same(finisher.run(found, raw)[1], expected, 8)


@pytest.mark.parametrize("name", TABLES)
def test_positions_without_a_label(name: str, finisher: Finisher) -> None:
    """The row is told; positions below 0 count from the end, as numpy's do."""
    table = TABLES[name]
    spec = spec_of(
        "classifier", 1, transform="columns", outputs=("label",), classes=(table,), slices={"index": (0, 1)}
    )
    found = epilogue_of(spec, None, n_outputs=1)
    assert found is not None
    raw = np.arange(-len(table), len(table), dtype=np.float64)[:, None]
    missing, given = finisher.run(found, raw)
    assert missing == -1
    np.testing.assert_array_equal(given, spec.maker(None)(raw))
    for bad in (len(table), -len(table) - 1, np.nan, np.inf, -np.inf, 1e300):
        rows = np.vstack([raw, [[bad]], raw])
        assert finisher.run(found, rows)[0] == len(raw)
        with pytest.raises(InputError, match="no label"), np.errstate(all="ignore"):
            spec.maker(None)(rows)


@pytest.mark.parametrize("label_dtype", [None, "rows", "float32", "int64"])
@pytest.mark.parametrize("rows", ["float32", "float64"])
def test_transformers(label_dtype: str | None, rows: str, finisher: Finisher) -> None:
    raw = np.array([[1.5, 1e300, -2.0], [np.nan, 0.1, np.inf]])
    found = epilogue_of_columns(label_dtype, rows, 3)
    with np.errstate(all="ignore"):
        expected = output_columns.columns(label_dtype, rows)(raw)
    missing, given = finisher.run(found, raw)
    assert missing == -1
    assert_same(given, expected, 0)


def test_casts_to_whole_numbers(finisher: Finisher) -> None:
    """As processors of x86 cast: what the type does not hold becomes its least number."""
    raw = np.array(
        [[2.0**63], [-(2.0**63)], [2.0**31], [-(2.0**31) - 0.5], [np.nan], [-np.inf], [2.9], [-2.9]]
    )
    for dtype in ("int64", "int32"):
        spec = spec_of("clusterer", 1, transform="columns", slices={"response": (0, 1)}, label_dtype=dtype)
        found = epilogue_of(spec, None, n_outputs=1)
        assert found is not None
        least = np.iinfo(dtype).min
        wide = dtype == "int64"
        expected = [least, least, 2**31 if wide else least, -(2**31), least, least, 2, -2]
        assert finisher.run(found, raw)[1].tolist() == expected


def test_isolation_forests_are_left_to_numpy() -> None:
    spec = next(one for one in FORESTS if one.transform == "isolation")
    for output in (None, "label", "decision"):
        assert epilogue_of(spec, output, n_outputs=1) is None
        assert epilogue_of(spec, output, n_outputs=1, exported=True) is not None
    assert epilogue_of(spec, "score", n_outputs=1) is not None


def test_outputs_that_there_are_not() -> None:
    """Python's methods raise the error."""
    for spec in (*FORESTS, *COLUMNS):
        for output in OUTPUTS[1:]:
            if output not in spec.outputs:
                made = spec.maker(output)  # type: ignore[arg-type]
                if epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True) is None:
                    with pytest.raises(InputError, match="has no"):
                        made(np.zeros((1, spec.n_outputs)))


def test_other_specifications_are_left_to_numpy() -> None:
    labels = TABLES["int64"][:3]
    odd = [
        spec_of("classifier", 3, dtype="float32", transform="one_vs_rest", outputs=("label",),
                classes=(labels,), label_rule="raw_argmax"),
        spec_of("classifier", 2, outputs=("label",), label_rule="each_raw_positive", label_dtype="bool"),
        spec_of("classifier", 3, outputs=("label",), label_rule="each_raw_positive", classes=(labels,)),
        spec_of("clusterer", 1, transform="columns", slices={"response": (0, 1)}, label_dtype="int16"),
        spec_of("regressor", 3, inverse=(("add", (1.0, 2.0)),)),
        spec_of("regressor", 3, keeps_axis=True),
    ]  # fmt: skip
    for spec in odd:
        assert epilogue_of(spec, None, n_outputs=spec.n_outputs) is None
    assert epilogue_of(FORESTS[0], None, n_outputs=0) is None


NUMBERS = st.one_of(
    st.sampled_from(EDGES), st.integers(-3, 3).map(float), st.floats(), st.floats(-40.0, 40.0, width=16)
)
RULES = [one for one in FORESTS if one.label_rule is not None and one.n_outputs <= 5]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_any_scores(finisher: Finisher, data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(RULES))
    row = st.lists(NUMBERS, min_size=spec.n_outputs, max_size=spec.n_outputs)
    raw = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    if spec.transform == "isolation":
        raw = np.abs(raw)
    output = data.draw(st.sampled_from(spec.outputs))
    found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
    assert found is not None
    with np.errstate(all="ignore"):
        expected = spec.maker(output)(raw.copy())
        shares = spec.proba(raw) if "proba" in spec.outputs and len(spec.classes) < 2 else raw
    _, given = finisher.run(found, raw, data.draw(st.sampled_from((0, 1))))
    if output == "label" and _are_near_ties(shares, spec):
        return
    assert_same(given, expected, ulp_of(spec, output))


def _are_near_ties(shares: np.ndarray, spec: OutputSpec) -> bool:
    """Whether the last bit of a function decides about a label: probabilities are almost, or just, equal."""
    if spec.transform == "isolation":
        return True
    if not (spec.label_rule or "").endswith(("argmax", "half")) or spec.transform == "identity":
        return False
    if shares.shape[1] == 1:
        shares = np.hstack([1 - shares, shares])
    order = np.sort(shares, axis=1)
    top, next_one = order[:, -1], order[:, -2]
    near = np.finfo(shares.dtype).eps * 8
    return bool(np.any((top != next_one) & (np.abs(top - next_one) <= near)))


def test_structures_agree(tmp_path: Path) -> None:
    """ctypes' structure has C's layout, and Python's numbers are those of the header."""
    header = (NATIVE / "epilogue.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"\bHBTVM_(\w+) = (\d+)", header)}
    for kind in (native.Type, native.Transform, native.Rule):
        for one in kind:
            assert numbers.pop(one.name) == one, one
    for i, name in enumerate(native.ARITHMETIC):
        assert numbers.pop(name.upper()) == i
    library = numbers.pop("STEP_LIBRARY")
    for name, value in numbers.items():
        assert native.FUNCTIONS[name.removeprefix("STEP_").lower()] == value
    assert native.FUNCTIONS["log"] == library
    assert f"HBTVM_MOST_COUPLED {native.MOST_COUPLED}\n" in header

    source = ['#include "epilogue.h"', "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    source += [
        f'printf("%zu\\n", offsetof(struct epilogue, {name}));'
        for name in [field[0] for field in EpilogueFields._fields_]
    ]
    source += ['printf("%zu\\n", sizeof(struct epilogue)); return 0; }']
    (tmp_path / "layout.c").write_text("\n".join(source))
    program = tmp_path / "layout"
    subprocess.run(["gcc", f"-I{NATIVE}", str(tmp_path / "layout.c"), "-o", str(program)], check=True)
    found = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    own = [getattr(EpilogueFields, field[0]).offset for field in EpilogueFields._fields_]
    assert [int(one) for one in found] == [*own, ctypes.sizeof(EpilogueFields)]


def test_sanitizers(tmp_path: Path) -> None:
    """No undefined behaviour, and no byte outside the scores, results and tables."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    made = compiled(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.test_epilogues", str(made)],
        cwd=root,
        env={
            **os.environ,
            "LD_PRELOAD": str(Path(library).resolve()),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": str(root),
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"


def _run_all(path: str) -> None:
    """Every epilogue once, in a process that sanitizers watch."""
    finisher = Finisher(Path(path))
    for spec in (*FORESTS, *COLUMNS):
        for output in (None, *spec.outputs):
            found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
            assert found is not None
            for n, gap in ((1, 0), (7, 0), (7, 2)):
                raw = scores_of(spec, n, seed=n)
                assert finisher.run(found, raw, gap)[0] == -1
                if "index" not in spec.slices or not spec.classes:
                    continue
                raw[-1] = np.nan
                if found.rule is native.Rule.POSITION:
                    assert finisher.run(found, raw, gap)[0] == n - 1
    print("done")


if __name__ == "__main__":
    _run_all(sys.argv[1])
