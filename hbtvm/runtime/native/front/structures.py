"""The structures of ``arrow.h``, field by field, and functions that fill them in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.text import Vectorize
from hbtvm.runtime.native.front.front import VERSION, Front, FrontFeed, FrontTexts
from hbtvm.runtime.native.front.steps import FrontStep
from hbtvm.runtime.native.front.values import Codes, Constant

_I64, _POINTER, _DOUBLE = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


class CodesFields(ctypes.Structure):
    """``struct codes``."""

    _fields_ = (
        ("slots", _POINTER), ("bits", _I64), ("pool", _POINTER), ("none", _I64), ("other", _I64),
        ("nan", _I64 * 3),
    )  # fmt: skip


class ConstantFields(ctypes.Structure):
    """``struct constant``."""

    _fields_ = (("kind", _I64), ("bits", ctypes.c_uint64), ("text", _POINTER), ("size", _I64))


class StepFields(ctypes.Structure):
    """``struct feed_step``."""

    _fields_ = (
        ("kind", _I64), ("flag", _I64), ("a", _DOUBLE), ("b", _DOUBLE), ("narrow", _DOUBLE),
        ("narrow_b", _DOUBLE), ("value", ConstantFields), ("lost", ConstantFields), ("codes", _POINTER),
        ("table", _POINTER), ("count", _I64),
    )  # fmt: skip


class FeedFields(ctypes.Structure):
    """``struct feed``."""

    _fields_ = (
        ("kind", _I64), ("column", _I64), ("codes", _POINTER), ("steps", _POINTER), ("count", _I64),
        ("refuses_infinity", _I64), ("text", _I64), ("output", _I64),
    )  # fmt: skip


class ColumnFields(ctypes.Structure):
    """``struct input_column``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("read", _I64), ("none", _I64), ("refuses", _I64),
        ("categories", _POINTER),
    )  # fmt: skip


class TextsFields(ctypes.Structure):
    """``struct texts``."""

    _fields_ = (
        ("text", _POINTER), ("column", _I64), ("width", _I64), ("cased", _POINTER), ("ignored", _POINTER),
        ("cased_ranges", _I64), ("ignored_ranges", _I64),
    )  # fmt: skip


class ListFields(ctypes.Structure):
    """``struct category_list``."""

    _fields_ = (("codes", _POINTER), ("columns", _POINTER), ("count", _I64), ("texts", _I64))


class FrontFields(ctypes.Structure):
    """``struct front``."""

    _fields_ = (
        ("version", _I64), ("naming", _I64), ("columns", _POINTER), ("count", _I64), ("feeds", _POINTER),
        ("width", _I64), ("texts", _POINTER), ("texts_count", _I64), ("f32", _I64), ("f64", _I64),
        ("single", _I64), ("apart", _I64), ("only_codes", _I64), ("whole_text", _I64),
        ("numbers_are_categories", _I64), ("has_missing_value", _I64), ("missing_value", ctypes.c_float),
        ("lists", _POINTER), ("lists_count", _I64),
    )  # fmt: skip


def filled(front: Front, text_of: Callable[[Vectorize], int]) -> tuple[FrontFields, list[Any]]:
    """Return a front's C structures, and the objects to keep alive while C uses them.

    `text_of`: returns the address of an operation's ``struct text``, which the caller keeps alive.
    """
    filling = _Filling(text_of)
    fields = FrontFields(
        version=VERSION,
        naming=front.naming,
        columns=filling.array(
            ColumnFields,
            [
                ColumnFields(
                    None if column.name is None else column.name.encode("utf-8", "surrogatepass"),
                    column.read,
                    column.none,
                    column.refuses,
                    filling.codes(column.categories),
                )
                for column in front.columns
            ],
        ),
        count=len(front.columns),
        feeds=filling.array(FeedFields, [filling.feed(feed) for feed in front.feeds]),
        width=front.width,
        texts=filling.array(TextsFields, [filling.texts(text) for text in front.texts]),
        texts_count=len(front.texts),
        f32=front.f32,
        f64=front.f64,
        single=front.single,
        apart=front.apart,
        only_codes=front.only_codes,
        whole_text=front.whole_text,
        numbers_are_categories=front.numbers_are_categories,
        has_missing_value=front.missing_value is not None,
        missing_value=front.missing_value or 0.0,
        lists=filling.array(
            ListFields,
            [
                ListFields(
                    filling.codes(categories.codes),
                    filling.numbers(np.array(categories.columns, np.int64)),
                    len(categories.columns),
                    categories.texts,
                )
                for categories in front.lists
            ],
        ),
        lists_count=len(front.lists),
    )
    return fields, filling.keep


class _Filling:
    def __init__(self, text_of: Callable[[Vectorize], int]) -> None:
        self.keep: list[Any] = []
        self._text_of = text_of

    def array(self, kind: Any, items: Sequence[Any]) -> int | None:
        """The address of structures; None if there are none."""
        if not items:
            return None
        array = (kind * len(items))(*items)
        self.keep += [array, items]
        return ctypes.addressof(array)

    def numbers(self, array: np.ndarray | None) -> int | None:
        """The address of an array."""
        if array is None:
            return None
        array = np.ascontiguousarray(array)
        self.keep.append(array)
        address: int = array.ctypes.data
        return address

    def codes(self, codes: Codes | None) -> int | None:
        """The address of ``struct codes``."""
        if codes is None:
            return None
        bits = len(codes.slots).bit_length() - 1
        fields = CodesFields(
            self.numbers(codes.slots),
            bits,
            self.numbers(codes.pool),
            codes.none,
            codes.other,
            (_I64 * 3)(*codes.nan),
        )
        self.keep.append(fields)
        return ctypes.addressof(fields)

    def feed(self, feed: FrontFeed) -> FeedFields:
        """A feed, with its steps."""
        return FeedFields(
            feed.kind,
            feed.column,
            self.codes(feed.codes),
            self.array(StepFields, [self._step(step) for step in feed.steps]),
            len(feed.steps),
            feed.refuses_infinity,
            feed.text,
            feed.output,
        )

    def texts(self, texts: FrontTexts) -> TextsFields:
        """Texts of a column."""
        return TextsFields(
            self._text_of(texts.operation),
            texts.column,
            texts.operation.width,
            self.numbers(texts.cased),
            self.numbers(texts.ignored),
            len(texts.cased),
            len(texts.ignored),
        )

    def _step(self, step: FrontStep) -> StepFields:
        return StepFields(
            step.kind,
            step.flag,
            step.a,
            step.b,
            step.narrow,
            step.narrow_b,
            self._constant(step.value),
            self._constant(step.lost),
            self.codes(step.codes),
            self.numbers(step.table),
            step.count,
        )

    def _constant(self, value: Constant) -> ConstantFields:
        text = ctypes.create_string_buffer(value.text, len(value.text) + 1)
        self.keep.append(text)
        return ConstantFields(value.kind, value.bits, ctypes.addressof(text), len(value.text))
