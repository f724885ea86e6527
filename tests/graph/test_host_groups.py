"""Columns computed side by side: to the bit what the steps give one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import InputError
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.host_groups import HostGroups
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.steps import (
    NA,
    UFUNCS,
    Above,
    Arithmetic,
    Cast,
    Clip,
    Encode,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Column, Made, Raw, Table

WIDTH = 5


def step(rng: np.random.Generator, kind: str) -> Step:
    low = float(rng.normal())
    if kind in ("subtract", "divide", "multiply", "add"):
        constant = float(rng.choice([rng.normal(), 0.0, 1e300, 1e-300]))
        return Arithmetic(kind, constant, cast=len(kind) % 2 == 0)
    if kind.startswith("cast"):
        return Cast(kind[5:])
    if kind.startswith("fill"):
        return Fill(float(rng.normal()), {"nan": np.nan, "na": NA, "none": None, "0": 0}[kind[5:]])
    made: dict[str, Step] = {
        "clip": Clip(low, low + 1.5),
        "within": Within(low, low + 2.5),
        "above": Above(low),
        "is_missing": IsMissing(),
        "zero": ZeroIsMissing(),
    }
    return made[kind] if kind in made else Function(kind)


KINDS = (
    *("subtract", "divide", "multiply", "add", "cast float32", "cast float64", "clip", "within", "above"),
    *("fill nan", "fill na", "fill none", "fill 0", "is_missing", "zero", *UFUNCS),
)


def rows(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    x = rng.normal(scale=rng.choice([1.0, 30.0], (n, WIDTH)), size=(n, WIDTH))
    x[rng.random(x.shape) < 0.15] = np.nan
    x[rng.random(x.shape) < 0.1] = 0.0
    x[rng.random(x.shape) < 0.05] = -0.0
    return x.astype(dtype)


def compare(feeds: Sequence[Feed], x: np.ndarray) -> None:
    """Feeds in groups and one by one; all of them group."""
    groups = HostGroups(dict(enumerate(feeds)))
    assert groups.places == list(range(len(feeds)))
    evaluator = Evaluator(list(x.T))
    with np.errstate(all="ignore"):
        expected = [evaluator.column(feed.source, feed.steps) for feed in feeds]
    found = groups.compute(np.ascontiguousarray(x.T[groups.raws]))
    assert found is not None
    assert found.dtype == np.result_type(*expected)
    for one, other in zip(found, expected, strict=True):
        other = other.astype(found.dtype)
        np.testing.assert_array_equal(one, other)
        there = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(one[there]), np.signbit(other[there]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(len(kind))
    feeds = [Feed(Raw(int(i)), (step(rng, kind),)) for i in rng.integers(0, WIDTH, 4)]
    for n in (1, 2, 37):
        compare(feeds, rows(rng, n, dtype))


@pytest.mark.parametrize("seed", range(20))
def test_random_chains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chains = [rng.choice(KINDS, rng.integers(0, 5)).tolist() for _ in range(3)]
    feeds = []
    for _ in range(9):
        chain = chains[rng.integers(3)]
        feeds.append(Feed(Raw(int(rng.integers(WIDTH))), tuple(step(rng, kind) for kind in chain)))
    for n in (1, 3, 20):
        compare(feeds, rows(rng, n, "float64" if seed % 2 else "float32"))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("sparse", [False, True])
def test_row_operations(norm: Any, sparse: bool) -> None:
    rng = np.random.default_rng(len(norm))
    inputs = [Column(Raw(i), (Fill(float(rng.normal())), Arithmetic("divide", 1.5 + i))) for i in (3, 0, 4)]
    inputs.append(Column(Raw(1), (Fill(0.5), Cast("float32"))))
    first = Normalize(Table(tuple(inputs)), norm, sparse)
    second = Normalize(Table(tuple(Column(Made(first, i), (Clip(-0.5, 0.5 + i),)) for i in (2, 1))), "l2")
    feeds = [Feed(Made(first, i), (Arithmetic("subtract", i / 3),)) for i in (1, 3, 0)]
    feeds += [Feed(Made(second, 1)), Feed(Raw(2), (Fill(1.0),)), Feed(Made(second, 0), (Cast("float32"),))]
    for n in (1, 2, 30):
        compare(feeds, rows(rng, n, "float64"))


def test_values_and_codes_are_left_to_others() -> None:
    text = Table((Column(Raw(1), (Fill("a", None),)),))
    feeds = {
        0: Feed(Raw(0), (Encode((1.0,)), Lookup(np.array([1.0, 2.0])))),
        2: Feed(Raw(0), (Fill(1.0),)),
        3: Feed(Raw(1), (Fill("a"),)),
        5: Feed(Made(Normalize(text, "l1"), 0)),
        6: Feed(Raw(0), (Above(np.float32(1.5)),)),
    }
    groups = HostGroups(feeds)
    assert (groups.places, groups.raws) == ([2], [0])
    assert HostGroups({}).places == []


def test_what_may_be_refused_is_not_computed() -> None:
    fill = Fill(0.0)
    guarded = HostGroups({0: Feed(Raw(0), (fill,)), 1: Feed(Raw(1), (fill,), allow_inf=False)})
    assert guarded.compute(np.array([[np.inf], [np.nan]])).tolist() == [[np.inf], [0.0]]
    assert guarded.compute(np.array([[1.0], [-np.inf]])) is None
    inputs = Table((Column(Raw(0), allow_nan=False), Column(Raw(1), allow_inf=False)))
    feeds = [Feed(Made(Normalize(inputs, "l2"), i)) for i in (0, 1)]
    normalized = HostGroups(dict(enumerate(feeds)))
    for row in ([np.nan, 1.0], [1.0, np.inf]):
        x = np.array(row)[:, None]
        assert normalized.compute(x) is None
        with pytest.raises(InputError):
            Evaluator(list(x)).column(feeds[0].source, ())
    assert normalized.compute(np.array([[3.0], [4.0]])).tolist() == [[0.6], [0.8]]
    assert normalized.compute(np.array([[1.0], [np.nan]])) is not None
    assert normalized.compute(np.array([[3], [4]])) is None  # of no type of floats
