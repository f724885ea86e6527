"""How a library for C reads batches of Arrow: a package's front as constants."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from hbtvm.compiler.building.cpu import text_library
from hbtvm.compiler.exporting.constants import Constants, Recorder, Tables
from hbtvm.graph.columns.text import Vectorize
from hbtvm.runtime.native.front.front import lowered
from hbtvm.runtime.native.front.structures import FrontFields, filled
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.text.layout import laid_out
from hbtvm.runtime.text.library import TextFields, TextLibrary


@dataclass(frozen=True)
class Batches:
    """What reads batches of a package."""

    # `fields`, `kept`: ``struct front``, and what it points to
    fields: FrontFields
    kept: Recorder
    # For each column of the matrix, which of the input's it is made of; empty if it is the same one
    read: tuple[int, ...]
    # Names of constants of type ``struct text``, by the addresses that stand for them in `fields`
    texts: dict[int, str]
    # These constants, with what they point to, in the same order
    layouts: tuple[tuple[TextFields, Recorder], ...]


def batches_of(package: Package) -> Batches:
    """Return what reads batches of a package.

    Raises `UnsupportedModel` if something in it can't be done as Python does it; in one sentence.
    """
    front = lowered(package)
    layouts: dict[int, tuple[TextFields, Recorder]] = {}

    def text_of(operation: Vectorize) -> int:
        # Hashes are computed here, whatever the target is.
        fields, kept = laid_out(operation, TextLibrary(text_library()))
        layouts[ctypes.addressof(fields)] = fields, Recorder.of(kept)
        return ctypes.addressof(fields)

    fields, kept = filled(front, text_of)
    texts = {address: f"hbtvm_text_{i}" for i, address in enumerate(layouts)}
    read = tuple(front.texts[one.text].column if one.kind == 3 else one.column for one in front.feeds)
    return Batches(fields, Recorder.of(kept), read, texts, (*layouts.values(),))


def texts_source(batches: Batches, tables: Tables) -> str:
    """Return the C file of the constants for texts: their structures share names with the executor's."""
    constants = Constants(tables, {})
    for name, (fields, kept) in zip(batches.texts.values(), batches.layouts, strict=True):
        constants.public("text", name, fields, kept)
    head = ['#include "text/types.h"', "", "extern const uint8_t hbtvm_tables[];"]
    return "\n".join(
        [
            *head,
            *(f"extern const struct text {name};" for name in batches.texts.values()),
            *constants.lines,
            "",
        ]
    )
