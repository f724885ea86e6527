"""Lay out a vectorizer's tables for the compiled code that reads them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hbtvm.graph.columns.characters import SPACE, TOKEN, WORD
from hbtvm.graph.columns.text import Terms, Vectorize
from hbtvm.runtime.text.library import StageFields, TextFields, TextLibrary
from hbtvm.runtime.text.texts import PADDING, address_of

_ANALYZERS = {"word": 0, "char": 1, "char_wb": 2, "pairs": 3}
_STAGES = {"binary": 0, "logarithm": 1, "scale": 2, "l1": 3, "l2": 4, "max": 5, "select": 6}
_SLOT = np.dtype([("first", np.uint64), ("second", np.uint64), ("column", np.int32), ("start", np.uint32)])


def laid_out(operation: Vectorize, library: TextLibrary) -> tuple[TextFields, list[Any]]:
    """Return an operation's structure, and the objects to keep alive with it."""
    keep = list[Any]()
    analyzer, tables = operation.analyzer, operation.characters

    def pointer(array: np.ndarray | None) -> int | None:
        if array is None:
            return None
        array = np.ascontiguousarray(array)
        keep.append(array)
        return address_of(array)

    stop = analyzer.stop_words if analyzer.kind == "word" else ()
    slots, pool = _slots(library, operation.vocabulary, stop)
    ascii_classes = tables.classes[tables.class_page[0]][:128]
    words = ascii_classes[ascii_classes & WORD != 0]
    wanted = WORD if analyzer.whole else TOKEN
    stages = (StageFields * max(1, len(operation.stages)))()
    for place, stage in zip(stages, operation.stages, strict=False):
        place.kind = _STAGES[stage.kind]
        place.scale = pointer(stage.values) if stage.kind == "scale" else None
        place.place = pointer(stage.values) if stage.kind == "select" else None
    keep.append(stages)
    text = TextFields(
        analyzer=_ANALYZERS[analyzer.kind],
        whole=analyzer.whole,
        least=analyzer.least,
        shortest=analyzer.shortest,
        longest=analyzer.longest,
        lowercase=analyzer.lowercase,
        plain=bool((words & TOKEN != 0).all()),
        token_ranges=pointer(_ranges(ascii_classes & wanted != 0)),
        space_ranges=pointer(_ranges(ascii_classes & SPACE != 0)),
        class_page=pointer(tables.class_page),
        classes=pointer(tables.classes),
        map_page=pointer(tables.map_page) if len(tables.map_page) else None,
        maps=pointer(tables.maps),
        expansions=pointer(tables.expansions),
        hashed=operation.hashed,
        alternate_sign=operation.alternate_sign,
        stop_words=bool(stop),
        slots=pointer(slots),
        bits=len(slots).bit_length() - 1,
        pool=pointer(pool),
        stages=len(operation.stages),
        stage=ctypes.addressof(stages),
        ahead=stages[0].scale,
        terms=operation.terms,
        width=operation.columns,
        outputs=operation.width,
        weight=pointer(operation.weight),
    )
    return text, keep


def _slots(
    library: TextLibrary, vocabulary: Terms | None, stop: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the table of terms and stop words, and their bytes."""
    known, more = vocabulary or Terms.of(()), Terms.of(stop)
    starts = np.concatenate([known.starts, more.starts[1:] + known.starts[-1]]).astype(np.uint32)
    pool = np.concatenate([known.pool, more.pool, np.zeros(PADDING, np.uint8)])
    slots = np.zeros(1 << (2 * len(starts)).bit_length(), _SLOT)
    slots["column"] = -1
    library.functions().fill(
        address_of(slots), len(slots).bit_length() - 1, address_of(pool), address_of(starts),
        len(starts) - 1, len(known),
    )  # fmt: skip
    return slots, pool


def _ranges(members: np.ndarray) -> np.ndarray:
    """Return the number of ranges of characters, then the first and last of each, uint8."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], members, [False]])))
    edges[1::2] -= 1
    return np.concatenate([[len(edges) // 2], edges]).astype(np.uint8)
