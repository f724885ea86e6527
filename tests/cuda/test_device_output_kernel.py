"""The kernel that makes outputs of raw scores, against numpy."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.lowering.cuda.output_kernel import output_source
from hbtvm.compiler.lowering.cuda.score_epilogue import epilogue_source
from hbtvm.frontends import from_object
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import likelier, modified_huber, shares, sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.memory import Memory, Module
from hbtvm.runtime.cuda.outputs import device_output
from hbtvm.runtime.gpu.launch import MOST_OUTPUTS, OUTPUT
from tests import emulated
from tests.epilogues import RESPONSES, rounded
from tests.models import ZOO, data
from tests.oracle import margins

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@pytest.fixture
def function(machine: emulated.Machine) -> Iterator[int]:
    """The kernel, behind another as in packages, on the current device."""
    gpu = driver.gpu()
    with gpu.current():
        module = Module(gpu, emulated.machine_code(epilogue_source(1) + output_source()))
        yield gpu.function(module.handle, OUTPUT)


def computed(spec: OutputSpec, output: Any, raw: np.ndarray, function: int) -> Any:
    """Return an output of raw scores by the kernel; None if it does not compute it."""
    gpu = driver.gpu()
    made = device_output(gpu, spec, output, function)
    if made is None:
        return None
    values = np.empty(made.shape(len(raw)), made.dtype)
    scores, room = Memory.of(gpu, np.ascontiguousarray(raw)), Memory(gpu, values.nbytes)
    if not made.is_raw:
        made.queue(None, scores.handle, len(raw), room.handle)
    gpu.driver.call("cuMemcpyDtoHAsync_v2", values.ctypes.data, (scores if made.is_raw else room).handle,
                    values.nbytes, None)  # fmt: skip
    gpu.driver.call("cuStreamSynchronize", None)
    return made.finished(values)


def check(spec: OutputSpec, raw: np.ndarray, function: int) -> int:
    """Hold outputs against numpy's; how many the kernel made."""
    number = 0
    for output in (None, *spec.outputs):
        want, got = spec.compute(output, raw), computed(spec, output, raw, function)
        if got is None:
            continue
        number += 1
        several = isinstance(want, list)
        for ours, theirs in zip(want if several else [want], got if several else [got], strict=True):
            assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape), output
            # A sigmoid in float32 is XGBoost's, which is never 0.
            relative, absolute = (1e-12, 1e-44) if ours.dtype == np.float64 else (1e-7, 4e-39)
            np.testing.assert_allclose(theirs, ours, rtol=relative, atol=absolute, err_msg=str(output))
    return number


@functools.cache
def scores(name: str) -> tuple[OutputSpec, np.ndarray]:
    graph = from_object(ZOO[name]())
    return graph.output, margins(graph, data()[0])


@pytest.mark.parametrize("name", ZOO)
def test_every_models_outputs(function: int, name: str) -> None:
    spec, raw = scores(name)
    number = check(spec, raw, function)
    assert number == check(spec, raw[:1], function)
    # Names are no numbers, and the last bit of a power decides about an isolation forest's labels.
    assert number or name.startswith("sk_isolation") or all(map(spec.by_any_library, spec.outputs)) is False


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_scores_ties_and_nan(function: int, dtype: Any) -> None:
    raw = np.array([-1e4, -800, -88, -1, -0.0, 0, 1e-30, 0.5, 1, 88, 800, 1e4, np.nan])[:, None]
    # The kernel has no logarithm, and rounds either every step of an output to float32 or none.
    left = ("softplus", "scaled_sigmoid", "modified_huber")[: 1 if dtype == "float64" else 3]
    for name in RESPONSES.keys() - left:
        score = rounded(Input(1), dtype)
        response = rounded(RESPONSES[name](score), dtype)
        nodes: dict[str, Node] = {"response": response, "raw": score, "score": response}
        assert check(OutputSpec("regressor", 1, nodes), raw, function) == 3, name
        for index in (apply("greater", score, 0.0), apply("greater_equal", score, 0.0), likelier(response)):
            nodes = {"index": index, "proba": rounded(with_complement(response), dtype)}
            for labels in (np.array([3, 7], np.int16), np.array([0.5, -2]), np.array([8, 9], np.uint8)):
                assert check(OutputSpec("classifier", 1, nodes, (labels,)), raw, function) == 3, name
    wide = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0], [-1e4, 1e4, 0]])
    node = rounded(Input(3), dtype)
    for function_of in (softmax, sigmoid, lambda x: shares(sigmoid(x)), modified_huber)[: 5 - len(left)]:
        proba = rounded(function_of(node), dtype)
        for index in (reduce("argmax", node), reduce("argmax", proba)):
            nodes = {"index": index, "proba": proba}
            spec = OutputSpec("classifier", 3, nodes, (np.array([5, -2, 9], np.int32),))
            assert check(spec, wide, function) == 3
    nan = np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, 1.0], [np.nan, 0.0, 5.0]])
    spec = OutputSpec("classifier", 3, {"index": reduce("argmax", Input(3))}, (np.array([5, -2, 9]),))
    assert computed(spec, None, nan, function).tolist() == [-2, 5, 5]


@pytest.mark.parametrize("width", [2, 7, 8, 9, 23, MOST_OUTPUTS])
def test_sums_are_in_numpys_order(function: int, width: int) -> None:
    raw = np.random.default_rng(width).normal(0, 4, (130, width))
    spec = OutputSpec(
        "classifier", width, {"proba": softmax(Input(width)), "index": reduce("argmax", Input(width))}
    )
    assert check(spec, raw, function) == 3
    wider = MOST_OUTPUTS + 1
    spec = replace(spec, nodes={"proba": softmax(Input(wider))}, n_outputs=wider)
    assert computed(spec, "proba", raw, function) is None


def test_labels_outside_of_their_table_are_left_to_the_library(function: int) -> None:
    raw = np.zeros((1, 3))
    for index in (reduce("argmax", Input(3)), apply("negative", Input(3))):
        for labels in ((np.array([1, 2]),), (np.array([1]),)):
            spec = OutputSpec("classifier", 3, {"index": index}, labels if index.width == 1 else labels * 3)
            assert computed(spec, None, raw, function) is None
