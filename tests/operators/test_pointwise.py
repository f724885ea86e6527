"""The table of pointwise functions, and its tensor expressions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hbtvm.graph.columns.steps import UFUNCS
from hbtvm.operators.pointwise import FUNCTIONS, apply, sigmoid
from hbtvm.recursive.cell import BINARY, UNARY
from hbtvm.recursive.reference import FUNCTIONS as OF_CELLS
from hbtvm.runtime.native.functions import NUMBERS
from hbtvm.strategies.cuda.network import FUNCTIONS as ON_CUDA
from hbtvm.strategies.network import functions, single

IN_TWO_STAGES = {"power", "cbrt", "normal_quantile"}


def test_every_function_has_a_tensor_expression() -> None:
    assert {*functions.FUNCTIONS} | IN_TWO_STAGES == {*FUNCTIONS}
    assert {*single.FUNCTIONS} <= {*FUNCTIONS}
    assert {name for name, row in FUNCTIONS.items() if row.cuda} <= {*ON_CUDA}
    assert {*UNARY, *BINARY} <= {*OF_CELLS}


def test_c_has_every_function_of_columns() -> None:
    assert {*UFUNCS} - {"fabs", "deg2rad", "rad2deg"} == {*NUMBERS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_references_give_floats_of_the_arity(name: str) -> None:
    row, x = FUNCTIONS[name], np.array([[0.25, 0.5, np.nan]])
    made = apply(name, *[x[0]] * row.arity).reference(*[x] * row.arity)
    assert made.dtype == np.float64 and made.shape == x.shape
    with pytest.raises(ValueError, match=f"{name} of operands"):
        apply(name, *[x[0]] * (row.arity + 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sigmoid_never_overflows(dtype: str) -> None:
    x = np.array([-np.inf, -1e30, -700, -40, -1, -0.0, 1, 40, 800, np.inf]).astype(dtype)
    want = [0.0 if v < -80 else 1 / (1 + math.exp(-v)) for v in x.astype(np.float64).tolist()]
    found = sigmoid(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, want, rtol=4e-7 if dtype == "float32" else 2e-15, atol=1e-34)
    assert np.isnan(sigmoid(np.array([np.nan])))
