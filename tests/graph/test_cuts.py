"""Ordinals of floats, and thresholds moved through chains of steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hbtvm.graph.columns import steps as step_module
from hbtvm.graph.columns.steps import (
    Above,
    Arithmetic,
    Clip,
    Encode,
    Fill,
    Function,
    IsMissing,
    Step,
    ZeroIsMissing,
)
from hbtvm.graph.trees.cuts import chain_of
from hbtvm.graph.trees.ordinals import floats, last_true, ordinal, ordinals

DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_ordinals_follow_the_order_of_floats(dtype: str) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    some = np.concatenate([rng.normal(size=50) * 10.0 ** rng.integers(-30, 30, 50), [np.inf, 0, info.tiny]])
    x = np.unique(np.concatenate([some, -some]).astype(dtype))
    at = ordinals(x)
    assert np.all(np.diff(at) > 0)
    assert np.array_equal(floats(at, dtype), x)
    finite = x[(x != 0) & np.isfinite(x)]
    assert np.array_equal(floats(ordinals(finite) + 1, dtype), np.nextafter(finite, np.array(np.inf, dtype)))
    assert (ordinal(-0.0, dtype), ordinal(0.0, dtype)) == (-1, 0)
    assert np.signbit(floats(np.array([-1]), dtype)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_last_float_of_a_condition_is_found_over_the_whole_range(dtype: str) -> None:
    bounds = np.array([-np.inf, -3.5, -1e-40, 0.0, 2.5, np.finfo(dtype).max, np.inf], dtype)
    low, high = ordinal(-np.inf, dtype), ordinal(np.inf, dtype)
    found = last_true(lambda x: x <= bounds, low, high, len(bounds), dtype)
    assert np.array_equal(found, ordinals(bounds))
    never = last_true(lambda x: np.zeros(2, bool), low, high, 2, dtype)
    assert never.tolist() == [low - 1] * 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "steps",
    [
        (Arithmetic("subtract", 1e9, True), Arithmetic("divide", -3.3, True)),
        (Function("floor"), Arithmetic("multiply", 1e-3)),
        (Clip(-1.0, 2.0), Function("exp")),
        (Function("tanh"),),
        (Function("expm1"), Function("negative"), Arithmetic("add", 1.0)),
        (Function("log1p"), Arithmetic("subtract", 3.3, True)),
        (Fill(2.0), Above(0.5)),
    ],
)
def test_cuts_are_where_results_cross_the_thresholds(steps: tuple[Step, ...], dtype: str) -> None:
    """The last number on one side, and its neighbour on the other."""
    chain = chain_of(steps, dtype, "float64", False)
    assert chain is not None
    thresholds = np.array([-0.9, -1e-3, 0.3, 0.7, 1.9, 1e12])
    cuts = chain.cuts(thresholds)
    assert cuts is not None

    def below(at: np.ndarray) -> np.ndarray:
        x = floats(at, dtype)
        for step in chain.steps:
            x = step.apply(x)
        return (x <= thresholds) == cuts.rising

    at = cuts.ordinal
    assert np.all((at >= chain.low - 1) & (at <= chain.high))
    assert np.all(below(at)[at >= chain.low])
    assert not np.any(below(np.minimum(at + 1, chain.high))[at < chain.high])
    assert len(np.unique(at)) > 1 or isinstance(steps[-1], Above)


def broken(good: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A function that is off by some units in the last place now and then."""

    def function(x: np.ndarray) -> np.ndarray:
        y = good(x)
        odd = ordinals(x) % 7 == 3
        return np.where(odd, floats(ordinals(y) + 3, x.dtype.name), y)

    return function


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_that_are_not_monotone_in_their_last_bits_are_found(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """No number cuts the others in two, where results cross a threshold to and fro."""
    steps = (Arithmetic("subtract", 0.5), Function("arcsinh"), Arithmetic("multiply", 3.0))
    thresholds = np.linspace(0.3, 2, 30)
    chain = chain_of(steps, dtype, "float64", False)
    assert chain is not None and chain.cuts(thresholds) is not None
    monkeypatch.setattr(step_module, "UFUNCS", {"arcsinh": broken(np.arcsinh)})
    assert chain.cuts(thresholds) is None


@pytest.mark.parametrize(
    "steps",
    [
        (Function("square"),),
        (Arithmetic("divide", 0.0),),
        (Arithmetic("subtract", np.nan),),
        (Arithmetic("multiply", 1e-60, True),),
        (Fill(1.0, -999.0),),
        (Fill(1.0, None),),
        (ZeroIsMissing(),),
        (Function("sqrt"), Fill(0.0)),
        (Function("sqrt"), IsMissing()),
        (Function("log"), Function("negative"), Function("log1p"), Function("log")),
        (Encode((1.0, 2.0)),),
    ],
)
def test_steps_that_are_not_monotone_are_no_chain(steps: tuple[Step, ...]) -> None:
    """Constants that make NaN, missing values that are numbers, NaN that one step makes and another fills."""
    assert chain_of(steps, "float32", "float32", False) is None


def test_domains_end_where_results_become_nan() -> None:
    """Of numbers; infinities count where they are let in."""
    for steps, infinite, domain in [
        ((Function("log1p"),), False, (-1.0, np.inf)),
        ((Function("negative"), Function("sqrt")), False, (-np.inf, 0.0)),
        ((Arithmetic("subtract", 2.0), Function("log")), True, (2.0, np.inf)),
        ((Function("expm1"),), True, (-np.inf, np.inf)),
    ]:
        chain = chain_of(steps, "float64", "float64", infinite)
        assert chain is not None and chain.domain == domain
