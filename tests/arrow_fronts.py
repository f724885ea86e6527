"""The front in C, compiled and called, beside random feeds and random columns of Arrow."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hbtvm.graph.columns.curves import Bins, Quantile
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import (
    NA,
    Above,
    Arithmetic,
    Cast,
    Clip,
    Encode,
    Equals,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Raw
from hbtvm.runtime.native.front.front import Front
from hbtvm.runtime.native.front.structures import filled
from hbtvm.runtime.native.functions import EXACT
from hbtvm.runtime.text.layout import laid_out
from hbtvm.runtime.text.library import TextLibrary

NATIVE = Path(__file__).resolve().parents[1] / "hbtvm" / "native"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion")
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


class Rows(ctypes.Structure):
    """``struct rows``."""

    _fields_ = (("values", _POINTER), ("n", _I64), ("columns", _I64))


class ArrowPlace(ctypes.Structure):
    """``struct arrow_place``."""

    _fields_ = (("row", _I64), ("column", _I64), ("given", _I64))


STATUS = {
    name: 32 + i
    for i, name in enumerate(
        (
            *("malformed", "column_count", "missing_column", "extra_column", "column_twice", "column_order"),
            *("type", "not_a_number", "not_a_text", "not_a_category", "unknown_category", "null"),
            *("infinity", "inexact"),
        )
    )
}
"""``enum arrow_status``."""


class Schema(ctypes.Structure):
    """``struct ArrowSchema``."""


class Array(ctypes.Structure):
    """``struct ArrowArray``."""


Schema._fields_ = (
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", _POINTER), ("flags", _I64),
    ("n_children", _I64), ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)), ("release", ctypes.CFUNCTYPE(None, _POINTER)),
    ("private_data", _POINTER),
)  # fmt: skip
Array._fields_ = (
    ("length", _I64), ("null_count", _I64), ("offset", _I64), ("n_buffers", _I64), ("n_children", _I64),
    ("buffers", ctypes.POINTER(_POINTER)), ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)), ("release", ctypes.CFUNCTYPE(None, _POINTER)),
    ("private_data", _POINTER),
)  # fmt: skip


def compiled(folder: Path, *flags: str) -> Path:
    """Return the library of the front with the code for texts, compiled with some more flags."""
    made = folder / "front.so"
    sources = [*map(str, sorted(NATIVE.glob("arrow/*.c"))), str(NATIVE / "text/text.c")]
    subprocess.run(["gcc", *FLAGS, f"-I{NATIVE}", *flags, *sources, "-lm", "-o", str(made)], check=True)
    return made


class Found(NamedTuple):
    """What C returned: a status, and the matrix or the place of the error."""

    status: int
    matrix: np.ndarray | None
    row: int
    column: int
    given: int


class FrontReader:
    """Calls `hbtvm_read_arrow` of a library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._read = self._library.hbtvm_read_arrow
        self._read.argtypes = [_POINTER] * 6
        self.texts = TextLibrary(path.read_bytes())
        self._hash = self._library.hbtvm_hash_known
        self._hash.restype, self._hash.argtypes = ctypes.c_uint64, [_I64, ctypes.c_char_p, _I64]

    def hash(self, kind: int, data: bytes) -> int:
        """The hash of a value's bytes."""
        return int(self._hash(kind, data, len(data)))

    def read(
        self, front: Front, batch: Any, change: Callable[[Schema, Array], object] | None = None
    ) -> Found:
        """Read a pyarrow.RecordBatch, or StructArray; `change` may change what is exported before."""
        kept: list[Any] = []

        def text_of(operation: Any) -> int:
            text, keep = laid_out(operation, self.texts)
            kept.append((text, keep))
            return ctypes.addressof(text)

        fields, keep = filled(front, text_of)
        schema, array = Schema(), Array()
        batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
        # As it was exported: it is released that way.
        before = bytes(schema), bytes(array)
        undo = change(schema, array) if change is not None else None
        kind, rows, place = _I64(-1), Rows(), ArrowPlace()
        status = self._read(*map(ctypes.addressof, (fields, schema, array, kind, rows, place)))
        if callable(undo):
            undo()
        ctypes.memmove(ctypes.addressof(schema), before[0], len(before[0]))
        ctypes.memmove(ctypes.addressof(array), before[1], len(before[1]))
        matrix = None
        if status == 0:
            dtype = np.dtype((np.float32, np.float64)[kind.value])
            shape = rows.n, rows.columns
            data = ctypes.string_at(rows.values, rows.n * rows.columns * dtype.itemsize)
            matrix = np.frombuffer(data, dtype).reshape(shape)
        else:
            assert not rows.values
        self._library.hbtvm_release_rows(ctypes.byref(rows))
        array.release(ctypes.addressof(array))
        schema.release(ctypes.addressof(schema))
        del keep
        return Found(status, matrix, place.row, place.column, place.given)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """All bits are the same, but for those of NaN."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


WORDS = ("tech", "sales", "häuser", "", "unseen", "x" * 40, "日本語 テキスト 漢字")
NUMBERS = (0, 1, 2, 3, -7, 200, 2**24 + 1, 2**53 + 1, -(2**53) - 3, 2**63 + 5)
FLOATS = (0.0, -0.0, 1.0, 2.0, 0.5, 0.1, -7.0, 3e38, 1e300, np.inf, np.nan, float(2**63))
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]


def _values(rng: np.random.Generator, kind: Any, n: int, nulls: bool, mild: bool) -> Any:
    if pa.types.is_null(kind):
        return pa.nulls(n)
    if pa.types.is_boolean(kind):
        values: list[Any] = (rng.random(n) < 0.5).tolist()
    elif pa.types.is_integer(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        top = np.iinfo(dtype)
        some = [one for one in NUMBERS[: 6 if mild else None] if top.min <= one <= top.max]
        values = [some[i] for i in rng.integers(0, len(some), n)]
    elif pa.types.is_floating(kind):
        some = np.array(FLOATS[: 8 if mild else None]).astype(kind.to_pandas_dtype()).tolist()
        values = [some[i] for i in rng.integers(0, len(some), n)]
        if rng.random() < 0.5:
            values = rng.normal(size=n).astype(kind.to_pandas_dtype()).tolist()
    else:
        values = [WORDS[i] for i in rng.integers(0, len(WORDS), n)]
    if nulls:
        values = [None if lost else one for lost, one in zip(rng.random(n) < 0.3, values, strict=True)]
    return pa.array(np.array(values, np.float16) if kind == pa.float16() and not nulls else values, kind)


def random_column(rng: np.random.Generator, n: int) -> Any:
    """An array of n values of a random type, often a slice of a longer one, with nulls or a dictionary."""
    with np.errstate(over="ignore"):
        kinds = [pa.null(), pa.bool_(), *INTEGERS, *[pa.float32(), pa.float64()] * 4, *TEXTS * 3]
        kind = kinds[rng.integers(len(kinds))]
        before, behind = rng.integers(0, 12, 2) if rng.random() < 0.5 else (0, 0)
        nulls, mild = bool(rng.random() < 0.5), bool(rng.random() < 0.7)
        if rng.random() < 0.3 and kind != pa.null():
            levels = int(rng.integers(1, 9))
            values = _values(rng, kind, levels, bool(rng.random() < 0.2), mild)
            index = INTEGERS[rng.integers(len(INTEGERS))]
            at = rng.integers(0, levels, n + before + behind).tolist()
            lost = rng.random(len(at)) < 0.3
            at = [None if nulls and gone else one for gone, one in zip(lost, at, strict=True)]
            if kind == pa.string_view():
                values = values.cast(pa.string())
            if pa.types.is_floating(kind):  # 0 and -0 are one level to Python
                values = pa.array(values.to_numpy(zero_copy_only=False) + 0, kind, from_pandas=nulls)
            whole = pa.DictionaryArray.from_arrays(pa.array(at, index), values)
        else:
            whole = _values(rng, kind, n + int(before + behind), nulls, mild)
        return whole.slice(int(before), n)


def random_batch(rng: np.random.Generator, n: int, width: int) -> Any:
    """A record batch of columns c0, c1 ..."""
    return pa.record_batch([random_column(rng, n) for _ in range(width)], [f"c{i}" for i in range(width)])


def _pick(rng: np.random.Generator, some: Any) -> Any:
    return some[int(rng.integers(len(some)))]


def _encode(rng: np.random.Generator) -> Encode:
    pool: list[Any] = [*WORDS[:4], *WORDS[5:]]
    if rng.random() < 0.5:
        pool = [0, 1, 2, 3.0, 0.5, 0.1, -7, 200, 2**53 + 1, 2**63 + 5, float(np.float32(0.1)), 1e300]
    some: list[Any] = [one for one in pool if rng.random() < 0.8]
    some += [one for one in (np.nan, None) if rng.random() < 0.4]
    unknown = "error" if rng.random() < 0.15 else "code"
    return Encode(tuple(some), unknown, "column")  # type: ignore[arg-type]


def _missing(rng: np.random.Generator) -> Any:
    return _pick(rng, (np.nan, np.nan, None, NA, 0, 2, 0.1, "tech", -7.0))


def _fill(rng: np.random.Generator) -> Fill:
    return Fill(_pick(rng, (0.0, 1, 0.1, "tech", "sales", -7.5)), _missing(rng))


def _number_step(rng: np.random.Generator) -> Step:
    constant = float(_pick(rng, (0.1, 3.0, -7.5, 1e-3, 1e30)))
    edges = np.sort(rng.normal(size=5)).round(1)
    makers: list[Callable[[], Step]] = [
        lambda: Arithmetic(
            _pick(rng, ("add", "subtract", "multiply", "divide")), constant, rng.random() < 0.5
        ),
        lambda: Clip(-0.7, 1.1),
        lambda: Within(-0.7, 1.1),
        lambda: Above(0.1),
        lambda: Cast(_pick(rng, ("float32", "float64"))),
        lambda: Function(_pick(rng, sorted(EXACT))),
        lambda: Fill(0.1, _pick(rng, (np.nan, NA, None, 0.1, 1, "tech"))),
        lambda: IsMissing(_pick(rng, (np.nan, NA, None, 0.1, 1, "tech"))),
        lambda: ZeroIsMissing(),
        lambda: Bins(edges),
        lambda: Quantile(np.sort(rng.normal(size=7)).round(1), np.linspace(0, 1, 7), _pick(rng, (0.0, 1e-7))),
        lambda: Equals((0, 1)),
    ]
    return makers[int(rng.integers(len(makers)))]()


def random_feed(rng: np.random.Generator, raw: int) -> Feed:
    """A feed of numbers, codes or steps of a column."""
    where = f"column 'c{raw}'"
    kind = rng.random()
    if kind < 0.2:
        return Feed(Raw(raw), where=where)
    first: list[Step] = [
        _fill(rng) if rng.random() < 0.7 else IsMissing(_missing(rng)) for _ in range(int(rng.integers(0, 3)))
    ]
    encode = _encode(rng)
    if kind < 0.6:
        return Feed(Raw(raw), (*first, encode), where=where)
    if kind < 0.75:
        codes = len(encode)
        first += [encode, Lookup(rng.normal(size=codes)) if rng.random() < 0.5 else Equals((0, 2))]
    steps = [*first, *(_number_step(rng) for _ in range(int(rng.integers(1, 4))))]
    return Feed(Raw(raw), tuple(steps), allow_inf=bool(rng.random() < 0.8), where=where)
