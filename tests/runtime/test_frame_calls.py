"""Small frames of pandas that C reads: beside Python's reader, over types, layouts and forms of frames."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.native import blocks, chunks, frames, library
from hbtvm.runtime.native.blocks import block_places
from hbtvm.runtime.native.chunks import chunk_types

RNG = np.random.default_rng(11)
ROWS = 300
NUMBERS = ["a", "b", "c"]
TEXTS = ["city", "kind"]


def mixed(n: int = ROWS) -> Any:
    """A frame of three numbers, some missing, and two columns of texts."""
    frame = pd.DataFrame({name: RNG.normal(size=n).round(2) for name in NUMBERS})
    frame.loc[RNG.random(n) < 0.1, "b"] = np.nan
    frame["city"] = RNG.choice(["Rome", "Oslo", "São Paulo", "北京"], n)
    frame["kind"] = RNG.choice(["x", "y"], n)
    return frame.astype(dict.fromkeys(TEXTS, "str"))


FRAME = mixed()
Y = (FRAME["a"] > 0) ^ (FRAME["kind"] == "x")


def one_hot() -> Any:
    number = make_pipeline(SimpleImputer(), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("n", number, NUMBERS), ("t", texts, TEXTS)])
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, Y)


def ordinal() -> Any:
    texts = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = ColumnTransformer([("n", "passthrough", NUMBERS), ("t", texts, TEXTS)])
    return make_pipeline(columns, RandomForestClassifier(5, max_depth=4, random_state=0)).fit(FRAME, Y)


def numeric() -> Any:
    return make_pipeline(StandardScaler(), Ridge()).fit(FRAME[NUMBERS].fillna(0), Y)


def bare() -> Any:
    return RandomForestClassifier(5, max_depth=4, random_state=0).fit(FRAME[NUMBERS], Y)


def compiled(model: Any) -> hbtvm.Model:
    return hbtvm.compile(model, batch_sizes=20, threads=1)


@pytest.fixture(scope="module")
def models() -> dict[str, hbtvm.Model]:
    """Compiled models that know the frame's layout."""
    made = {}
    for make in (one_hot, ordinal, numeric, bare):
        model = made[make.__name__] = compiled(make())
        for _ in range(2):
            model.predict(rows_of(make.__name__))
        assert model._calls[None](rows_of(make.__name__)) is not None
    return made


def rows_of(name: str, n: int = 20) -> Any:
    frame = mixed(n)
    return frame if name in ("one_hot", "ordinal") else frame[NUMBERS].fillna(0.5)


def by_python(model: hbtvm.Model, rows: Any) -> Any:
    kernels = model._kernels
    assert kernels.host is not None
    return kernels.host.prepared[None](kernels.inputs.prepare(rows))


def as_type(dtype: str) -> Callable[[Any], Any]:
    return lambda frame: frame.assign(a=(frame["a"] * 3).round().clip(0, 100).astype(dtype))


FORMS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda frame: frame,
    "one row": lambda frame: frame.iloc[3:4],
    "a slice": lambda frame: frame.iloc[2:9],
    "every other row": lambda frame: frame.iloc[::2],
    "a copy": lambda frame: frame.copy(),
    "new columns": lambda frame: pd.DataFrame({name: frame[name].to_numpy() for name in frame}),
    "an index": lambda frame: frame.set_index(np.arange(len(frame))[::-1] * 2),
    "shuffled rows": lambda frame: frame.sample(frac=1, random_state=0),
    **{kind: as_type(kind) for kind in ("float32", "float16", "int64", "int32", "int16", "int8", "uint8",
                                        "uint32", "uint64", "bool", "Int64", "category", "object",
                                        "float64[pyarrow]", "str")},
}  # fmt: skip


@pytest.mark.parametrize("name", ["one_hot", "ordinal", "numeric", "bare"])
def test_equals_python(models: dict[str, hbtvm.Model], name: str) -> None:
    """C returns what Python's reader leads to, or nothing."""
    model, read = models[name], set()
    for title, form in FORMS.items():
        for n in (20, 1):
            if n == 1 and title in ("one row", "a slice"):
                continue
            rows = form(rows_of(name, n))
            try:
                expected = by_python(model, rows)
            except InputError:
                expected = None
            result = model._calls[None](rows)
            if result is not None:
                read.add((title, n))
                np.testing.assert_array_equal(result, expected, err_msg=f"{title}, {n} rows")
                assert expected is not None and result.dtype == expected.dtype
    assert {(title, 20) for title in list(FORMS)[:7] if title != "a copy"} <= read | {("new columns", 20)}
    for title in ("float32", "int64", "int32"):
        assert {(title, 20), (title, 1)} <= read
    assert not {title for title, _ in read} & {"Int64", "category", "object", "str"}


def test_missing_and_unknown_texts(models: dict[str, hbtvm.Model]) -> None:
    rows = rows_of("one_hot", 4)
    rows["city"] = pd.array(["Lima", None, "Oslo", ""], "str")
    for name in ("one_hot", "ordinal"):
        for part in (rows, rows.iloc[1:2], rows.iloc[:1]):
            result = models[name]._calls[None](part)
            assert result is not None
            np.testing.assert_array_equal(result, by_python(models[name], part))


@pytest.mark.parametrize("storage", ["pyarrow", "python"])
def test_storage_of_texts(models: dict[str, hbtvm.Model], storage: str) -> None:
    if storage == "pyarrow":
        pytest.importorskip("pyarrow")
    rows = rows_of("one_hot").astype(dict.fromkeys(TEXTS, pd.StringDtype(storage)))
    rows.loc[2, "city"] = None
    result = models["one_hot"]._calls[None](rows)
    assert (result is not None) == (storage == "pyarrow")
    np.testing.assert_array_equal(models["one_hot"].predict(rows), by_python(models["one_hot"], rows))


@pytest.mark.parametrize("in_place", [True, False])
def test_texts_in_place_and_from_a_stream(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    if not in_place:
        monkeypatch.setattr(frames, "chunk_types", lambda: None)
    frames._api.cache_clear()
    model, rows = compiled(one_hot()), rows_of("one_hot", 12)
    rows["city"] = pd.array(["Lima", None, "Oslo", "", "北京", "Rome"] * 2, "str")
    for _ in range(2):
        model.predict(rows)
    frames._api.cache_clear()
    reader = model._kernels.host._frames.reader  # type: ignore[union-attr]
    assert bool(reader.fields.api.contents.chunked_type) == (in_place and chunk_types() is not None)
    halves = [arrow.array(rows["city"])[:5], arrow.array(rows["city"])[5:]]
    for texts in (arrow.chunked_array(halves), arrow.chunked_array(halves).cast("string")):
        whole = rows.assign(city=type(rows["city"].array)(texts.cast("large_string")))
        whole["city"].array._pa_array = texts
        for part in (whole, whole.iloc[1:2], whole.iloc[7:], whole.iloc[4:7], whole.iloc[::3]):
            result = model._calls[None](part)
            assert result is not None or part["city"].array._pa_array.num_chunks > 1
            np.testing.assert_array_equal(model.predict(part), by_python(model, part))


def test_layout_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    found = chunk_types()
    if sys.platform == "linux":
        assert found is not None and found[0] == id(arrow.ChunkedArray)
    for name in ("_CHUNKED", "pread"):
        chunk_types.cache_clear()
        with monkeypatch.context() as patch:
            if name == "pread":
                patch.setattr(chunks.os, name, lambda memory, count, at: b"\0" * count)
            else:
                patch.setattr(chunks, name, 3)
            assert chunk_types() is None
    chunk_types.cache_clear()


@pytest.mark.parametrize("known", [True, False])
def test_fields_in_place_and_as_attributes(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    places = block_places()
    monkeypatch.setattr(library, "block_places", lambda: places if known else None)
    library.load_library.cache_clear()  # a library keeps the places
    for name in ("one_hot", "numeric"):
        model, rows = compiled(globals()[name]()), rows_of(name, 12)
        for part in (rows, rows.iloc[2:3], rows.iloc[::2], rows.copy(), rows.assign(b=rows["b"] * 2)):
            for _ in range(2):
                np.testing.assert_array_equal(model.predict(part), by_python(model, part))
            assert model._calls[None](part) is not None
    library.load_library.cache_clear()


def test_places_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    places = block_places()
    assert places is not None and places.manager_type == id(type(FRAME._mgr))
    for frame in (FRAME, FRAME.iloc[3:5], pd.DataFrame({"x": ["a"], "y": [1.0]})):
        manager = frame._mgr
        assert len(manager.blknos) == frame.shape[1]
        for field, name in (
            ("blocks", "blocks"),
            ("axes", "axes"),
            ("numbers", "_blknos"),
            ("places", "_blklocs"),
        ):
            at = ctypes.c_void_p.from_address(id(manager) + getattr(places, field)).value
            assert at == id(getattr(manager, name))
    block_places.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "_FIELDS", {**blocks._FIELDS, "numbers": "shape"})  # a new object each time
        assert block_places() is None
    block_places.cache_clear()


def test_layouts() -> None:
    """Four orders of columns are remembered; frames in others are read by Python."""
    pipe = one_hot()
    model = compiled(pipe)
    names = list(FRAME.columns)
    orders = [
        names,
        names[::-1],
        [*names[2:], "other", *names[:2]],
        names[1:] + names[:1],
        names[2:] + names[:2],
    ]
    rows = mixed(6).assign(other=1.0)
    for _ in range(3):
        for order in orders:
            np.testing.assert_array_equal(model.predict(rows[order]), pipe.predict(rows[order]))
    known = [model._calls[None](rows[order].copy()) is not None for order in orders]
    assert sum(known) == 4
    renamed = rows.rename(columns={"city": "town"})
    assert model._calls[None](renamed) is None
    with pytest.raises(InputError, match="column 'city', which the pipeline reads, is missing"):
        model.predict(renamed)


def test_threads_learn_layouts() -> None:
    """Threads that pass frames in different orders at once get the answers of their own rows."""
    pipe = ordinal()
    model = compiled(pipe)
    model.warm_up()
    orders = [list(np.roll(list(FRAME.columns), shift)) for shift in range(5)]
    blocks = [mixed(30)[order] for order in orders for _ in range(4)]
    expected = [pipe.predict(block) for block in blocks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for result, answer in zip(pool.map(model.predict, blocks), expected, strict=True):
                np.testing.assert_array_equal(result, answer)
    assert any(model._calls[None](block) is not None for block in blocks)


def test_positions_as_names() -> None:
    """Columns named by a range are found in each new frame."""
    X = FRAME[NUMBERS].fillna(0).to_numpy()
    model = compiled(make_pipeline(StandardScaler(), Ridge()).fit(X, Y))
    for _ in range(3):
        result = model.predict(pd.DataFrame(X[:5]))
    assert model._calls[None](pd.DataFrame(X[:5])) is not None
    np.testing.assert_array_equal(result, model.predict(X[:5]))
    assert model._calls[None](pd.DataFrame(X[:5, :2])) is None
    with pytest.raises(InputError, match="expected 3 columns, got 2"):
        model.predict(pd.DataFrame(X[:5, :2]))


def test_names_that_are_objects() -> None:
    """Columns of an index of Python objects, as before pandas 3."""
    rows = rows_of("numeric")
    model = compiled(numeric())
    for _ in range(3):
        rows.columns = pd.Index(NUMBERS, dtype=object)
        model.predict(rows)
    rows.columns = pd.Index([f" {name}"[1:] for name in NUMBERS], dtype=object)
    assert model._calls[None](rows) is not None
    rows.columns = pd.Index(["a", "b", "d"], dtype=object)
    assert model._calls[None](rows) is None


def test_refused_values(models: dict[str, hbtvm.Model]) -> None:
    """Python reports errors."""
    rows = rows_of("numeric")
    rows.loc[3, "b"] = np.inf
    with pytest.raises(InputError, match=r"row 3: got infinity"):
        models["numeric"].predict(rows)
    wrong = rows_of("one_hot").assign(a="three")
    with pytest.raises(InputError, match="expected a number, got 'three'"):
        models["one_hot"].predict(wrong)
    with pytest.raises(InputError, match="expected at least one row"):
        models["one_hot"].predict(rows_of("one_hot").iloc[:0])


def test_gives_up(models: dict[str, hbtvm.Model]) -> None:
    """A model whose frames C can't read does not try for ever."""
    model = compiled(one_hot())
    rows = mixed(5).astype(dict.fromkeys(TEXTS, "category"))
    for _ in range(20):
        expected = model.predict(rows)
    assert None not in model._calls
    np.testing.assert_array_equal(model.predict(rows), expected)
    assert not model.package.transforms


def test_frames_are_released(models: dict[str, hbtvm.Model]) -> None:
    """C keeps no reference to a frame or its arrays."""
    import gc
    import weakref

    rows = rows_of("one_hot")
    assert models["one_hot"]._calls[None](rows) is not None
    block = weakref.ref(rows["a"].to_numpy(copy=True))
    blocks = [weakref.ref(block.values) for block in rows._mgr.blocks]
    del rows
    gc.collect()
    assert block() is None
    assert [values() for values in blocks] == [None] * len(blocks)


def test_transforms() -> None:
    pipe = make_pipeline(StandardScaler()).fit(FRAME[NUMBERS].fillna(0))
    model = compiled(pipe)
    for rows in (rows_of("bare"), rows_of("bare"), rows_of("bare"), rows_of("bare", 1)):
        np.testing.assert_allclose(model.transform(rows), pipe.transform(rows), rtol=1e-6)


def test_arrays_in_another_order(models: dict[str, hbtvm.Model]) -> None:
    X = rows_of("bare").to_numpy()
    for rows in (np.asfortranarray(X), X[::-1], np.asfortranarray(X.astype(np.float32)), X[:, ::-1]):
        np.testing.assert_array_equal(
            models["bare"].predict(rows), models["bare"].predict(np.ascontiguousarray(rows))
        )
