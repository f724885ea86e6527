"""Matrices that C reads from Arrow's record batches: bit for bit as Python's readers make them."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.graph.columns.categories import CategoryList
from hbtvm.graph.columns.curves import NormalQuantile, Power
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.steps import Encode, Fill, Function
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.refused_rows import INTEGERS, RefusedTypes
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.front.front import lowered_input
from hbtvm.runtime.native.front.values import constant, hash_of
from hbtvm.runtime.native.functions import EXACT, NUMBERS
from hbtvm.runtime.rows.inputs import Inputs
from tests.arrow_checks import BOTH, compare, given, malformed, names_of, random_bare, random_feeds, simple
from tests.arrow_fronts import FLAGS, NATIVE, STATUS, WORDS, FrontReader


@pytest.mark.parametrize("one", [random_feeds, random_bare])
def test_random_columns(reader: FrontReader, one: Callable[[FrontReader, int], bool]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = [one(reader, seed) for seed in range(250)]
    assert 75 < sum(read) < 225


def test_hashes(reader: FrontReader) -> None:
    for value in (*WORDS, 0, -1, 1.5, 2**63 + 1, 1e300):
        one = constant(value)
        assert one is not None
        data = one.text or one.bits.to_bytes(8, "little") if one.kind != 1 else one.text
        assert reader.hash(one.kind, data) == hash_of(one)
    assert constant(True) == constant(1) == constant(1.0) != constant("1")
    assert constant(2.0**63) == constant(2**63) and constant(-0.0) == constant(0)
    assert constant(10**400) is None and constant((1,)) is None and constant(2**53 + 1) != constant(2.0**53)


def test_errors_tell_where(reader: FrontReader) -> None:
    front, dates = simple(), pa.array([0, 1, 2, 3], pa.date32())
    cases: list[tuple[str, Any, tuple[int, int, int]]] = [
        ("unknown_category", given(word=["a", "b", "c", "a"]), (2, 0, 0)),
        ("unknown_category", given(word=pa.array(["a", "c", "b", "c"]).dictionary_encode()), (1, 0, 0)),
        ("unknown_category", given(word=[1, 2, 3, 4]), (0, 0, 0)),
        ("null", given(word=["a", None, "c", "a"]), (1, 0, 0)),
        ("null", given(word=pa.nulls(4)), (0, 0, 0)),
        ("not_a_number", given(number=["1", None, "x", "y"]), (0, 1, 1)),
        ("infinity", given(number=[0.0, 1.0, 2.0, np.inf]), (3, 1, 1)),
        ("type", given(number=dates), (-1, 1, 1)),
        ("type", given(number=pa.array([1, 2, 3, 4], pa.decimal128(9, 2))), (-1, 1, 1)),
        ("type", given(word=pa.array([b"a"] * 4)), (-1, 0, 0)),
        ("type", given(word=pa.array([["a"]] * 4)), (-1, 0, 0)),
        ("type", given(word=pa.DictionaryArray.from_arrays(pa.array([0] * 4), dates)), (-1, 0, 0)),
        ("missing_column", given().drop_columns(["number"]), (-1, 1, -1)),
        ("column_twice", pa.record_batch([[1.0], ["a"], [2.0]], ["number", "word", "number"]), (-1, 1, 0)),
    ]
    for name, batch, place in cases:
        found = reader.read(front, batch)
        assert (found.status, found.row, found.column, found.given) == (STATUS[name], *place), name
    assert reader.read(front, given(more=dates)).status == 0
    # By position, or of exactly these names.
    front = simple(by_name=False)
    word, number, more = given().columns
    twice = pa.record_batch([word, number, more, more], ["word", "number", "more", "more"])
    for name, batch, place in (
        ("missing_column", pa.record_batch([word, number], ["word", "number"]), (-1, 2, -1)),
        ("missing_column", pa.record_batch([word, number, more], ["word", "number", "other"]), (-1, 2, -1)),
        ("extra_column", given(another=[1, 2, 3, 4]), (-1, -1, 3)),
        ("column_order", pa.record_batch([number, word, more], ["number", "word", "more"]), (-1, 0, 0)),
        ("column_twice", twice, (-1, 2, 3)),
    ):  # fmt: skip
        found = reader.read(front, batch)
        assert (found.status, found.row, found.column, found.given) == (STATUS[name], *place), name
    unnamed = lowered_input(InputSpec(2), (Feed(Raw(0)),), "float64", BOTH)
    assert reader.read(unnamed, given()).status == STATUS["column_count"]
    assert reader.read(unnamed, given().drop_columns(["word"])).status == 0
    spaces = lowered_input(InputSpec(2, ("a_b", "c")), (), "float64", BOTH)
    assert reader.read(spaces, pa.record_batch([[1.0], [2.0]], ["a b", "c"])).status == 0


def test_lists_of_categories(reader: FrontReader) -> None:
    """LightGBM's files have the categories of a data frame's columns, but not which columns these were."""
    order = CategoryList(("a", "b"), (0, 1)), CategoryList(("b", "c", 7), (1, 2))
    spec = InputSpec(3, names_of(3), category_order=order)
    front, inputs = lowered_input(spec, (), "float64", BOTH), Inputs(spec, "float64", BOTH)
    words, numbers = pa.array(["a", "b", None, "c"]).dictionary_encode(), pa.array([1, 2, 3, 4])
    levels = pa.array([7, 8, None, 7]).dictionary_encode()
    for columns in ([words, words, numbers], [words, numbers, words], [numbers, words, levels]):
        assert compare(reader, front, inputs, pa.record_batch(columns, names_of(3)))
    lost = pa.array([None] * 4, pa.string())
    assert compare(reader, front, inputs, pa.record_batch([words, words, lost], names_of(3)))
    for columns in ([words, numbers, numbers], [words, words, words], [numbers, numbers, numbers]):
        batch = pa.record_batch(columns, names_of(3))
        assert not compare(reader, front, inputs, batch)
        assert reader.read(front, batch).status == STATUS["not_a_category"]
    texts = words.cast(pa.string())
    for columns in ([texts, words, numbers], [texts, numbers, texts], [words, texts, numbers]):
        assert compare(reader, front, inputs, pa.record_batch(columns, names_of(3)))


def test_bare_errors(reader: FrontReader) -> None:
    spec = InputSpec(2, ("word", "x"), categories={0: ("a", "b")}, unknown_category="error")
    front = lowered_input(spec, (), "float64", BOTH)
    for name, word, x, row in (
        ("unknown_category", ["a", "c"], [1.0, 2.0], 1),
        ("not_a_category", [1, 2], [1.0, 2.0], -1),
        ("not_a_number", ["a", None], [None, "y"], 1),
        ("type", pa.nulls(2), [1.0, 2.0], -1),
    ):
        batch = pa.record_batch({"word": pa.array(word), "x": pa.array(x)})
        found = reader.read(front, batch)
        assert (found.status, found.row) == (STATUS[name], row), name
        with pytest.raises(InputError):
            Inputs(spec, "float64", BOTH).prepare(batch)
    front = lowered_input(InputSpec(1), (), "float64", ("float32",))
    assert reader.read(front, pa.record_batch([[0.5, 0.1]], ["x"])).status == STATUS["inexact"]
    assert reader.read(front, pa.record_batch([[2**24 + 1]], ["x"])).status == STATUS["inexact"]


@pytest.mark.parametrize("feeds", [(), (Feed(Raw(0)), Feed(Raw(1)))])
def test_refused_types(reader: FrontReader, feeds: tuple[Feed, ...]) -> None:
    rule = RefusedTypes((1,), ("bool", "int8", "uint64"), "the step")
    spec = InputSpec(2, types_refused=(rule,))
    front = lowered_input(spec, feeds, "float64", BOTH)
    inputs = FeedReader(spec, feeds, "float64", BOTH) if feeds else Inputs(spec, "float64", BOTH)
    for name in (*INTEGERS, "float", "double"):
        values = pa.array([1, 0, 1]).cast(name)
        for column in (values, values.dictionary_encode()):
            batch = pa.record_batch([values, column], ["x", "y"])
            assert compare(reader, front, inputs, batch) == (name not in rule.types)
            if name in rule.types:
                found = reader.read(front, batch)
                assert (found.status, found.row, found.column) == (STATUS["type"], -1, 1)
    both = replace(spec, types_refused=(replace(rule, columns=(0, 1), together=True),))
    with pytest.raises(UnsupportedModel, match="the step computes in its columns' common type"):
        lowered_input(both, feeds, "float64", BOTH)


def test_batches_with_an_offset_and_null_rows(reader: FrontReader) -> None:
    """A batch is a struct, which may be a slice of another and have rows that are null."""
    feeds = (
        Feed(Raw(1)),
        Feed(Raw(0), (Encode(("a", "b", np.nan)),)),
        Feed(Raw(2), (Fill(7), Encode((0, 7)))),
    )
    front = simple(feeds=feeds)
    children = [pa.array(["x", "a", "b", "a", "b"])[1:], pa.array([9.0, 1.0, 2.0, 3.0, 4.0])[1:], pa.nulls(4)]
    mask = pa.array([False, False, True, False])
    rows = pa.StructArray.from_arrays(children, ["word", "number", "more"], mask=mask)
    for start in (0, 1, 2):
        found = reader.read(front, rows[start:]).matrix
        expected = np.array([[1, 0, 1], [2, 1, 1], [np.nan, 2, 1], [4, 1, 1]], np.float64)[start:]
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_malformed_batches(reader: FrontReader) -> None:
    malformed(reader)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_compilers_have_nothing_to_say(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    strict = [
        *FLAGS[:1],
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wshadow",
        "-Wconversion",
        "-Werror",
    ]
    subprocess.run(
        [compiler, *strict, f"-I{NATIVE}", *map(str, sorted(NATIVE.glob("arrow/*.c")))], check=True
    )


def test_functions_of_libm(reader: FrontReader) -> None:
    """Weighted sums take functions whose last bits are not numpy's."""
    spec, values = InputSpec(1), np.concatenate([np.linspace(-3, 9, 200), [0, -0.0, np.nan, 1e-9, 80]])
    names = sorted({*NUMBERS} - EXACT)
    feeds = tuple(Feed(Raw(0), (Function(name),), where=name) for name in names)
    for dtype in (np.float32, np.float64):
        batch = pa.record_batch([pa.array(values.astype(dtype))], ["x"])
        found = reader.read(lowered_input(spec, feeds, "float64", BOTH, exact=False), batch).matrix
        expected = FeedReader(spec, feeds, "float64", BOTH).prepare(batch)
        assert found is not None and found.dtype == expected.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps, atol=1e-300)
    with pytest.raises(UnsupportedModel, match=f"{names[0]}: numpy's function {names[0]} can't"):
        lowered_input(spec, feeds, "float64", BOTH)


def test_refused_steps() -> None:
    spec = InputSpec(2, ("x", "y"))
    inputs = Table((Column(Raw(0)), Column(Raw(1))))
    for feed, said in (
        (Feed(Raw(0), (Function("log1p"),), where="column 'x'"), "column 'x': numpy's function log1p can't"),
        (Feed(Raw(0), (Power("yeo-johnson", 0.5),), where="column 'x'"), "column 'x': the step Power can't"),
        (Feed(Raw(0), (NormalQuantile(),), where="column 'x'"), "the step NormalQuantile can't"),
        (Feed(Made(Normalize(inputs, "l2"), 0), where="here"), "here: the operation Normalize can't"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedModel, match=said):
            lowered_input(spec, (feed,), "float64", BOTH)
