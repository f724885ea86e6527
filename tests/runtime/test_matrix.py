"""Columns copied into rows, by the executor and by numpy."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.native.objects.build import c_compiler, executor_library
from hbtvm.runtime.rows.matrix import Interleave, matrix_of


@pytest.fixture(scope="module")
def interleave() -> Interleave:
    found = load_library(executor_library(c_compiler())).interleave
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 30])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 1023, 1024, 2500])
def test_columns_of_the_matrix_s_type(dtype: str, count: int, n: int, interleave: Interleave) -> None:
    rng = np.random.default_rng(n + count)
    columns = [rng.integers(0, 200, n).astype(dtype) for _ in range(count)]
    expected = np.stack(columns, axis=1)
    for how in (interleave, None):
        found = matrix_of(columns, n, np.dtype(dtype), how)
        assert found.dtype == expected.dtype and found.flags.c_contiguous
        assert np.array_equal(found, expected)


def test_what_bits_mean_nothing(interleave: Interleave) -> None:
    columns = [np.full(300, value, np.float32) for value in (np.nan, -0.0, np.inf, 1e-45, -np.nan)]
    found = matrix_of(columns, 300, np.dtype(np.float32), interleave)
    assert found.tobytes() == np.stack(columns, axis=1).tobytes()


def test_columns_of_other_layouts(interleave: Interleave) -> None:
    n = 600
    rng = np.random.default_rng(0)
    odd = np.frombuffer(b"." + rng.normal(size=n).tobytes(), np.float64, offset=1)
    columns = [
        rng.normal(size=(n, 3))[:, 1],
        rng.normal(size=n)[::-1],
        odd,
        rng.normal(size=n).astype(">f8"),
        rng.integers(0, 9, n),
        rng.random(n) > 0.5,
        rng.normal(size=n).astype(np.float32),
    ]
    found = matrix_of(columns, n, np.dtype(np.float64), interleave)
    assert np.array_equal(found, np.stack([x.astype(np.float64) for x in columns], axis=1))
