"""Values and codes in the format of `hbtvm/native/arrow/arrow.h`: constants, and hash tables of codes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.steps import Encode, Fill, IsMissing, Step
from hbtvm.runtime.codes.coder import Coder

REFUSED, NAN = -1, -2  # ``enum no_code``, in place of a code

SLOT = np.dtype(
    [("kind", np.int64), ("bits", np.uint64), ("size", np.int64), ("codes", np.int64, (3,))], align=True
)
"""``struct known``."""

_START, _FACTOR, _MASK = 0xCBF29CE484222325, 0x9E3779B97F4A7C15, (1 << 64) - 1


class Kind(IntEnum):
    """``enum known_kind``."""

    NONE = 0
    TEXT = 1
    INTEGER = 2
    UNSIGNED = 3
    NUMBER = 4


@dataclass(frozen=True)
class Constant:
    """``struct constant``: a constant value."""

    kind: Kind = Kind.NONE  # its kind; `Kind.NONE` for None
    bits: int = 0  # bits of a number
    text: bytes = b""  # UTF-8


def constant(value: Any) -> Constant | None:
    """Convert a Python value to a constant; None if no Arrow value equals it.

    Equal numbers are equal constants; NaN equals itself.
    """
    if value is None:
        return Constant()
    if isinstance(value, str):
        return Constant(Kind.TEXT, 0, value.encode("utf-8", "surrogatepass"))
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        return None
    whole: int | None = None
    if not isinstance(value, float | np.floating):
        whole = int(value)
    elif float(value).is_integer():
        whole = int(float(value))
    if whole is not None and -(1 << 63) <= whole < 1 << 63:
        return Constant(Kind.INTEGER, whole & _MASK)
    if whole is not None and 0 <= whole <= _MASK:
        return Constant(Kind.UNSIGNED, whole)
    if whole is not None and not isinstance(value, float | np.floating):
        # Beyond Arrow's integers; a float may equal it.
        try:
            same = float(whole)
        except OverflowError:
            return None
        if int(same) != whole:
            return None
        value = same
    return Constant(Kind.NUMBER, int(struct.unpack("<Q", struct.pack("<d", float(value)))[0]))


@dataclass(frozen=True, eq=False)
class Codes:
    """``struct codes``: codes of values, with `REFUSED` or `NAN` in place of some."""

    slots: np.ndarray  # shape (2^k,), of `SLOT`
    pool: np.ndarray  # the texts' bytes, uint8
    # `none`, `other`: the codes of None and of values outside the table
    none: int
    other: int
    nan: tuple[int, int, int]  # the code of NaN in a column of float32, and of float64 numbers


def hash_of(value: Constant) -> int:
    """``hbtvm_hash_known``."""
    data = value.text if value.kind == Kind.TEXT else value.bits.to_bytes(8, "little")
    result = _START ^ value.kind ^ len(data) << 8
    for at in range(0, len(data), 8):
        result = (result ^ int.from_bytes(data[at : at + 8], "little")) * _FACTOR & _MASK
        result ^= result >> 32
    return result


def laid_out(
    codes: Mapping[Constant, tuple[int, int, int]], none: int, other: int, nan: tuple[int, int, int]
) -> Codes:
    """Lay out a hash table that is at most half full."""
    bits = max(1, (2 * len(codes)).bit_length())
    slots, pool, mask = np.zeros(1 << bits, SLOT), bytearray(), (1 << bits) - 1
    used: set[int] = set()
    for value, code in codes.items():
        at = hash_of(value) & mask
        while at in used:
            at = (at + 1) & mask
        used.add(at)
        start = len(pool) if value.kind == Kind.TEXT else value.bits
        slots[at] = (value.kind, start, len(value.text), code)
        pool += value.text
    return Codes(slots, np.frombuffer(bytes(pool), np.uint8), none, other, nan)


def of_steps(steps: tuple[Step, ...]) -> Codes:
    """Return the codes of a feed's steps, for which `hbtvm.runtime.codes.coder.folds` is true."""
    coder, encoder = Coder(steps), steps[-1]
    assert isinstance(encoder, Encode)
    missing = [step.missing for step in steps if isinstance(step, Fill | IsMissing)]

    def by_itself(value: Any) -> int:
        return _code(lambda: coder.of_value(value))

    def typed(value: Any, dtype: Any) -> int:
        return _code(lambda: int(coder.of_numbers(np.array([value], dtype))[0]))

    codes: dict[Constant, tuple[int, int, int]] = {}
    for value in _known((*encoder.categories, *missing)):
        key = constant(value)
        if key is None or key in codes:
            continue
        single = by_itself(value)
        narrow = wide = single
        if key.kind != Kind.TEXT:
            # Lookups only see numbers that the column's type holds.
            number = float(value)
            wide = typed(number, np.float64) if number == value else single
            narrow = typed(number, np.float32) if _holds(value) else single
        codes[key] = single, narrow, wide
    nan = by_itself(np.nan), typed(np.nan, np.float32), typed(np.nan, np.float64)
    return laid_out(codes, by_itself(None), by_itself(object()), nan)


def of_encoder(encoder: Encode) -> Codes:
    """Return the codes of an encoder among other steps."""

    def code_of(value: Any) -> tuple[int, int, int]:
        code = _code(lambda: encoder.code(value))
        return code, code, code

    keys = {constant(value): code_of(value) for value in _known(encoder.categories)}
    codes = {key: code for key, code in keys.items() if key is not None}
    return laid_out(codes, code_of(None)[0], code_of(object())[0], code_of(np.nan))


def of_categories(values: tuple[Any, ...], refuses: bool) -> Codes:
    """Return the codes of a bare model's categories; a missing value is not a category."""
    keys = {constant(value): (code, code, code) for code, value in enumerate(values) if value == value}
    codes = {key: code for key, code in keys.items() if key is not None and key.kind != Kind.NONE}
    return laid_out(codes, NAN, REFUSED if refuses else NAN, (NAN, NAN, NAN))


def _code(find: Callable[[], int]) -> int:
    try:
        return find()
    except InputError:
        return REFUSED


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None and value == value and constant(value) is not None]


def _holds(value: Any) -> bool:
    with np.errstate(over="ignore"):
        return bool(float(np.float32(float(value))) == value)
