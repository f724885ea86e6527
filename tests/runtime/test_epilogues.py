"""Native epilogues: numpy's methods of `OutputSpec` are the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.outputs import output_columns
from hbtvm.graph.outputs.arrays import Arrays
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.native.epilogues.select import epilogue_of, epilogue_of_columns
from tests.epilogues import (
    EDGES,
    TABLES,
    Finisher,
    assert_same,
    columns,
    compiled,
    forests,
    scores_of,
    spec_of,
)
from tests.models import ZOO

OUTPUTS = (None, "label", "proba", "raw", "decision", "score")
FORESTS, COLUMNS = list(forests()), list(columns())


@pytest.fixture(scope="session")
def finisher(tmp_path_factory: pytest.TempPathFactory) -> Finisher:
    return Finisher(compiled(tmp_path_factory.mktemp("epilogue")))


class Rounded(Arrays):
    """numpy's operations, but functions of float32 are the nearest numbers; numpy's own are up to 2.5 off."""

    def exp(self, x: Any) -> Any:
        return np.exp(x.astype(np.float64)).astype(x.dtype)

    def log1p(self, x: Any) -> Any:
        return np.log1p(x.astype(np.float64)).astype(x.dtype)


ROUNDED = Rounded(np)


def assert_like_numpy(found: Any, spec: OutputSpec, output: str | None, raw: np.ndarray) -> None:
    """Assert that an output is numpy's, within the errors of both's functions."""
    with np.errstate(all="ignore"):
        expected = spec.maker(output)(raw.copy())  # type: ignore[arg-type]
        # The complement of a probability, or what is left of an anomaly score.
        difference = output == "decision" or (output == "proba" and spec.n_outputs == 1)
        unit = (
            float(np.nanmax(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
            if difference
            else 0.0
        )
        assert_same(found, expected, ulp_of(spec, output), unit)
        if spec.dtype == "float32" and not spec.inverse:
            assert_same(found, spec.maker(output)(raw.copy(), ROUNDED), 1, unit)  # type: ignore[arg-type]


def ulp_of(spec: OutputSpec, output: str | None) -> int:
    """Units in the last place that numpy's functions and ours are apart, both within their own errors."""
    if output == "raw" or (output == "decision" and spec.transform != "isolation"):
        return 0
    if spec.transform in ("identity", "signed_square", "hinge", "modified_huber") and not spec.inverse:
        return 0
    if spec.transform == "class_index":
        return 5 if output == "proba" else 0
    if spec.dtype == "float32" or spec.transform == "softmax":
        return 5
    return 3 if spec.inverse or spec.transform == "one_vs_rest" else 2


def named(spec: OutputSpec) -> str:
    return "-".join(
        (
            spec.kind, spec.transform, spec.dtype, str(spec.n_outputs), str(spec.label_rule),
            str(spec.label_dtype), *(labels.dtype.str for labels in spec.classes),
            *(name for name, _ in spec.inverse), *spec.slices,
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
            if spec.transform == "isolation" and spec.scale and output in (None, "label"):
                # The last bit of a power is the platform's.
                with np.errstate(invalid="ignore"):
                    raw = raw[~(np.abs(spec.score(raw) - spec.offset) <= 1e-15)]
            for gap in (0, 3):
                missing, given = finisher.run(found, raw, gap)
                assert missing == -1
                assert_like_numpy(given, spec, output, raw)


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


@pytest.mark.parametrize("name", ZOO)
def test_models_of_libraries(name: str, finisher: Finisher) -> None:
    """All outputs of what front ends read, but labels and decisions of isolation forests, are computed."""
    graph = from_object(ZOO[name]())
    for spec in {graph.output, keep_second(graph, exact=False).output}:
        raw = scores_of(spec, 200)
        for output in (None, *spec.outputs):
            found = epilogue_of(spec, output, n_outputs=spec.n_outputs)
            if spec.transform == "isolation" and output != "score":
                assert found is None
                continue
            assert found is not None
            missing, given = finisher.run(found, raw)
            assert missing == -1
            assert_like_numpy(given, spec, output, raw)


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
        shares = spec.proba(raw) if "proba" in spec.outputs and len(spec.classes) < 2 else raw
    _, given = finisher.run(found, raw, data.draw(st.sampled_from((0, 1))))
    if output == "label" and _are_near_ties(shares, spec):
        return
    assert_like_numpy(given, spec, output, raw)


def _are_near_ties(shares: np.ndarray, spec: OutputSpec) -> bool:
    """Whether the last bit of a function decides about a label: probabilities are almost, or just, equal."""
    if spec.transform == "isolation":
        return True
    if not (spec.label_rule or "").endswith(("argmax", "half")) or spec.transform == "identity":
        return False
    near = np.finfo(shares.dtype).eps * 8
    if spec.label_rule == "each_above_half":
        return bool(np.any(np.abs(shares - 0.5) <= near))
    if shares.shape[1] == 1:
        shares = np.hstack([1 - shares, shares])
    order = np.sort(shares, axis=1)
    top, next_one = order[:, -1], order[:, -2]
    return bool(np.any(np.abs(top - next_one) <= near))
