"""Rows on a GPU of libraries of which nothing is known but that they speak DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi

from hbtvm.errors import InputError
from hbtvm.runtime.cuda.driver import gpu
from hbtvm.runtime.cuda.rows.tensor import tensor_of
from hbtvm.runtime.model import Model
from tests import emulated
from tests.emulated import USED, Array, Cupy, Machine, later, on_host, package
from tests.models import data

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


class Strange(Array):
    """An array of some other library, such as JAX's."""

    __module__ = "jaxlib.xla"
    streams: list[Any] = []  # noqa: RUF012

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        self.streams.append(stream)
        return super().__dlpack__()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # nobody should ask for more


@pytest.mark.parametrize(
    "name", ["lgb_three_ova", "xgb_three_softmax", "sk_isolation_some", "sk_tree_pair_labels", "lgb_two_rf"]
)
def test_they_are_answered_by_tensors_that_speak_it_too(machine: Machine, name: str) -> None:
    model = Model(package(name))
    X = data()[0].astype(np.float32)
    Strange.streams.clear()
    for output in (None, *model.package.output.outputs):
        for n in (1, 70):
            want = model.predict(X[:n], output)  # type: ignore[call-overload]
            got = model.predict(Strange(X[:n]), output)  # type: ignore[call-overload]
            several = isinstance(want, list)
            for ours, theirs in zip(want if several else [want], got if several else [got], strict=True):
                if ours.dtype.kind not in "fiu":
                    assert type(theirs) is np.ndarray
                    assert theirs.tolist() == ours.tolist()
                    continue
                assert isinstance(theirs, tvm_ffi.Tensor) and theirs.__dlpack_device__() == (2, 0)
                np.testing.assert_array_equal(on_host(theirs), ours, strict=True)
    assert set(Strange.streams) == {1}  # the default stream, by the standard's count


def test_tensors_of_tvm_are_rows_as_well(machine: Machine) -> None:
    model = Model(package("lgb_three_ova"))
    X = data()[0].astype(np.float32)
    rows = tensor_of(gpu(), X)
    np.testing.assert_array_equal(on_host(model.predict(rows, "raw")), model.predict(X, "raw"))


def test_what_the_rows_wait_for_is_waited_for(cupy: type[Cupy], machine: Machine) -> None:
    model = Model(package("lgb_three_ova"))
    X = data()[0].astype(np.float32)
    made = later(lambda: X * 2)  # in the default stream
    assert np.isnan(made.array).all()
    np.testing.assert_array_equal(
        on_host(model.predict(Strange(made.array), "raw")), model.predict(X * 2, "raw")
    )


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["xgb_missing_zero", "sk_tree_two", "lgb_three_ova"])
def test_what_kernels_cannot_take_goes_by_the_host(machine: Machine, name: str, dtype: str) -> None:
    model = Model(package(name))
    X = np.abs(data()[0] * 2).astype(dtype)
    got = model.predict(Strange(X))
    np.testing.assert_array_equal(got if type(got) is np.ndarray else on_host(got), model.predict(X))


def test_an_answer_outlives_its_model_and_then_goes(machine: Machine) -> None:
    before = machine.get(USED)
    model = Model(package("lgb_three_ova"))
    X = data()[0].astype(np.float32)
    got, want = model.predict(Strange(X), "proba"), model.predict(X, "proba")
    del model
    assert machine.get(USED) == before + want.nbytes
    np.testing.assert_array_equal(on_host(got), want)
    del got
    assert machine.get(USED) == before


@pytest.mark.parametrize(
    ("name", "rows", "text"),
    [
        ("lgb_two", Strange(np.zeros((3, 4), np.float32), device=1), "got rows on cuda:1"),
        ("lgb_two", Strange(np.zeros((4, 3), np.float32).T), "expected C-contiguous rows, got strides"),
        ("lgb_two", Strange(np.zeros((3, 5), np.float32)), r"got shape \(3, 5\)"),
        ("lgb_two", Strange(np.zeros((0, 4), np.float32)), "at least one row"),
        ("lgb_two", Strange(np.zeros((3, 4), np.complex64)), "expected numbers, got"),
        ("sk_boost_two", Strange(np.full((3, 4), np.nan, np.float32)), "the rows have NaN"),
        ("sk_tree_two", Strange(np.full((3, 4), 1e300)), "the rows have infinity"),
    ],
)
def test_rows_that_do_not_fit(machine: Machine, name: str, rows: Strange, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Model(package(name)).predict(rows)
