"""Native epilogues: numpy's methods of `OutputSpec` are the oracle."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.outputs.output import Output, OutputSpec
from hbtvm.graph.outputs.output import columns as typed_columns
from hbtvm.operators.base import Input, Node, in_order
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.shapes import reduce, select
from hbtvm.runtime.native.epilogues.select import epilogue_of, epilogue_of_columns
from tests.epilogues import (
    EDGES,
    TABLES,
    Finisher,
    assert_same,
    columns,
    compiled,
    forests,
    named,
    scores_of,
    spec_of,
)
from tests.models import ZOO

FORESTS, COLUMNS = list(forests()), list(columns())


@pytest.fixture(scope="session")
def finisher(tmp_path_factory: pytest.TempPathFactory) -> Finisher:
    return Finisher(compiled(tmp_path_factory.mktemp("epilogue")))


EXACT = ("add", "subtract", "multiply", "divide", "minimum", "maximum", "greater", "greater_equal", "less")
EXACT = (*EXACT, "negative", "sign", "round_float32", "floor", "ceil", "rint", "trunc", "absolute", "square")


def assert_like_numpy(found: Any, spec: OutputSpec, output: Output | None, raw: np.ndarray) -> None:
    """Assert that an output is numpy's, within the errors of both's functions."""
    with np.errstate(all="ignore"):
        expected = spec.compute(output, raw.copy())
    # The complement of a probability, or what is left of an anomaly score.
    difference = output == "decision" or (output == "proba" and spec.n_outputs == 1)
    unit = float(np.nanmax(np.abs(expected), initial=1.0, where=np.isfinite(expected))) if difference else 0.0
    if spec.dtype_of(spec.name_of(output)) == "float32":
        # Of powers near the largest, the reciprocals are subnormal, or 0.
        unit = max(unit, 1e-32)
    assert_same(found, expected, ulp_of(spec, output), unit)


def functions_of(spec: OutputSpec, output: Output | None) -> set[str]:
    """Names of the functions that an output is computed by."""
    nodes = in_order(spec.nodes[spec.name_of(output)])
    return {node.function for node in nodes if isinstance(node, Elementwise)}


def ulp_of(spec: OutputSpec, output: Output | None) -> int:
    """Units in the last place that numpy's functions and ours are apart, both within their own errors."""
    functions = functions_of(spec, output)
    if isinstance(spec.nodes[spec.name_of(output)], Coupling):
        return 64
    if not functions <= {*EXACT}:
        # In float32, C rounds differences before it takes e to their power.
        return 100 if {"round_float32", "subtract", "divide"} <= functions else 5
    # C rounds to float32 after each operation.
    return 2 if {"round_float32", "sign"} <= functions else 0


@pytest.mark.parametrize("spec", FORESTS, ids=named)
def test_scores(spec: OutputSpec, finisher: Finisher) -> None:
    offered = [None, *spec.outputs]
    for output in offered:
        found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
        assert found is not None, output
        for n in (1, 2, 7, 300):
            raw = scores_of(spec, n, seed=n)
            if spec.kind == "anomaly" and output in (None, "label"):
                # The last bit of a power is the platform's.
                with np.errstate(invalid="ignore"):
                    raw = raw[~(np.abs(spec.compute("score", raw) + 0.5) <= 1e-15)]
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
                expected = spec.compute(output, raw.copy())
            for gap in (0, 2):
                missing, given = finisher.run(found, raw, gap)
                assert missing == -1
                assert_same(given, expected, ulp_of(spec, output))


@pytest.mark.parametrize("name", ZOO)
def test_models_of_libraries(name: str, finisher: Finisher) -> None:
    """All outputs of what front ends read, but labels and decisions of isolation forests, are computed."""
    graph = from_object(ZOO[name]())
    for spec in {graph.output, keep_second(graph, exact=False).output}:
        raw = scores_of(spec, 200)
        for output in (None, *spec.outputs):
            found = epilogue_of(spec, output, n_outputs=spec.n_outputs)
            if spec.kind == "anomaly" and output != "score":
                assert found is None
                continue
            assert found is not None
            missing, given = finisher.run(found, raw)
            assert missing == -1
            assert_like_numpy(given, spec, output, raw)


def test_coupling_of_nan(finisher: Finisher) -> None:
    spec = next(one for one in COLUMNS if getattr(one.nodes.get("proba"), "classes", 0) == 3)
    found = epilogue_of(spec, "proba", n_outputs=spec.n_outputs)
    assert found is not None
    raw = scores_of(spec, 5)
    raw[2, 3] = np.nan
    with np.errstate(all="ignore"):
        expected = spec.compute("proba", raw.copy())
    assert_same(finisher.run(found, raw)[1], expected, 8)


@pytest.mark.parametrize("name", TABLES)
def test_positions_without_a_label(name: str, finisher: Finisher) -> None:
    """The row is told; positions below 0 count from the end, as numpy's do."""
    table = TABLES[name]
    spec = spec_of("classifier", 1, {"index": Input(1)}, table)
    found = epilogue_of(spec, None, n_outputs=1)
    assert found is not None
    raw = np.arange(-len(table), len(table), dtype=np.float64)[:, None]
    missing, given = finisher.run(found, raw)
    assert missing == -1
    np.testing.assert_array_equal(given, spec.compute(None, raw))
    for bad in (len(table), -len(table) - 1, np.nan, np.inf, -np.inf, 1e300):
        rows = np.vstack([raw, [[bad]], raw])
        assert finisher.run(found, rows)[0] == len(raw)
        with pytest.raises(InputError, match="no label"), np.errstate(all="ignore"):
            spec.compute(None, rows)


@pytest.mark.parametrize("label_dtype", [None, "rows", "float32", "int64"])
@pytest.mark.parametrize("rows", ["float32", "float64"])
def test_transformers(label_dtype: str | None, rows: str, finisher: Finisher) -> None:
    raw = np.array([[1.5, 1e300, -2.0], [np.nan, 0.1, np.inf]])
    found = epilogue_of_columns(label_dtype, rows, 3)
    with np.errstate(all="ignore"):
        expected = typed_columns(label_dtype, rows)(raw)
    missing, given = finisher.run(found, raw)
    assert missing == -1
    assert_same(given, expected, 0)


def test_casts_to_whole_numbers(finisher: Finisher) -> None:
    """As processors of x86 cast: what the type does not hold becomes its least number."""
    raw = np.array(
        [[2.0**63], [-(2.0**63)], [2.0**31], [-(2.0**31) - 0.5], [np.nan], [-np.inf], [2.9], [-2.9]]
    )
    for dtype in ("int64", "int32"):
        spec = spec_of("clusterer", 1, {"response": Input(1)}, label_dtype=dtype)
        found = epilogue_of(spec, None, n_outputs=1)
        assert found is not None
        least = np.iinfo(dtype).min
        wide = dtype == "int64"
        expected = [least, least, 2**31 if wide else least, -(2**31), least, least, 2, -2]
        assert finisher.run(found, raw)[1].tolist() == expected


def test_isolation_forests_are_left_to_numpy() -> None:
    spec = next(one for one in FORESTS if one.kind == "anomaly")
    outputs: tuple[Output | None, ...] = (None, "label", "decision")
    for output in outputs:
        assert epilogue_of(spec, output, n_outputs=1) is None
        assert epilogue_of(spec, output, n_outputs=1, exported=True) is not None
    assert epilogue_of(spec, "score", n_outputs=1) is not None


def test_outputs_that_there_are_not() -> None:
    """Python's methods raise the error."""
    for spec in (*FORESTS, *COLUMNS):
        for output in get_args(Output):
            if output not in spec.outputs:
                assert epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True) is None
                with pytest.raises(InputError, match="has no"):
                    spec.compute(output, np.zeros((1, spec.n_outputs)))


def test_other_nodes_are_left_to_numpy() -> None:
    raw, single = Input(3), apply("round_float32", Input(3))
    odd: list[tuple[str | None, dict[str, Node]]] = [
        ("int64", {"response": reduce("sum", raw)}),
        ("int64", {"response": select(raw, [2, 0])}),
        ("int16", {"response": raw}),
        ("bool", {"index": apply("greater", raw, 0.0)}),
        # Steps in float32 and in float64.
        (None, {"response": apply("exp", single)}),
        (None, {"response": apply("round_float32", apply("exp", raw))}),
        (None, {"response": apply("round_float32", apply("exp", apply("add", single, 1.0)))}),
        (None, {"response": apply("add", raw, raw)}),
        (None, {"response": apply("where", raw, raw, 0.0)}),
    ]
    for label_dtype, nodes in odd:
        spec = spec_of("regressor", 3, nodes, label_dtype=label_dtype)
        assert epilogue_of(spec, None, n_outputs=3) is None, nodes
        assert spec.compute(None, np.ones((2, 3))).shape[0] == 2
    assert epilogue_of(FORESTS[0], None, n_outputs=0) is None


NUMBERS = st.one_of(
    st.sampled_from(EDGES), st.integers(-3, 3).map(float), st.floats(), st.floats(-40.0, 40.0, width=16)
)
RULES = [one for one in FORESTS if one.predicts_labels and one.n_outputs <= 5]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_any_scores(finisher: Finisher, data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(RULES))
    row = st.lists(NUMBERS, min_size=spec.n_outputs, max_size=spec.n_outputs)
    raw = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    if spec.kind == "anomaly":
        raw = np.abs(raw)
    output = data.draw(st.sampled_from(spec.outputs))
    found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
    assert found is not None
    with np.errstate(all="ignore"):
        shares = spec.compute("proba", raw) if "proba" in spec.outputs and len(spec.classes) < 2 else raw
    _, given = finisher.run(found, raw, data.draw(st.sampled_from((0, 1))))
    if output == "label" and _are_near_ties(shares, spec):
        return
    assert_like_numpy(given, spec, output, raw)


def _are_near_ties(shares: np.ndarray, spec: OutputSpec) -> bool:
    """Whether the last bit of a function decides about a label: probabilities are almost, or just, equal."""
    if spec.kind == "anomaly":
        return True
    if functions_of(spec, "label") <= {*EXACT}:
        return False
    near = np.finfo(shares.dtype).eps * 8
    if not spec.classes:
        return bool(np.any(np.abs(shares - 0.5) <= near))
    order = np.sort(shares, axis=1)
    top, next_one = order[:, -1], order[:, -2]
    with np.errstate(over="ignore"):
        return bool(np.any(np.abs(top - next_one) <= near))
