"""The front of an exported pipeline: conversion of Arrow's columns to the kernels' matrix, as constant data.

`lowered` converts a package to the contents of ``struct front`` of `hbtvm/native/arrow/arrow.h`, as numbers
and arrays. They are written as C constants, or filled into structures
(`hbtvm.runtime.native.front.structures`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.row_operations import Buckets
from hbtvm.graph.columns.table import Made, Raw
from hbtvm.graph.columns.text import Vectorize
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.refused_rows import INTEGERS
from hbtvm.runtime.feeds.plan import FeedPlan
from hbtvm.runtime.feeds.text import text_column, vectorizer
from hbtvm.runtime.native.front.sigmas import cased, ignored
from hbtvm.runtime.native.front.steps import FrontStep, front_steps
from hbtvm.runtime.native.front.values import Codes, of_categories, of_steps
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.rows.columns import ColumnReader

VERSION = 2  # ``HBTVM_FRONT_VERSION``
_MOST_CODES = 1 << 24  # float32 holds all codes up to this


class FeedKind(IntEnum):
    """``enum feed_kind``."""

    NUMBER = 0
    CODE = 1
    STEPS = 2
    TEXT = 3


class Naming(IntEnum):
    """``enum naming``."""

    BY_POSITION = 0
    IN_ORDER = 1
    BY_NAME = 2
    ONLY_COLUMN = 3


@dataclass(frozen=True, eq=False)
class FrontFeed:
    """``struct feed``; see there."""

    kind: FeedKind
    column: int
    codes: Codes | None = None
    steps: tuple[FrontStep, ...] = ()
    refuses_infinity: bool = False
    text: int = 0
    output: int = 0


@dataclass(frozen=True, eq=False)
class InputColumn:
    """``struct input_column``; see there."""

    name: str | None
    read: bool
    none: bool = False
    categories: Codes | None = None
    refuses: int = 0


@dataclass(frozen=True)
class FrontCategories:
    """``struct category_list``; see there."""

    codes: Codes
    columns: tuple[int, ...]
    texts: bool


@dataclass(frozen=True, eq=False)
class FrontTexts:
    """``struct texts``."""

    operation: Vectorize  # the operation from which ``struct text`` is laid out (`hbtvm.runtime.text.layout`)
    column: int  # the input's column
    # `cased`, `ignored`: uint32, shape (ranges, 2): first and last code points
    cased: np.ndarray
    ignored: np.ndarray


@dataclass(frozen=True, eq=False)
class Front:
    """``struct front``."""

    naming: Naming
    columns: tuple[InputColumn, ...]
    # The columns of the matrix; empty for a bare model, whose matrix is its columns
    feeds: tuple[FrontFeed, ...]
    texts: tuple[FrontTexts, ...]
    # `f32`, `f64`: whether there are kernels for rows of these types
    f32: bool
    f64: bool
    single: bool  # whether numbers are compared in float32
    apart: bool  # whether float32 rows have kernels of another anchor
    only_codes: bool  # whether all feeds are codes that float32 holds
    whole_text: bool  # whether the matrix is the columns of a single text
    # `numbers_are_categories`, `missing_value`, `lists`: for bare models, see `InputSpec`; lists are those of
    # its ``category_order``
    numbers_are_categories: bool
    missing_value: float | None
    lists: tuple[FrontCategories, ...] = ()

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return len(self.feeds) or len(self.columns)


def lowered(package: Package) -> Front:
    """Return the reader of a package's rows from Arrow record batches.

    Raises `UnsupportedModel` if it only transforms, or C cannot compute a step as Python does; the message
    names the step.
    """
    if not package.kernels:
        raise UnsupportedModel(f"a {package.model} that only transforms can't be read from Arrow in C.")
    dtypes = ("float32", "float64") if package.stages else {kernel.dtype for kernel in package.kernels}
    compare = "float64" if package.stages else package.forest["compare_dtype"]
    exact = bool(package.stages) or package.forest["operator"] != "linear"
    return lowered_input(package.input, package.parts.feeds, compare, dtypes, package.rows_apart, exact)


def lowered_input(
    spec: InputSpec,
    feeds: tuple[Feed, ...],
    compare_dtype: str,
    dtypes: Collection[str],
    float32_apart: bool = False,
    exact: bool = True,
) -> Front:
    """Lower as `lowered`; parameters as for `hbtvm.runtime.feeds.reader.FeedReader`, without feeds of
    `Inputs`.

    `exact` says whether last bits of functions matter; weighted sums accept those of libm.
    """
    names = spec.feature_names
    if names is not None and any("\0" in name for name in names):
        raise UnsupportedModel("names of columns with a zero byte can't be read from Arrow in C.")
    together = next((rule for rule in spec.types_refused if rule.together and len(rule.columns) > 1), None)
    if together is not None:
        raise UnsupportedModel(
            f"{together.step} computes in its columns' common type, which can't be read from Arrow in C."
        )
    types: dict[str, Any] = {"f32": "float32" in dtypes, "f64": "float64" in dtypes}
    if not feeds:
        return _bare(spec, compare_dtype == "float32", float32_apart, types)
    plan = FeedPlan(feeds)
    texts: dict[Vectorize, int] = {}
    converted = tuple(_feed(feed, j, plan, texts, exact) for j, feed in enumerate(feeds))
    few = all(coder.unknown < _MOST_CODES for coder in plan.coders.values())
    outputs = [
        (feed.text, feed.output) for feed in converted if feed.kind == FeedKind.TEXT and not feed.steps
    ]
    whole = len(texts) == 1 and outputs == [(0, i) for i in range(next(iter(texts)).width)]
    return Front(
        naming=_naming(spec, spec.by_name),
        columns=tuple(
            InputColumn(
                None if names is None else names[i],
                i in plan.raws,
                plan.nulls.get(i, 0.0) is None,
                refuses=_refused(spec, i),
            )
            for i in range(spec.n_features)
        ),
        feeds=converted,
        texts=tuple(FrontTexts(text, text_column(text), cased(), ignored()) for text in texts),
        f32=types["f32"],
        f64=types["f64"],
        single=compare_dtype == "float32",
        apart=float32_apart,
        only_codes=len(plan.coders) == len(feeds) and few,
        whole_text=spec.rows_are_values and whole and len(outputs) == len(feeds),
        numbers_are_categories=False,
        missing_value=None,
    )


def _refused(spec: InputSpec, column: int) -> int:
    """Return the types that a column may not have, as bits: 1 << its index in `INTEGERS`."""
    types = {name for rule in spec.types_refused if column in rule.columns for name in rule.types}
    return sum(1 << INTEGERS.index(name) for name in types)


def _naming(spec: InputSpec, by_name: bool) -> Naming:
    if spec.rows_are_values:
        return Naming.ONLY_COLUMN
    if by_name and spec.feature_names is not None:
        return Naming.BY_NAME
    return Naming.IN_ORDER if ColumnReader(spec).compares_names else Naming.BY_POSITION


def _feed(feed: Feed, j: int, plan: FeedPlan, texts: dict[Vectorize, int], exact: bool) -> FrontFeed:
    source = feed.source
    if isinstance(source, Made):
        operation = vectorizer(source)
        if operation is None:
            if isinstance(source.operation, Buckets):
                raise UnsupportedModel(
                    f"{source.operation.where}: counts of hashes can't be computed outside of Python."
                )
            name = type(source.operation).__name__
            raise UnsupportedModel(f"{feed.where}: the operation {name} can't be computed outside of Python.")
        if operation.analyzer.kind == "pairs":
            raise UnsupportedModel(f"{feed.where}: dicts of features can't be read from Arrow in C.")
        at = texts.setdefault(operation, len(texts))
        steps = front_steps(feed.steps, feed.where, exact)
        return FrontFeed(FeedKind.TEXT, text_column(operation), None, steps, False, at, source.index)
    assert isinstance(source, Raw)
    if j in plan.coders:
        return FrontFeed(FeedKind.CODE, source.index, of_steps(feed.steps))
    if not feed.steps:
        return FrontFeed(FeedKind.NUMBER, source.index)
    steps = front_steps(feed.steps, feed.where, exact)
    return FrontFeed(FeedKind.STEPS, source.index, None, steps, not feed.allow_inf)


def _bare(spec: InputSpec, single: bool, apart: bool, types: dict[str, Any]) -> Front:
    refuses = spec.unknown_category == "error"
    columns = []
    for i in range(spec.n_features):
        known = spec.categories.get(i)
        # Certain categories are in the lists too.
        codes = None if not known or spec.category_order else of_categories(known, refuses)
        name = None if spec.feature_names is None else spec.feature_names[i]
        columns.append(InputColumn(name, known != (), False, codes, _refused(spec, i)))
    return Front(
        naming=_naming(spec, False),
        columns=tuple(columns),
        feeds=(),
        texts=(),
        f32=types["f32"],
        f64=types["f64"],
        single=single,
        apart=apart,
        only_codes=False,
        whole_text=False,
        numbers_are_categories=spec.numbers_are_categories,
        missing_value=spec.missing_value,
        lists=tuple(
            FrontCategories(
                of_categories(order.values, refuses),
                tuple(sorted(order.columns)),
                any(isinstance(value, str) for value in order.values),
            )
            for order in spec.category_order
        ),
    )
