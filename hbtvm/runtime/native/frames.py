"""Calls on small frames of pandas and on dicts, which C reads (``frame.c``, ``dicts.c``).

Python reads the first frames and dicts of a loaded model. `Frames` remembers which of a frame's columns are
the model's; then C reads frames with these columns, and returns None for values that it does not read.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.chunks import chunk_types
from hbtvm.runtime.native.front.front import FeedKind, Front, lowered_input
from hbtvm.runtime.native.front.structures import ColumnFields, FrontFields, filled
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.rows.layouts import Positions

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p

_LAYOUTS = 4  # ``LAYOUTS``
_MOST = 4096  # rows; above, numpy and Arrow are as fast
_MISSES = 8  # C stops trying after so many frames that it did not read, if they are most of all

_NAMES = {
    "manager": "_mgr", "axes": "axes", "blocks": "blocks", "numbers": "blknos", "places": "blklocs",
    "values": "values", "id": "_id", "data": "_data", "arrow": "_pa_array", "range": "_range",
    "stream": "__arrow_c_stream__", "equals": "equals",
}  # fmt: skip
"""Attributes of pandas' and pyarrow's objects."""

_FUNCTIONS = {
    "get": "PyObject_GetAttr", "call": "PyObject_CallMethodObjArgs", "list_item": "PyList_GetItem",
    "tuple_item": "PyTuple_GetItem", "tuple_size": "PyTuple_Size", "same": "PyObject_RichCompareBool",
    "clear": "PyErr_Clear",
}  # fmt: skip


class _Api(ctypes.Structure):
    """``struct frame_api``."""

    _fields_ = (
        *((name, _POINTER) for name in _FUNCTIONS), ("yes", _POINTER), ("frame_type", _POINTER),
        *((name, _POINTER) for name in _NAMES), ("chunked_type", _POINTER), ("text_type", _POINTER),
        ("large_type", _POINTER),
    )  # fmt: skip


class _Layout(ctypes.Structure):
    """``struct layout``."""

    _fields_ = (
        ("id", _POINTER), ("names", _POINTER), ("arrow", _POINTER), ("range", _POINTER), ("width", _I64),
        ("places", _POINTER),
    )  # fmt: skip


class _Reader(ctypes.Structure):
    """``struct frame_reader``."""

    _fields_ = (
        ("api", ctypes.POINTER(_Api)), ("front", ctypes.POINTER(FrontFields)), ("most", _I64),
        ("numeric", _I64), ("mixed", _I64), ("layouts", _Layout * _LAYOUTS), ("count", _I64), ("read", _I64),
        ("records", ctypes.POINTER(FrontFields)), ("names", _POINTER),
    )  # fmt: skip


class BoundFrames(ctypes.Structure):
    """``struct bound_frames``."""

    _fields_ = (("output", _POINTER), ("reader", ctypes.POINTER(_Reader)))


class FrameReader:
    """The description of how C reads a package's frames and dicts.

    `front`: how it reads columns.
    `numeric`: whether all columns must be numbers.
    `names`: the columns' names if it reads dicts; else None.
    `reads_frames`: whether pandas is loaded.
    """

    def __init__(self, front: Front, numeric: bool, names: Sequence[str] | None) -> None:
        fields, self._keep = filled(front, _no_text)
        count = self._columns = len(front.columns)
        self._indexes: list[Any] = []
        self.reads_frames = "pandas" in sys.modules
        # pandas' missing value is NaN, in whatever column.
        of_frames = FrontFields.from_buffer_copy(fields)
        columns = (ColumnFields * count).from_buffer_copy((ColumnFields * count).from_address(fields.columns))
        for column in columns:
            column.none = 0
        of_frames.columns = ctypes.addressof(columns)
        self._keep += [columns]
        mixed = any(feed.kind != FeedKind.NUMBER for feed in front.feeds)
        self.fields = _Reader(
            ctypes.pointer(_api(self.reads_frames, "pyarrow" in sys.modules)),
            ctypes.pointer(of_frames),
            most=_MOST,
            numeric=numeric,
            mixed=mixed,
        )
        if names is not None:
            keys = [sys.intern(name) for name in names]
            places = (_POINTER * count)(*map(id, keys))
            self._keep += [keys, places]
            self.fields.records, self.fields.names = ctypes.pointer(fields), ctypes.addressof(places)

    @property
    def reads_dicts(self) -> bool:
        """Whether C reads dicts."""
        return bool(self.fields.records)

    def knows(self, index: Any) -> bool:
        """Return whether C finds the columns of an index."""
        return any(index.is_(known) or index.equals(known) for known in self._indexes)

    def add(self, index: Any, at: Positions) -> None:
        """Add the positions of the model's columns, unless there are as many layouts as C has room for."""
        count = len(self._indexes)
        if count == _LAYOUTS:
            return
        places = np.zeros(self._columns, np.int64)
        for column, place in at.items() if isinstance(at, Mapping) else enumerate(at):
            places[column] = place
        layout = _Layout(id=id(index._id), width=len(index), places=places.ctypes.data)
        names = getattr(index, "_range", None)
        if names is not None:
            layout.range = id(names)
        elif hasattr(index._data, "_pa_array"):
            names = index._data._pa_array
            layout.arrow = id(names)
        elif isinstance(index._data, np.ndarray) and index._data.dtype == object:
            names = index._data.copy()
            layout.names = names.ctypes.data
        self._keep += [index._id, names, places]
        self._indexes.append(index)
        self.fields.layouts[count] = layout
        self.fields.count = count + 1


class Frames:
    """Learns how C reads a package's frames.

    `package`: a package for a CPU.
    `inputs`: the reader of its rows.
    `reader`: how C reads them; None if it does not.
    """

    def __init__(self, package: Package, inputs: Inputs | FeedReader) -> None:
        self._package, self._inputs = package, inputs
        self._learns, self._misses = _may_read(package, inputs), 0
        self._lock = threading.Lock()
        self.reader: FrameReader | None = None

    def learn(self, X: Any) -> bool:
        """Learn from rows that Python has read; return whether `reader` is now another one."""
        frame = _is_frame(X)
        if not self._learns or not (frame or _are_dicts(X)) or (type(X) is not dict and len(X) > _MOST):
            return False
        # Layouts that C may be reading must not be overwritten. After a fork, the lock may stay locked.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._learn_frame(X) if frame else self._learn_dicts()
        except AttributeError:  # an unknown version of pandas
            return self._stop()
        finally:
            self._lock.release()

    def _learn_frame(self, X: Any) -> bool:
        known = self.reader if self.reader is not None and self.reader.reads_frames else None
        if known is not None and known.knows(X.columns):
            return self._missed(known)
        reader = known or _reader(self._package, self._inputs)
        if reader is None:
            return self._stop()
        inputs = self._inputs
        in_order = range(inputs.spec.n_features)
        reader.add(X.columns, inputs.positions(X) if isinstance(inputs, FeedReader) else in_order)
        self.reader = reader
        return known is None

    def _learn_dicts(self) -> bool:
        known = self.reader
        if known is not None:
            return known.reads_dicts and self._missed(known)
        self.reader = _reader(self._package, self._inputs)
        return self._stop() if self.reader is None else self.reader.reads_dicts

    def _missed(self, reader: FrameReader) -> bool:
        """Count rows that C should have read; return whether it now stops."""
        self._misses += 1
        return self._misses >= max(_MISSES, reader.fields.read) and self._stop()

    def _stop(self) -> bool:
        reads, self.reader, self._learns = self.reader is not None, None, False
        return reads


def _may_read(package: Package, inputs: Inputs | FeedReader) -> bool:
    """Return whether C computes what Python does from frames of numbers and texts."""
    if package.transforms and (package.keeps_integers or package.output.container not in ("array", "rows")):
        return False
    if isinstance(inputs, FeedReader):
        return not (inputs.spec.rows_are_values or inputs.plan.texts or inputs.typed)
    return not inputs.columns.maps


def _reader(package: Package, inputs: Inputs | FeedReader) -> FrameReader | None:
    """Return the description of a package; None if C can't compute its columns."""
    compare = "float64" if package.stages else package.forest["compare_dtype"]
    try:
        front = lowered_input(
            package.input, package.parts.feeds, compare, package.row_dtypes, package.rows_apart
        )
    except UnsupportedModel:
        return None
    if not (front.single or front.f64):
        return None
    spec, names = inputs.spec, inputs.spec.feature_names
    if spec.types_refused or not (front.feeds or all(column.read for column in front.columns)):
        names = None
    return FrameReader(front, not front.feeds, names)


def _is_frame(X: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and type(X) is pandas.DataFrame


def _are_dicts(X: Any) -> bool:
    return type(X) is dict or (type(X) is list and bool(X) and type(X[0]) is dict)


def _no_text(operation: Any) -> int:
    raise ValueError("a pipeline that cuts texts into terms has no reader of frames in C")


@functools.cache
def _api(pandas: bool, arrow: bool) -> _Api:
    """Return the parameters of ``frame.c``; `pandas`, `arrow`: whether they are loaded."""
    api = ctypes.pythonapi
    chunked, text, large = (chunk_types() if arrow else None) or (None, None, None)
    return _Api(
        **{field: ctypes.cast(getattr(api, name), _POINTER).value for field, name in _FUNCTIONS.items()},
        **{field: id(name) for field, name in _NAMES.items()},
        yes=id(True),
        frame_type=id(sys.modules["pandas"].DataFrame) if pandas else None,
        chunked_type=chunked,
        text_type=text,
        large_type=large,
    )
