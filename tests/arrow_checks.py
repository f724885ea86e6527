"""What is checked of the front in C; also in a process that sanitizers watch, as a program.

Nothing here imports more than scoring does, with pyarrow.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbtvm.errors import InputError
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Arithmetic, Encode, Fill
from hbtvm.graph.columns.table import Raw
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.front.front import Front, lowered_input
from hbtvm.runtime.rows.inputs import Inputs
from tests.arrow_fronts import (
    STATUS,
    WORDS,
    Array,
    FrontReader,
    Schema,
    assert_same,
    random_batch,
    random_feed,
)

BOTH = ("float32", "float64")
SIZES = (0, 1, 1, 2, 7, 60, 300)


def compare(reader: FrontReader, front: Front, inputs: FeedReader | Inputs, batch: Any) -> bool:
    """Whether Python reads a batch; C does the same."""
    found = reader.read(front, batch)
    try:
        expected = inputs.prepare(batch)
    except InputError as error:
        assert found.status > STATUS["malformed"], error
        return False
    assert found.status == 0 and found.matrix is not None, found
    assert_same(found.matrix, expected)
    return True


def dtypes_of(rng: np.random.Generator) -> tuple[tuple[str, ...], str]:
    dtypes = [BOTH, BOTH, ("float64",), ("float32",)][int(rng.integers(4))]
    return dtypes, ("float64", "float64", "float32")[int(rng.integers(3))]


def names_of(width: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in range(width))


def random_feeds(reader: FrontReader, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    n, width = int(rng.choice(SIZES)), int(rng.integers(1, 5))
    batch = random_batch(rng, n, width)
    feeds = tuple(random_feed(rng, int(rng.integers(width))) for _ in range(int(rng.integers(1, 4))))
    spec = InputSpec(width, names_of(width), by_name=bool(rng.random() < 0.5))
    dtypes, compared = dtypes_of(rng)
    given = spec, feeds, compared, dtypes, bool(rng.random() < 0.3)
    return compare(reader, lowered_input(*given), FeedReader(*given), batch)


def random_bare(reader: FrontReader, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    n, width = int(rng.choice(SIZES)), int(rng.integers(1, 5))
    batch, categories = random_batch(rng, n, width), dict[int, tuple[Any, ...]]()
    for i in range(width):
        text = "string" in str(batch.column(i).type)
        if rng.random() < 0.1:
            categories[i] = ()
        elif rng.random() < (0.6 if text or pa.types.is_dictionary(batch.column(i).type) else 0.1):
            categories[i] = (
                tuple(WORDS[j] for j in rng.permutation(5).tolist()) if text else (0, 1, 2, 0.5, -7)
            )
    spec = InputSpec(
        width,
        names_of(width),
        categories=categories,
        unknown_category="error" if rng.random() < 0.3 else "missing",
        numbers_are_categories=bool(rng.random() < 0.4),
        missing_value=(None, 2.0, 0.1)[int(rng.integers(3))],
    )
    dtypes, compared = dtypes_of(rng)
    apart = bool(rng.random() < 0.3)
    front = lowered_input(spec, (), compared, dtypes, apart)
    return compare(reader, front, Inputs(spec, compared, dtypes, apart), batch)


def simple(by_name: bool = True, **fields: Any) -> Front:
    feeds = (
        Feed(Raw(1), where="column 'number'"),
        Feed(Raw(0), (Fill("a", "?"), Encode(("a", "b"), "error", "column 'word'"))),
        Feed(Raw(1), (Arithmetic("add", 1.0),), allow_inf=False, where="column 'number'"),
    )
    spec = InputSpec(3, ("word", "number", "more"), by_name=by_name)
    return lowered_input(spec, fields.get("feeds", feeds), "float64", BOTH)


def given(**columns: Any) -> Any:
    whole = {"word": ["a", "b", "?", "a"], "number": [1.0, 2.0, 3.0, 4.0], "more": [0, 0, 0, 0], **columns}
    return pa.record_batch({name: pa.array(one) for name, one in whole.items()})


def changes() -> dict[str, Callable[[Schema, Array], object]]:
    """What is done to an exported batch so that it can't be one."""
    word, number = 0, 1

    def of_child(at: int, **fields: Any) -> Callable[[Schema, Array], object]:
        return lambda _, array: _set(array.children[at].contents, fields)

    def buffers(at: int, values: dict[int, Any]) -> Callable[[Schema, Array], object]:
        def change(_: Schema, array: Array) -> object:
            child = array.children[at].contents
            before = {i: child.buffers[i] for i in values}
            for i, value in values.items():
                child.buffers[i] = value
            return lambda: [child.buffers.__setitem__(i, value) for i, value in before.items()]

        return change

    def of_batch(**fields: Any) -> Callable[[Schema, Array], object]:
        return lambda _, array: _set(array, fields)

    made = {
        f"{field} {value}": of_batch(**{field: value})
        for field, values in {
            "length": (-1, 5, 2**62, 2**63 - 1),
            "offset": (-1, 1, 2**62),
            "null_count": (-2, 5, 1),
            "n_buffers": (0, -1, 2),
            "n_children": (2, -1, 4),
        }.items()
        for value in values
    }
    made |= {
        f"{'number' if at else 'word'} {field} {value}": of_child(at, **{field: value})
        for at in (word, number)
        for field, values in {
            "length": (-1, 3, 0),
            "offset": (-1, 2**62),
            "null_count": (-2, 9, 2),
            "n_buffers": (0, 1, -1, 9),
        }.items()
        for value in values
    }
    return {
        **made,
        "no format": lambda schema, _: _set(schema, {"format": None}),
        "no batch": lambda schema, _: _set(schema, {"format": b"+l"}),
        "a child without a format": lambda schema, _: _set(
            schema.children[number].contents, {"format": None}
        ),
        "numbers for texts": lambda schema, _: _set(schema.children[word].contents, {"format": b"g"}),
        "texts for numbers": lambda schema, _: _set(schema.children[number].contents, {"format": b"u"}),
        "no children": lambda _, array: _set(array, {"children": None}),
        "no numbers": buffers(number, {1: None}),
        "no offsets": buffers(word, {1: None}),
        "no bytes": buffers(word, {2: None}),
        "falling offsets": _with_offsets([0, 3, 2, 3, 4]),
        "negative offsets": _with_offsets([-1, 0, 1, 2, 3]),
        "released": lambda _, array: _set(array, {"release": type(array.release)()}),
        "a released child": of_child(number, release=ctypes.CFUNCTYPE(None, ctypes.c_void_p)()),
        "a dictionary for none": lambda schema, _: _set(
            schema.children[word].contents, {"dictionary": schema.children[number]}
        ),
    }


def _set(of: Any, fields: dict[str, Any]) -> Callable[[], None]:
    places = {name: getattr(type(of), name) for name in fields}
    before = {name: bytes(of)[at.offset : at.offset + at.size] for name, at in places.items()}
    for name, value in fields.items():
        setattr(of, name, value)

    def undo() -> None:
        for name, data in before.items():
            ctypes.memmove(ctypes.addressof(of) + places[name].offset, data, len(data))

    return undo


def _with_offsets(offsets: list[int]) -> Callable[[Schema, Array], object]:
    data = np.array(offsets, np.int32)

    def change(_: Schema, array: Array) -> object:
        child = array.children[0].contents
        before = child.buffers[1]
        child.buffers[1] = data.ctypes.data
        return lambda: child.buffers.__setitem__(1, before)

    return change


def malformed(reader: FrontReader) -> None:
    front, good = simple(), given()
    for name, change in changes().items():
        found = reader.read(front, good, change)
        assert found.status == STATUS["malformed"], (name, found)
    assert reader.read(front, good).status == 0
    # Whether there are nulls need not be told.
    lost = given(word=["a", "?", "b", "a"], number=[1.0, None, 2.0, 3.0])
    unknown = reader.read(front, lost, lambda _, array: _set(array.children[1].contents, {"null_count": -1}))
    assert unknown.status == 0 and unknown.matrix is not None and np.isnan(unknown.matrix[1, 0])
    encoded = given(word=pa.array(["a", "b", "b", "a"]).dictionary_encode())
    for value in (2, -1, 2**31 - 1):
        index = np.array([0, value, 1, 0], np.int32)

        def other(_: Schema, array: Array, index: np.ndarray = index) -> object:
            child = array.children[0].contents
            before = child.buffers[1]
            child.buffers[1] = index.ctypes.data
            return lambda: child.buffers.__setitem__(1, before)

        assert reader.read(front, encoded, other).status == STATUS["malformed"]
    fewer = reader.read(
        front, encoded, lambda _, array: _set(array.children[0].contents.dictionary.contents, {"length": 1})
    )
    assert fewer.status == STATUS["malformed"]
    views = given(word=pa.array(["a", "b", "b" * 50, "a"], pa.string_view()))
    for i, value in ((8, 1), (12, 1), (8, -1), (12, -1), (4 - 4, -5), (0, 2**31 - 1)):
        view = np.frombuffer(views.column(0).buffers()[1], np.int32).copy()
        view[8 + i // 4] = value

        def moved(_: Schema, array: Array, view: np.ndarray = view) -> object:
            child = array.children[0].contents
            before = child.buffers[1]
            child.buffers[1] = view.ctypes.data
            return lambda: child.buffers.__setitem__(1, before)

        assert reader.read(front, views, moved).status == STATUS["malformed"], (i, value)


def _run_all(library: str, texts: str) -> None:
    """Random and malformed batches, and pickled fronts with batches of texts."""
    reader = FrontReader(Path(library))
    for seed in range(10_000, 10_080):
        random_feeds(reader, seed)
        random_bare(reader, seed)
    malformed(reader)
    for front, batch in pickle.loads(Path(texts).read_bytes()):
        assert reader.read(front, batch).status == 0
    print("done")


if __name__ == "__main__":
    _run_all(*sys.argv[1:])
