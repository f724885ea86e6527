"""The codec between dataclasses and JSON: everything comes back with its type; nothing else is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pprint import pformat
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm import codec
from hbtvm.codec import CodecError, Member, Within


@dataclass(frozen=True)
class Leaf:
    name: str
    size: Annotated[int, Within(1, 100)] = 1

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("a leaf is bad")


@dataclass(frozen=True)
class Pair:
    left: float
    right: float

    def validate(self) -> None:
        if self.left > self.right:
            raise ValueError(f"{self.left} is above {self.right}")


@dataclass(frozen=True, eq=False)
class Node:
    """A family: shared by identity."""

    label: str


@dataclass(frozen=True, eq=False)
class Inner(Node):
    parts: tuple[Node, ...] = ()


codec.share(Node, Node, Inner)


@dataclass(frozen=True, eq=False)
class Everything:
    flag: bool
    count: int
    ratio: float
    text: str
    kind: Literal["a", "b"]
    leaf: Leaf
    either: Leaf | Pair
    extents: tuple[int | str, ...]
    cells: tuple[codec.Scalar, ...]
    fixed: tuple[str, float]
    maybe: int | None = None
    several: Mapping[str, tuple[Leaf, ...]] = field(default_factory=dict)
    by_number: dict[int, tuple[codec.Scalar, ...]] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    numbers: codec.Numbers | None = None
    table: np.ndarray | None = None
    code: Annotated[bytes, Member("kernels")] = b""
    nodes: tuple[Node, ...] = ()
    cached: Annotated[Any, codec.SKIP] = None


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3)
TEXTS, FLOATS = st.text(max_size=3), st.floats()
LEAVES = st.builds(Leaf, TEXTS.filter(lambda name: name != "bad"), st.integers(1, 99))
PAIRS = st.builds(Pair, st.floats(-9, 0), st.floats(0, 9))
FREE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
ANYTHING = st.builds(
    Everything,
    flag=st.booleans(), count=st.integers(-(2**63), 2**63), ratio=FLOATS, text=TEXTS,
    kind=st.sampled_from(["a", "b"]), leaf=LEAVES, either=LEAVES | PAIRS,
    extents=st.lists(st.integers(0, 9) | TEXTS, max_size=4).map(tuple),
    cells=st.lists(SCALARS, max_size=5).map(tuple), fixed=st.tuples(TEXTS, FLOATS),
    maybe=st.none() | st.integers(0, 9),
    several=st.dictionaries(TEXTS, st.lists(LEAVES, max_size=2).map(tuple), max_size=2),
    by_number=st.dictionaries(st.integers(0, 9), st.lists(SCALARS, max_size=2).map(tuple), max_size=2),
    free=st.dictionaries(TEXTS, FREE, max_size=3),
    numbers=st.none() | st.lists(FLOATS, max_size=3).map(lambda values: np.array(values, float)),
)  # fmt: skip


def there_and_back(value: Any) -> Any:
    """Through the bytes of a file."""
    members: dict[str, Any] = {}

    def add(content: Any, folder: str) -> str:
        members[f"{folder}/{len(members)}"] = content
        return f"{folder}/{len(members) - 1}"

    data = codec.text(codec.write(value, add))
    assert data == codec.text(json.loads(data))
    return codec.read(type(value), codec.parse(data), members)


def plain() -> Everything:
    shared = Node("x")
    return Everything(
        True, 3, 0.5, "t", "a", Leaf("l"), Pair(0.0, 1.0), (1, "n"), (None, 1, 1.0, True, "s"), ("f", 1.0),
        several={"m": (Leaf("k", 2),)}, by_number={3: (1,)}, free={"deep": [{"x": 1}]},
        numbers=np.arange(2.0), table=np.arange(3), code=b"code", nodes=(Inner("i", (shared,)), shared),
    )  # fmt: skip


@settings(max_examples=80, deadline=None, derandomize=True)
@given(ANYTHING)
def test_everything_comes_back_with_its_type(value: Everything) -> None:
    if any(set(one) == {"float"} for one in objects(value.free)):
        return  # the one object that a free value may not have
    again = there_and_back(value)
    for name, one in vars(value).items():
        other = getattr(again, name)
        assert type(other) is type(one) and pformat(other) == pformat(one), name


def objects(value: Any) -> list[Mapping[str, Any]]:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [
        *([value] if isinstance(value, Mapping) else []),
        *(found for one in inner for found in objects(one)),
    ]


def test_members_and_shared_objects() -> None:
    value = plain()
    again = there_and_back(value)
    assert again.code == b"code" and again.table.tolist() == [0, 1, 2]
    inner, shared = again.nodes
    assert type(inner) is Inner and inner.parts[0] is shared and (inner.label, shared.label) == ("i", "x")
    assert codec.write(value, lambda one, folder: folder)["shared"][0] == {"kind": "Node", "label": "x"}


def test_numpys_scalars_are_pythons() -> None:
    again = there_and_back(Pair(np.float32(0.5), np.float64("inf")))
    assert (type(again.left), again.right) == (float, math.inf)
    assert codec.write(Leaf(np.str_("a"), np.int64(7))) == {"name": "a", "size": 7}


def test_defaults_are_left_out() -> None:
    assert codec.write(Leaf("a")) == {"name": "a"}
    assert codec.read(Leaf, {"name": "a"}) == Leaf("a")


WRONG: list[tuple[str, Any, str]] = [
    ("flag", 1, "flag is 1; expected true or false"),
    ("count", True, "count is True; expected a whole number"),
    ("count", 1.0, "count is 1.0; expected a whole number"),
    ("count", 2**1000, "expected a whole number"),
    ("ratio", "1", "ratio is '1'; expected a number"),
    ("ratio", {"float": "1"}, "expected a number"),
    ("ratio", {"float": []}, "expected a number"),
    ("ratio", math.inf, "expected a number"),
    ("text", None, "text is None; expected a text"),
    ("kind", "c", "kind is 'c'; expected one of 'a', 'b'"),
    ("kind", [], "kind is []"),
    ("leaf", [], "leaf is []; expected an object"),
    ("leaf", {"name": "a", "size": 0}, "leaf.size is 0; expected a whole number from 1 to below 100"),
    ("leaf", {"name": "a", "size": 100}, "leaf.size is 100"),
    ("leaf", {"name": "bad"}, "leaf: a leaf is bad"),
    ("leaf", {"name": "a", "more": 1}, "leaf: the field 'more' is unknown"),
    ("leaf", {}, "leaf: the field 'name' is missing"),
    ("either", {"kind": "Pair", "left": 2, "right": 1}, "either: 2.0 is above 1.0"),
    ("either", {"kind": "Other"}, "either.kind is 'Other', which this version of hbtvm does not know"),
    ("either", {"name": "a"}, "either.kind is None"),
    ("extents", 3, "extents is 3; expected a list"),
    ("extents", [1, 2.5], "extents[1] is 2.5"),
    ("cells", [[1]], "cells[0] is [1]"),
    ("fixed", ["a"], "fixed is ['a']; expected 2 values"),
    ("fixed", ["a", "b"], "fixed[1] is 'b'"),
    ("maybe", "x", "maybe is 'x'"),
    ("several", {"m": [{"name": "a"}, {"name": 1}]}, "several.m[1].name is 1; expected a text"),
    ("by_number", [[1, []], [1, []]], "by_number: a key occurs twice"),
    ("by_number", {}, "expected a list"),
    ("free", [], "expected an object"),
    ("numbers", ["a"], "numbers[0] is 'a'"),
    ("table", "kernels/1", "table is 'kernels/1'; expected the name of a member in tables/"),
    ("table", "tables/9", "table is 'tables/9'"),
    ("code", "tables/0", "code is 'tables/0'; expected the name of a member in kernels/"),
    ("code", ["kernels/1"], "code is ['kernels/1']"),
    ("nodes", [2], "nodes[0] is 2; expected the number of a Node in shared"),
    ("nodes", [True], "nodes[0] is True"),
    ("shared", [{"kind": "Inner", "label": "i", "parts": [0]}], "shared[0].parts[0] is 0"),
    ("shared", [{"kind": "Leaf", "name": "a"}], "shared[0].kind is 'Leaf'"),
    ("shared", {}, "shared"),
    ("cached", 1, "the field 'cached' is unknown"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_what_is_wrong_is_named(name: str, value: Any, message: str) -> None:
    members: dict[str, Any] = {"tables/0": np.arange(3), "kernels/1": b"code"}
    names = {np.ndarray: "tables/0", bytes: "kernels/1"}
    document = codec.write(plain(), lambda one, folder: names[type(one)])
    codec.read(Everything, document, members)
    with pytest.raises(CodecError) as caught:
        codec.read(Everything, {**document, name: value}, members)
    assert message in str(caught.value)


def test_nesting_is_bounded() -> None:
    deep: Any = 0
    for _ in range(codec.MOST_DEPTH):
        deep = [deep]
    document = codec.write(plain(), lambda one, folder: folder)
    del document["table"], document["code"]
    codec.read(Everything, {**document, "free": {"x": deep[0]}})
    with pytest.raises(CodecError, match=r"^free.x.* is nested more than 32 levels deep"):
        codec.read(Everything, {**document, "free": {"x": [deep]}})
    for text in ("[" * 100_000, "{", "NaN", '{"a": Infinity}', "1" * 5000):
        with pytest.raises(CodecError, match="is not JSON"):
            codec.parse(text)


@pytest.mark.parametrize("value", [b"bytes", object(), {1}])
def test_what_json_lacks_is_refused(value: Any) -> None:
    for name in ("free", "cells"):
        given = {"free": {"x": [value]}, "cells": (1, value)}[name]
        broken = Everything(**{**vars(plain()), name: given})
        with pytest.raises(CodecError, match=rf"^{name}.*; JSON has no {type(value).__name__}"):
            codec.write(broken, lambda one, folder: folder)


def test_a_class_without_a_form() -> None:
    @dataclass(frozen=True, eq=False)
    class Other(Node):
        pass

    with pytest.raises(CodecError, match=r"^nodes\[0\] is a Other, which has no form"):
        codec.write(Everything(**{**vars(plain()), "nodes": (Other("o"),)}), lambda one, folder: folder)


@codec.bound
@dataclass(frozen=True)
class Sealed:
    rows: int
    scale: float = 1.0


@pytest.mark.parametrize("change", [{"rows": 4}, {"scale": 1.0}, {"binding": None}, {"binding": "0" * 64}])
def test_a_change_of_what_is_bound_is_noticed(change: dict[str, Any]) -> None:
    document = codec.write(Sealed(3))
    assert codec.read(Sealed, document) == Sealed(3)
    changed = {**document, **change}
    with pytest.raises(CodecError, match="its hash does not match"):
        codec.read(Sealed, changed)
    if "binding" not in change:
        codec.read(Sealed, {**changed, "binding": codec.binding(changed)})
