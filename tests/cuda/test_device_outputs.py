"""What is made of scores on GPUs, by the libraries whose rows they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.frontends import from_object
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.outputs.arrays import Arrays
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import likelier, modified_huber, shares, sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select
from hbtvm.runtime.cuda.rows.libraries import TorchLibrary
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import Package
from tests import emulated
from tests.emulated import SM90, USED, Array, Cupy, Machine, package
from tests.epilogues import RESPONSES, rounded
from tests.models import ZOO, data
from tests.oracle import margins
from tests.runtime_models import trained

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def _torch() -> Any:
    """Torch's arrays, on the CPU."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    library = TorchLibrary()

    def to_host(X: Any) -> np.ndarray:
        array = library.to_host(X)
        assert library.dtype(X) == array.dtype
        return array

    return library.arrays, torch.from_numpy, to_host


LIBRARIES: dict[str, Any] = {"cupy": lambda: (Arrays(Cupy), Array, Cupy.asnumpy), "torch": _torch}


def check(spec: OutputSpec, raw: np.ndarray, library: str) -> int:
    """Hold all outputs that a library can make against numpy's; how many these were."""
    arrays, to_device, to_host = LIBRARIES[library]()
    there = (
        replace(spec, classes=tuple(map(to_device, spec.classes))) if spec.by_any_library("label") else spec
    )
    made = [output for output in (None, *spec.outputs) if spec.by_any_library(output)]
    for output in made:
        want = spec.compute(output, raw)
        got = there.compute(output, to_device(raw.copy()), arrays)
        several = isinstance(want, list)
        for ours, theirs in zip(want if several else [want], got if several else [got], strict=True):
            found = to_host(theirs)
            assert (found.dtype, found.shape) == (ours.dtype, ours.shape), output
            allowed = 1e-12 if ours.dtype == np.float64 else 1e-6
            np.testing.assert_allclose(found, ours, rtol=allowed, atol=1e-44, err_msg=str(output))
    return len(made)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ZOO)
def test_every_models_outputs(name: str, library: str) -> None:
    graph = from_object(ZOO[name]())
    X = data()[0]
    number = 0
    for one in (graph, keep_second(graph, exact=True)):
        number += check(one.output, margins(one, X), library)
        number += check(one.output, margins(one, X[:1]), library)
    assert number or name.startswith("sk_isolation")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_scores_and_ties(library: str, dtype: Any) -> None:
    raw = np.array([-1e4, -800, -88, -1, -0.0, 0, 1e-30, 0.5, 1, 88, 800, 1e4])[:, None]
    for function in RESPONSES.values():
        score = rounded(Input(1), dtype)
        response = rounded(function(score), dtype)
        nodes: dict[str, Node] = {"response": response, "raw": score, "score": response}
        assert check(OutputSpec("regressor", 1, nodes), raw, library) == 3
        for index in (apply("greater", score, 0.0), apply("greater_equal", score, 0.0), likelier(response)):
            nodes = {"index": index, "proba": rounded(with_complement(response), dtype)}
            labels = (np.array([3, 7], np.int16),)
            assert check(OutputSpec("classifier", 1, nodes, labels), raw, library) == 3
    wide = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0], [-1e4, 1e4, 0]])
    scores = rounded(Input(3), dtype)
    for function in (softmax, sigmoid, lambda x: shares(sigmoid(x)), modified_huber):
        proba = rounded(function(scores), dtype)
        for index in (reduce("argmax", scores), reduce("argmax", proba)):
            spec = OutputSpec("classifier", 3, {"index": index, "proba": proba}, (np.array([0.5, -2, 9]),))
            assert check(spec, wide, library) == 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_several_targets(library: str) -> None:
    raw = np.array([[0.1, 0.9, 0.2, 0.3, 0.5], [0.5, 0.5, 0.4, 0.4, 0.2]])
    classes, scores = (np.array([4, 2]), np.array([7, 8, 9])), Input(5)
    index = concat([reduce("argmax", select(scores, columns)) for columns in (range(2), range(2, 5))])
    spec = OutputSpec("classifier", 5, {"index": index, "proba": scores}, classes)
    assert check(spec, raw, library) == 3


def test_what_no_library_makes() -> None:
    isolation = from_object(ZOO["sk_isolation_nan"]()).output
    made = [output for output in (None, *isolation.outputs) if isolation.by_any_library(output)]
    assert made == ["score"]
    names = from_object(ZOO["lgb_two"]()).output
    assert not names.by_any_library(None) and names.by_any_library("proba")


def without_kernel(name: str) -> Package:
    """As `package`, as releases compiled that had no kernel of outputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_build, "output_source", lambda: "")
        return hbtvm.compile(trained(name)[1], target=SM90, batch_sizes=(1,)).package


@pytest.mark.parametrize("make", [package, without_kernel])
@pytest.mark.parametrize("name", ["lgb_three_ova", "xgb_three_softmax", "sk_hist_two_nan", "lgb_two_rf"])
def test_outputs_are_made_on_the_device_without_waiting(
    cupy: type[Cupy],
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    make: Callable[[str], Package],
) -> None:
    model = Model(make(name))
    X = data()[0].astype(np.float32)
    cupy.cuda.stream = int(machine.stream())
    with monkeypatch.context() as patch:
        patch.setattr(cupy, "asnumpy", None)  # it would wait
        patch.setattr(cupy, "asarray", None)
        made = [
            (output, n, model.predict(Array(X[:n]), output))
            for output in (None, *model.package.output.outputs)
            for n in (len(X), 65, 1)  # later ones need no more memory
            if model.package.output.by_any_library(output)
        ]
    assert made
    for _, _, got in made:
        assert type(got) is Array
        poison = np.isnan(got.array) if got.dtype.kind == "f" else got.array == -1
        assert poison.all()  # nobody has waited yet
    for output, n, got in made:
        want = model.predict(X[:n], output)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(cupy.asnumpy(got), want, rtol=1e-12)


def test_other_outputs_come_back_to_the_device(cupy: type[Cupy], machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0].copy()
    assert model.predict(Array(X[:5, ::-1].astype(np.float32)), "decision").shape == (5,)
    assert model.predict(Array(X[:5])).tolist() == model.predict(X[:5]).tolist()  # names are no numbers
    model = Model(package("sk_isolation_some"))
    rows = X.astype(np.float32)
    for output in (None, "decision"):
        got, want = model.predict(Array(rows), output), model.predict(rows, output)  # type: ignore[call-overload]
        assert type(got) is Array
        np.testing.assert_array_equal(got.array, want)


@pytest.mark.parametrize("kernel", [True, False])
def test_tables_of_labels_are_there_once_and_leave_with_the_model(
    cupy: type[Cupy], machine: Machine, kernel: bool
) -> None:
    before = machine.get(USED)
    model = Model((package if kernel else without_kernel)("lgb_three_ova"))
    X = Array(data()[0].astype(np.float32))
    cupy.asnumpy(model.predict(X))
    held = machine.get(USED)
    labels = [model.predict(X) for _ in range(3)]
    assert machine.get(USED) == held
    assert set(cupy.asnumpy(labels[-1])) == set(model.classes_)
    del model
    assert machine.get(USED) == before + (0 if kernel else 24)  # who has not yet looked them up needs them
    cupy.forget()
    assert machine.get(USED) == before
