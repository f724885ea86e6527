"""Feeds and tables as plain values: everything comes back as it was, with its types; nonsense is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.codec import CodecError
from hbtvm.graph.columns import curves, dates
from hbtvm.graph.columns import steps as kinds
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation, Table
from hbtvm.graph.parts import Parts

VALUES = ("a", "ü\n", "", True, 1, 2.0, -0.5, 2**70, None, math.nan, math.inf, -math.inf)
FILL = kinds.Fill("none", np.nan)
ALL = (
    kinds.Arithmetic("divide", 0.1, True),
    kinds.Clip(-math.inf, 3.5),
    kinds.Within(0.0, 1.0),
    kinds.Above(0.25),
    kinds.Cast("float32"),
    kinds.Function("log1p"),
    FILL,
    kinds.Fill(np.float64(0.1), None),
    kinds.Fill(0, -1),
    kinds.Fill("x", kinds.NA),
    kinds.IsMissing("?"),
    kinds.ZeroIsMissing(),
    kinds.Encode(VALUES, "error", "step 'a', column 'b'"),
    kinds.Lookup(np.array([*np.linspace(0, 1, 12), math.nan])),
    kinds.Equals((0, 3)),
    curves.Bins(np.array([-1.0, 0.5])),
    curves.Quantile(np.array([1.0, 1.0, 2.0]), np.array([0.0, 0.5, 1.0]), 1e-7),
    curves.NormalQuantile(),
    curves.Power("box-cox", -0.5, True),
    HashText("column 'b'"),
    dates.Dates("%d/%m/%Y", True, True, "ns"),
    dates.DatePart("month", -1.0),
)


def there_and_back(parts: Parts, n_features: int = 3) -> Parts:
    found = codec.read(Parts, json.loads(codec.text(codec.write(parts))))
    found.check(n_features)
    return found


def test_every_step_comes_back() -> None:
    known = codec.hints.KINDS.values()
    assert {type(step) for step in ALL} == {kind for kind in known if issubclass(kind, kinds.Step)}
    found = there_and_back(Parts((Feed(Raw(2), ALL, False, True, "column 'b'"),)))
    (feed,) = found.feeds
    assert (feed.source, feed.allow_nan, feed.allow_inf, feed.where) == (Raw(2), False, True, "column 'b'")
    for step, again in zip(ALL, feed.steps, strict=True):
        assert type(step) is type(again)
        for name, value in vars(step).items():
            # What the field is, and of which type: 1, 1.0 and True are three values here.
            assert repr(getattr(again, name)) == repr(value) or value == getattr(again, name)
            assert type(getattr(again, name)) is (float if isinstance(value, np.float64) else type(value))
    encode = feed.steps[12]
    assert [type(one) for one in encode.categories] == [type(one) for one in VALUES]  # type: ignore[attr-defined]
    assert repr(encode.categories) == repr(VALUES)  # type: ignore[attr-defined]


def test_what_is_shared_stays_shared() -> None:
    inner = Normalize(Table((Column(Raw(0), (FILL,)), Column(Raw(1)))), "l1")
    outer = Normalize(Table((Column(Made(inner, 1)), Column(Raw(2), (FILL,)))), "max", True)
    table = Table((Column(Made(outer, 0), (), False, False), Column(Made(inner, 0))), True, ("a", "b"))
    found = there_and_back(Parts((Feed(Made(outer, 1), (FILL,)), Feed(Raw(0), (FILL,))), table))
    assert found.feeds[0].steps[0] is found.feeds[1].steps[0]
    again = found.table
    assert again is not None and again.names == ("a", "b") and again.sparse
    source = again.columns[0].source
    assert isinstance(source, Made) and isinstance(found.feeds[0].source, Made)
    operation = source.operation
    assert found.feeds[0].source.operation is operation
    assert isinstance(operation, Normalize) and (operation.norm, operation.sparse) == ("max", True)
    assert again.columns[1].source.operation is operation.inputs.columns[0].source.operation  # type: ignore[union-attr]
    assert (again.columns[0].allow_nan, again.columns[0].allow_inf) == (False, False)


def plain() -> dict[str, Any]:
    code = kinds.Encode(("a", "b"))
    norm = Normalize(Table((Column(Raw(0)), Column(Raw(1)))), "l2")
    feeds = (Feed(Raw(0), (code,)), Feed(Raw(1), (code, kinds.Lookup(np.zeros(3)))), Feed(Made(norm, 1)))
    found: dict[str, Any] = codec.write(Parts(feeds, Table((Column(Raw(2)),), False, ("a",))))
    return found


def read(data: dict[str, Any]) -> Parts:
    found = codec.read(Parts, data)
    found.check(3)
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("feeds", 0, "source"), 3),
        (("feeds", 0, "source"), -1),
        (("feeds", 0, "source"), True),
        (("feeds", 0, "source"), []),
        (("feeds", 2, "source"), [2, 2]),
        (("feeds", 2, "source"), [3, 0]),
        (("feeds", 2, "source"), [0, 0]),  # a step
        (("shared", 2, "inputs", "columns", 0, "source"), [2, 0]),
        (("shared", 2, "inputs", "columns"), [2]),
        (("shared", 2, "inputs", "columns"), []),
        (("shared", 2, "norm"), "l3"),
        (("feeds", 0, "steps"), [9]),
        (("feeds", 0, "steps"), [2]),  # an operation
        (("feeds", 0, "steps"), [1]),  # a look-up without codes
        (("feeds", 0, "where"), 3),
        (("feeds", 0, "allow_nan"), 1),
        (("feeds",), {}),
        (("shared", 0, "categories"), [["a"]]),
        (("shared", 0, "categories"), [{"float": "1"}]),
        (("shared", 0, "unknown"), "maybe"),
        (("shared", 0, "surprise"), 1),
        (("shared", 1, "values"), [0.0, 1.0]),  # fewer than codes
        (("shared", 1, "values"), ["a", "b", "c"]),
        (("table", "names"), ["a", "b"]),
        (("table", "columns"), []),
        (("shared", 0), []),
        (("shared", 0), {"kind": "Function", "name": "system"}),
    ],
)
def test_nonsense_is_refused(path: tuple[Any, ...], value: Any) -> None:
    data = plain()
    read(data)
    spot: Any = data
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    with pytest.raises(ValueError, match=r"\w"):
        read(data)


def test_kinds_that_are_not_known() -> None:
    for number in (0, 2):
        data = plain()
        data["shared"][number]["kind"] = "Ranks"
        with pytest.raises(CodecError, match=rf"^shared\[{number}\]\.kind is 'Ranks', which this version"):
            read(data)


@pytest.mark.parametrize("quantiles", [[0.0, 2.0, 1.0], [0.0, 1.0], []])
def test_quantiles_that_make_no_sense(quantiles: list[float]) -> None:
    data = plain()
    shares = [0.0, 0.5, 1.0]
    data["shared"][0] = {"kind": "Quantile", "quantiles": quantiles, "references": shares}
    with pytest.raises(CodecError, match=r"ascending numbers|quantiles have"):
        read(data)


class Own(RowOperation):
    """One that packages do not know."""

    inputs, width = Table((Column(Raw(0)),)), 1

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(CodecError, match=r"^feeds\[0\]\.source\[0\] is a Own, which has no form"):
        codec.write(Parts((Feed(Made(Own(), 0)),)))
    with pytest.raises(CodecError, match=r"steps\[0\]\.categories\[0\] is b'a'; JSON has no bytes"):
        codec.write(Parts((Feed(Raw(0), (kinds.Encode((b"a",)),)),)))
