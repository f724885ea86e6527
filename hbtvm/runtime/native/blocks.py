"""Places of fields in pandas' managers and blocks, and how to get a frame's attributes, for ``frame.c``.

pandas compiles both classes with Cython, whose attributes have no public offsets. This module finds them in
known frames, by the addresses of the attributes' values, and gives up if an address is not in exactly one
place, or frames differ. Loading a field touches one cache line; getting the attribute touches a dozen.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p

_FIELDS = {"axes": "axes", "blocks": "blocks", "numbers": "_blknos", "places": "_blklocs"}  # of managers


class Places(ctypes.Structure):
    """``struct frame_places``."""

    _fields_ = (
        ("get", _POINTER), ("manager_type", _POINTER), ("block_types", _POINTER * 2),
        *((name, _I64) for name in _FIELDS), ("values", _I64),
    )  # fmt: skip


class PlacementPlaces(ctypes.Structure):
    """``struct placement_places``."""

    _fields_ = (
        ("type", _POINTER), ("slice_type", _POINTER), ("unpack", _POINTER),
        *((name, _I64) for name in ("at", "slice", "array")),
    )  # fmt: skip


@functools.cache
def block_places() -> Places | None:
    """Return the places; None if they are unknown. pandas must be loaded."""
    pandas = sys.modules["pandas"]
    try:
        frame = pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": [1, 2], "d": ["z", None]})
        frames = [frame, frame.iloc[1:], pandas.DataFrame({"a": [1.0]}), frame[["b", "c"]].copy()]
        found = {_places_in(frame) for frame in frames}
        managers, blocks = frame._mgr, frame._mgr.blocks
        types = {type(block) for block in blocks}
    except (AttributeError, TypeError):  # an unknown version of pandas
        return None
    offsets = found.pop()
    if found or offsets is None or len(types) > 2:
        return None
    known = (_POINTER * 2)(*map(id, types))
    plain = ctypes.cast(ctypes.pythonapi.PyObject_GenericGetAttr, _POINTER)
    # DataFrame's own way then also looks for a column of the attribute's name, which no attribute here needs.
    is_plain = pandas.DataFrame.__getattribute__ is object.__getattribute__
    return Places(plain if is_plain else None, id(type(managers)), known, *offsets)


@functools.cache
def placement_places() -> PlacementPlaces | None:
    """Return the places of blocks' placements; None if they are unknown. pandas must be loaded."""
    pandas = sys.modules["pandas"]
    try:
        frame = pandas.DataFrame({"a": [1.0], "b": ["x"], "c": [2.0], "d": [3.0], "e": [1], "f": [2]})
        found = {_placements_in(block) for block in (*frame._mgr.blocks, *frame.iloc[:, 2:]._mgr.blocks)}
        (kind,) = {type(block._mgr_locs) for block in frame._mgr.blocks}
    except (AttributeError, TypeError, ValueError):  # an unknown version of pandas
        return None
    offsets = found.pop()
    if found or offsets is None:
        return None
    unpack = ctypes.cast(ctypes.pythonapi.PySlice_Unpack, _POINTER)
    return PlacementPlaces(id(kind), id(slice), unpack, *offsets)


def _placements_in(block: Any) -> tuple[int, int, int] | None:
    """Return the offsets of a block's placement, and of a slice and an array in it; None if unknown."""
    placement = block._mgr_locs
    parts = type(placement)(slice(2, 4)), type(placement)(np.array([1, 2, 5]))
    offsets = (
        _offset(block, placement), _offset(parts[0], parts[0].indexer), _offset(parts[1], parts[1].as_array)
    )  # fmt: skip
    known = tuple(at for at in offsets if at is not None)
    return known if len(known) == 3 else None


def _places_in(frame: Any) -> tuple[int, ...] | None:
    """Return the offsets of the fields of a frame's manager and of its blocks' values."""
    manager = frame._mgr
    _ = manager.blknos  # which computes both arrays
    offsets = [_offset(manager, getattr(manager, name)) for name in _FIELDS.values()]
    values = {_offset(block, block.values) for block in manager.blocks}
    every = [*offsets, *values]
    if len(every) != len(_FIELDS) + 1 or None in every:
        return None
    return tuple(offset for offset in every if offset is not None)


def _offset(holder: Any, part: Any) -> int | None:
    """Return the offset of a reference in an object; None unless there is exactly one."""
    words = (ctypes.c_size_t * (type(holder).__basicsize__ // 8)).from_address(id(holder))
    found = [8 * i for i, word in enumerate(words) if word == id(part)]
    return found[0] if len(found) == 1 else None
