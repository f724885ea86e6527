"""The rows that a fitted model is called with: types, containers, and values at its edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

from benchmarks.sweep import training
from benchmarks.sweep.edges import edges, near
from benchmarks.sweep.training import NAMES, Training

COUNT = 18
"""Rows of a call."""

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

Variant = tuple[str, Any]
"""A name, and rows."""


def variants(model: Any, data: Training, seed: int) -> Iterator[Variant]:
    """Yield all rows for a model, the plainest first.

    Parameters
    ----------
    model
        Fitted.
    data
        What it was fitted on.
    seed
        With the same seed the same rows are drawn.
    """
    rng = np.random.default_rng(seed)
    makers = {"texts": _texts, "dicts": _dicts, "labels": _labels, "sets": _sets, "categories": _categories}
    if data.kind in makers:
        yield from makers[data.kind](rng)
        return
    assert data.plain is not None
    one_column = data.kind == "column"
    for name, rows in _numbers(model, data, rng):
        if one_column:
            if isinstance(rows, np.ndarray):
                yield name, np.ascontiguousarray(rows[:, 0])
        else:
            yield name, rows


def _numbers(model: Any, data: Training, rng: np.random.Generator) -> Iterator[Variant]:
    """Rows for kinds of numbers."""
    assert data.plain is not None
    width = training.FEATURES
    positive = data.kind == "positive"
    plain = np.nan_to_num(data.plain.reshape(training.ROWS, -1))
    plain = np.tile(plain, (1, width))[:, :width]
    base = plain[rng.integers(0, len(plain), COUNT)]
    base = base + rng.normal(size=base.shape) * 0.2 * (rng.random(base.shape) < 0.7)
    if positive:
        base = np.abs(base)
    whole = training.numbers(rng, COUNT, integers=True, positive=positive)
    natural = np.abs(whole)
    yield "float64", base
    yield "float32", base.astype(np.float32)
    for dtype in INTEGERS:
        yield dtype, (natural if dtype[0] == "u" else whole).astype(dtype)
    yield "bool", whole > 2
    yield "float16", base.astype(np.float16)
    yield "float64, Fortran order", np.asfortranarray(base)
    yield "float32, Fortran order", np.asfortranarray(base.astype(np.float32))
    yield "int32, Fortran order", np.asfortranarray(whole.astype(np.int32))
    yield "float64, every second", np.repeat(np.repeat(base, 2, 0), 2, 1)[::2, ::2]
    yield "float32, backwards", base.astype(np.float32)[::-1, ::-1][::-1, ::-1]
    yield "int64, transposed", np.ascontiguousarray(whole.astype(np.int64).T).T
    yield "float64, big endian", base.astype(">f8")
    yield "objects", base.astype(object)
    yield "list of lists", base.tolist()
    yield from _frames(base, whole, natural)
    yield from _sparse(rng, base, whole)
    yield from _at_edges(model, data, rng, base)
    yield from _special(rng, base, positive)
    yield "1 row", base[:1]
    yield "1 row, int64", whole[:1].astype(np.int64)
    yield "1 row, float32", base[:1].astype(np.float32)
    yield "0 rows", base[:0]
    yield "0 rows, frame", pd.DataFrame(base[:0], columns=list(NAMES))
    yield "a column less", base[:, :-1]


def _frames(base: np.ndarray, whole: np.ndarray, natural: np.ndarray) -> Iterator[Variant]:
    """Frames of pandas and polars."""
    names = list(NAMES)
    frame = pd.DataFrame(base, columns=names)
    integers = pd.DataFrame(whole.astype(np.int64), columns=names)
    mixed = {
        "a": base[:, 0],
        "b": whole[:, 1].astype(np.int64),
        "c": base[:, 2].astype(np.float32),
        "d": natural[:, 3].astype(np.uint8),
    }
    holes = np.arange(COUNT) % 5 == 2
    yield "pandas, float64", frame
    yield "pandas, int64", integers
    yield "pandas, int8", integers.astype(np.int8)
    yield "pandas, mixed", pd.DataFrame(mixed)
    yield "pandas, float32 and bool", pd.DataFrame(mixed | {"a": base[:, 0] > 0, "b": mixed["c"]})
    yield "pandas, Int64", integers.astype("Int64")
    yield "pandas, Float32", frame.astype("Float32")
    nullable = pd.DataFrame(mixed).astype({"a": "Float64", "b": "Int64", "c": "Float32", "d": "UInt8"})
    yield "pandas, nullable", nullable
    yield "pandas, nullable, with NA", nullable.mask(np.stack([holes] * 4, axis=1))
    yield "pandas, boolean", nullable.assign(a=pd.array(base[:, 0] > 0, "boolean"))
    yield "pandas, Arrow", pd.DataFrame(mixed).convert_dtypes(dtype_backend="pyarrow")
    arrow = pd.DataFrame(mixed).convert_dtypes(dtype_backend="pyarrow")
    yield "pandas, Arrow, with NA", arrow.mask(np.stack([holes] * 4, axis=1))
    yield "pandas, category", integers.astype({"b": "category"})
    yield "pandas, texts", frame.astype(str)
    yield "polars, float64", pl.DataFrame(dict(zip(names, base.T, strict=True)))
    yield "polars, mixed", pl.DataFrame(mixed)
    yield "polars, int64", pl.DataFrame(dict(zip(names, whole.T.astype(np.int64), strict=True)))
    nulls = pl.DataFrame(mixed).with_columns(pl.when(pl.Series(~holes)).then(pl.all()))
    yield "polars, with nulls", nulls


def _sparse(rng: np.random.Generator, base: np.ndarray, whole: np.ndarray) -> Iterator[Variant]:
    """Sparse rows."""
    holes = rng.random(base.shape) < 0.5
    thin, thin_whole = np.where(holes, 0, base), np.where(holes, 0, whole)
    yield "csr_array", sparse.csr_array(thin)
    yield "csr_matrix", sparse.csr_matrix(thin)
    yield "csc_array", sparse.csc_array(thin)
    yield "csc_matrix, float32", sparse.csc_matrix(thin.astype(np.float32))
    yield "csr_array, float32", sparse.csr_array(thin.astype(np.float32))
    yield "csr_array, int64", sparse.csr_array(thin_whole.astype(np.int64))
    yield "csr_array, int8", sparse.csr_array(thin_whole.astype(np.int8))
    yield "coo_array", sparse.coo_array(thin)
    yield "csr_array, 1 row", sparse.csr_array(thin[:1])


def _at_edges(model: Any, data: Training, rng: np.random.Generator, base: np.ndarray) -> Iterator[Variant]:
    """Rows at values where the answer changes, and their neighbours."""
    width = 1 if data.kind == "column" else base.shape[1]
    found = edges(model, width, rng)
    if not any(map(len, found)):
        return
    for name, at, dtype in (
        ("edges, float64", "float64", "float64"),
        ("edges, float32", "float32", "float32"),
        ("edges of float32 as float64", "float32", "float64"),
    ):
        rows = np.repeat(base, 2, axis=0).astype(dtype)
        for column, values in enumerate(found):
            if len(values):
                rows[:, column] = rng.choice(near(values, at), len(rows))
        rows = np.where(np.isfinite(rows), rows, 0)
        yield name, np.abs(rows) if data.kind == "positive" else rows
    for dtype in ("int64", "int8"):
        limits = np.iinfo(dtype)
        rows = np.round(base).astype(dtype)
        for column, values in enumerate(found):
            if len(values):
                whole = np.concatenate([np.floor(values), np.ceil(values)])
                rows[:, column] = rng.choice(whole.clip(limits.min / 2, limits.max // 2), len(rows))
        yield f"edges, {dtype}", np.abs(rows) if data.kind == "positive" else rows


def _special(rng: np.random.Generator, base: np.ndarray, positive: bool) -> Iterator[Variant]:
    """Missing, infinite, huge and tiny values, zeros of both signs."""
    some = rng.random(base.shape) < 0.3
    some[0] = False
    yield "NaN", np.where(some, np.nan, base)
    yield "NaN, float32", np.where(some, np.nan, base).astype(np.float32)
    yield "NaN, all", np.full_like(base, np.nan)
    yield "inf", np.where(some, np.inf, base)
    yield "inf, float32", np.where(some, np.inf, base).astype(np.float32)
    if not positive:
        yield "-inf", np.where(some, -np.inf, base)
    yield "zeros", np.zeros_like(base)
    yield "-0.0", np.where(some, -0.0, base)
    yield "-0.0, float32", np.where(some, -0.0, base).astype(np.float32)
    sign = 1.0 if positive else np.where(rng.random(base.shape) < 0.5, -1.0, 1.0)
    for name, value, dtype in (
        ("huge", 1e30, "float64"),
        ("extreme", 1e300, "float64"),
        ("tiny", 1e-30, "float64"),
        ("denormal", 1e-310, "float64"),
        ("huge, float32", 1e15, "float32"),
        ("extreme, float32", 1e38, "float32"),
        ("tiny, float32", 1e-30, "float32"),
        ("denormal, float32", 1e-42, "float32"),
    ):
        yield name, np.where(some, value * sign, base).astype(dtype)
    yield "large integers", np.where(some, 2**40, np.round(np.abs(base))).astype(np.int64)
    yield "larger integers", np.where(some, 2**62 + 1, np.round(np.abs(base))).astype(np.int64)


def _texts(rng: np.random.Generator) -> Iterator[Variant]:
    values = [*training.texts(rng, COUNT - 3), "", "ÉCOLE Straße", "x" * 50]
    yield "list", values
    yield "array", np.array(values)
    yield "objects", np.array(values, object)
    yield "pandas, str", pd.Series(values)
    yield "pandas, object", pd.Series(values, dtype=object)
    yield "pandas, Arrow", pd.Series(values, dtype="string[pyarrow]")
    yield "pandas, category", pd.Series(values, dtype="category")
    yield "polars", pl.Series(values)
    yield "1 row", values[:1]
    yield "0 rows", values[:0]
    yield "missing", [*values, None]
    yield "number", [*values, 3.5]
    yield "bytes", [value.encode() for value in values]


def _dicts(rng: np.random.Generator) -> Iterator[Variant]:
    values = training.dicts(rng, COUNT)
    yield "list", values
    yield "unknown", [value | {"other": 3.0} for value in values]
    yield "other text", [value | {"city": "Kyiv"} for value in values]
    yield "empty rows", [{}, *values]
    yield "1 row", values[:1]
    yield "0 rows", values[:0]
    yield "number for a text", [value | {"city": 3.0} for value in values]
    yield "boolean", [value | {"n": True} for value in values]


def _labels(rng: np.random.Generator) -> Iterator[Variant]:
    values = training.labels(rng, COUNT)
    yield "array", values
    yield "list", values.tolist()
    yield "objects", values.astype(object)
    yield "pandas", pd.Series(values)
    yield "pandas, category", pd.Series(values, dtype="category")
    yield "column", values[:, None]
    yield "unknown", np.append(values, "Kyiv")
    yield "1 row", values[:1]
    yield "0 rows", values[:0]


def _sets(rng: np.random.Generator) -> Iterator[Variant]:
    values = training.sets(rng, COUNT)
    yield "list", values
    yield "unknown", [*values, ("Kyiv",)]
    yield "1 row", values[:1]


def _categories(rng: np.random.Generator) -> Iterator[Variant]:
    values = training.categories(rng, COUNT)
    frame = pd.DataFrame(values, columns=["city", "size"])
    holes = np.arange(COUNT) % 5 == 2
    unknown = values.copy()
    unknown[::4, 0] = "Kyiv"
    none, nan = values.copy(), values.copy()
    none[holes, 1], nan[holes, 1] = None, np.nan
    yield "objects", values
    yield "texts", values.astype(str)
    yield "list of lists", values.tolist()
    yield "pandas, object", frame.astype(object)
    yield "pandas, str", frame.astype("str")
    yield "pandas, string", frame.astype("string")
    yield "pandas, category", frame.astype("category")
    yield "pandas, Arrow", frame.astype("string[pyarrow]")
    yield "pandas, mixed", training.frame_of_categories(values)
    yield "polars", pl.DataFrame({"city": list(values[:, 0]), "size": list(values[:, 1])})
    yield (
        "polars, categorical",
        pl.DataFrame(
            {"city": list(values[:, 0]), "size": pl.Series(list(values[:, 1]), dtype=pl.Categorical)}
        ),
    )
    yield "unknown", unknown
    yield "unknown, frame", pd.DataFrame(unknown, columns=["city", "size"])
    yield "None", none
    yield "NaN", nan
    yield "NaN, frame", pd.DataFrame(nan, columns=["city", "size"])
    yield "NA, string", frame.astype("string").mask(holes[:, None] & np.array([False, True]))
    yield "nulls, polars", pl.DataFrame({"city": list(values[:, 0]), "size": list(none[:, 1])})
    yield "1 row", values[:1]
    yield "0 rows", values[:0]
    yield "numbers", np.arange(2 * COUNT).reshape(COUNT, 2)
