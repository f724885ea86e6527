"""Codes of arrays of objects by their addresses: those of the objects one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.errors import InputError
from hbtvm.graph.columns.steps import Encode, Fill
from hbtvm.runtime.codes import objects as module
from hbtvm.runtime.codes.coder import Coder
from hbtvm.runtime.codes.objects import object_codes

VALUES: list[Any] = [
    "a",
    "b",
    None,
    float("nan"),
    np.nan,
    3,
    2.5,
    True,
    "é" * 40,
    np.str_("b"),
    np.float64(3),
]


def coder(unknown: Any = "code") -> Coder:
    return Coder((Fill("a", None), Encode(("a", "b", 2.5, 3, "é" * 40), unknown, "column x")))


@pytest.mark.parametrize("slots", [13, 3])
@pytest.mark.parametrize("seed", range(3))
def test_as_one_by_one(seed: int, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few slots, several objects fall into one."""
    monkeypatch.setattr(module, "_SLOTS", slots)
    rng = np.random.default_rng(seed)
    pool = np.empty(len(VALUES), object)
    pool[:] = VALUES
    X = pool[rng.integers(0, len(VALUES), (1_500, 4))]
    expected = np.array([[coder().of_value(one) for one in row] for row in X.tolist()])
    looked_up = Coder.of_values
    counts: list[int] = []

    def counted(self: Coder, values: list[Any]) -> np.ndarray:
        counts.append(len(values))
        return looked_up(self, values)

    monkeypatch.setattr(Coder, "of_values", counted)
    for given in (X, np.asfortranarray(X), X[::-1], X[:, ::2], X[:, 1:3], X[3:], X.T.copy().T):
        for j in range(given.shape[1]):
            counts.clear()
            found = object_codes(given[:, j], coder())
            wanted = np.array([coder().of_value(one) for one in given[:, j].tolist()])
            np.testing.assert_array_equal(found, wanted)
            assert slots == 3 or sum(counts) < 50
    np.testing.assert_array_equal(object_codes(X[:, 0].copy(), coder()), expected[:, 0])


def test_objects_that_differ() -> None:
    values = np.array([f"{i % 3}" + "x" * (i % 2) for i in range(2_000)], object)
    one = Coder((Encode(("0", "1x"), "code", "column x"),))
    np.testing.assert_array_equal(object_codes(values, one), one.of_values(values.tolist()))
    # At first the same, then not.
    mixed = np.concatenate([np.array(["0"] * 300, object), values])
    np.testing.assert_array_equal(object_codes(mixed, one), one.of_values(mixed.tolist()))


def test_errors_name_the_row() -> None:
    values = np.array(["a", "b"], object)[np.random.default_rng(0).integers(0, 2, 1_000)]
    values[777] = values[900] = "c"
    with pytest.raises(InputError, match=r"row 777: column x: 'c'"):
        object_codes(values, coder("error"))
    values[500] = []
    with pytest.raises(InputError, match="list"):
        object_codes(values, coder())


def test_addresses_that_numpy_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(array: np.ndarray) -> np.ndarray:
        raise TypeError("objects have no addresses here")

    monkeypatch.setattr(module, "_shown", refuse)
    values = np.array(["a", "b", "c"], object)[np.random.default_rng(0).integers(0, 3, 1_000)]
    np.testing.assert_array_equal(object_codes(values, coder()), coder().of_values(values.tolist()))


LEAST, MOST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "float64", "float32"])
@pytest.mark.parametrize(
    "categories",
    [
        (0, 1, 2),
        (LEAST, 0, 3),
        (LEAST,),
        (LEAST, LEAST + 1),
        (MOST, MOST - 2),
        (-1, MOST),
        (1e30, 5),
        (1 << 62,),
    ],
    ids=str,
)
def test_numbers_at_the_ends_of_their_types(categories: tuple[Any, ...], dtype: str) -> None:
    values = [LEAST, LEAST + 1, LEAST + 3, -2, -1, 0, 1, 2, 3, 5, 1 << 62, MOST - 2, MOST - 1, MOST, 1e30]
    kind = np.dtype(dtype)
    if kind.kind == "f":
        x = np.array([*values, np.nan, np.inf, -np.inf, 0.5], kind)
    else:
        within = np.iinfo(kind)
        x = np.array([one for one in values if within.min <= one <= within.max and one != 1e30], kind)
    for fill in ((), (Fill(1, -1),), (Fill(-1, LEAST),)):
        one = Coder((*fill, Encode(categories, "code", "column x")))
        expected = [one.of_value(value) for value in x.tolist()]
        assert one.of_numbers(x).tolist() == expected
