"""Constants for a C library's reader of Arrow batches: a package's front."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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
    """The reader of a package's batches."""

    # `fields`, `kept`: ``struct front``, and the objects that it points to
    fields: FrontFields
    kept: Recorder
    # The input's column of each column of the matrix; empty if equal
    read: tuple[int, ...]
    # Names of constants of type ``struct text``, by their placeholder addresses in `fields`
    texts: dict[int, str]
    # These constants, with the objects that they point to, in the same order
    layouts: tuple[tuple[TextFields, Recorder], ...]


def batches_of(package: Package, first: int = 0) -> Batches:
    """Return the reader of a package's batches.

    `first`: number of the first of its texts.
    Raises `UnsupportedModel` if C can't reproduce a part of it.
    """
    front = lowered(package)
    layouts: dict[int, tuple[TextFields, Recorder]] = {}

    def text_of(operation: Vectorize) -> int:
        # Hashes are computed on this machine, whatever the target.
        fields, kept = laid_out(operation, TextLibrary(text_library()))
        layouts[ctypes.addressof(fields)] = fields, Recorder.of(kept)
        return ctypes.addressof(fields)

    fields, kept = filled(front, text_of)
    texts = {address: f"hbtvm_text_{i}" for i, address in enumerate(layouts, first)}
    read = tuple(front.texts[feed.text].column if feed.kind == 3 else feed.column for feed in front.feeds)
    return Batches(fields, Recorder.of(kept), read, texts, (*layouts.values(),))


def texts_source(readers: Sequence[Batches], tables: Tables) -> str:
    """Return a separate C file of constants for texts: their structures' names are the executor's, too."""
    constants = Constants(tables, {})
    names = [name for batches in readers for name in batches.texts.values()]
    layouts = [layout for batches in readers for layout in batches.layouts]
    for name, (fields, kept) in zip(names, layouts, strict=True):
        constants.public("text", name, fields, kept)
    head = ['#include "text/types.h"', "", "extern const uint8_t hbtvm_tables[];"]
    return "\n".join(
        [
            *head,
            *(f"extern const struct text {name};" for name in names),
            *constants.lines,
            "",
        ]
    )
