"""`HashText`: categories as CatBoost hashes them: CityHash64 (version 1) of their text in UTF-8.

The hash is computed for all texts of a batch together, by length: 0 to 16 bytes, to 32, to 64, and above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.steps import Step

_K0, _K1 = np.uint64(0xC3A5C85C97CB3127), np.uint64(0xB492B66FBE98F273)
_K2, _K3 = np.uint64(0x9AE16A3B2F90404F), np.uint64(0xC949D7C7509E6557)
_PAIR = np.uint64(0x9DDFEA08EB382D69)

_MOST = 1 << 63


@dataclass(frozen=True, eq=False)
class HashText(Step):
    """The lower 32 bits of a category's hash, as a signed integer.

    Integers and bools hash as their digits.
    """

    where: str = ""  # the column, for errors

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return the hashes of values, float64, of the same shape.

        `x`: objects, or numbers; in floats, whole numbers stand for integers.
        """
        values = x.ravel().tolist()
        if x.dtype.kind == "f":
            values = [int(value) if value == value // 1 else value for value in values]
        return self.hashes(values).astype(np.float64).reshape(x.shape)

    def hashes(self, values: Sequence[Any]) -> np.ndarray:
        """Return the hashes of Python values, int32, shape (n,).

        Raises `InputError` if a value is neither a text nor an integer.
        """
        return city_hash([self.text(value, row) for row, value in enumerate(values)]).astype(np.int32)

    def text(self, value: Any, row: int | None = None) -> bytes:
        """Return a value's text in UTF-8. Raises `InputError` as `hashes`."""
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, (int, np.integer, np.bool_)) and -_MOST <= int(value) < _MOST:
            return b"%d" % int(value)
        if isinstance(value, bytes):
            return value
        place = self.where if row is None else f"{self.where}, row {ROW}"
        raise InputError(
            f"{place}: expected a category, a text or an integer, got {value!r:.60}; convert other "
            "values, missing ones too, to text as in training.",
            row,
        )


def city_hash(texts: Sequence[bytes]) -> np.ndarray:
    """Return the hashes of texts, uint64, shape (n,)."""
    size = np.fromiter(map(len, texts), np.int64, len(texts))
    # Loads of eight bytes may reach behind the last text.
    pool = _Pool(np.frombuffer(b"".join(texts) + bytes(8), np.uint8))
    start = np.cumsum(size) - size
    result = np.full(len(texts), _K2)
    for least, most, function in _BY_SIZE:
        rows = np.flatnonzero((size >= least) & (size <= most))
        if len(rows):
            result[rows] = function(pool, start[rows], size[rows])
    return result


class _Pool:
    """Bytes, and the numbers at their positions."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self._words = np.lib.stride_tricks.sliding_window_view(data, 8)

    def __call__(self, at: np.ndarray) -> np.ndarray:
        """Return the words of eight bytes at positions, uint64."""
        words: np.ndarray = np.ascontiguousarray(self._words[at]).view("<u8")[:, 0]
        return words

    def half(self, at: np.ndarray) -> np.ndarray:
        """Return the words of four bytes at positions, as uint64."""
        words: np.ndarray = self(at) & np.uint64(0xFFFFFFFF)
        return words


def _rotated(x: np.ndarray, by: int | np.ndarray) -> np.ndarray:
    shift = np.asarray(by, np.uint64)
    result: np.ndarray = (x >> shift) | (x << (np.uint64(64) - shift))
    return result


def _mixed(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x ^ (x >> np.uint64(47))
    return result


def _paired(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    a = _mixed((u ^ v) * _PAIR)
    result: np.ndarray = _mixed((v ^ a) * _PAIR) * _PAIR
    return result


def _to_3(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    first, middle, last = (pool.data[i].astype(np.uint64) for i in (at, at + (size >> 1), at + size - 1))
    y, z = first + (middle << np.uint64(8)), size.astype(np.uint64) + (last << np.uint64(2))
    result: np.ndarray = _mixed((y * _K2) ^ (z * _K3)) * _K2
    return result


def _to_8(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    return _paired(size.astype(np.uint64) + (pool.half(at) << np.uint64(3)), pool.half(at + size - 4))


def _to_16(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    length, b = size.astype(np.uint64), pool(at + size - 8)
    result: np.ndarray = _paired(pool(at), _rotated(b + length, length)) ^ b
    return result


def _to_32(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    a, b = pool(at) * _K1, pool(at + 8)
    c, d = pool(at + size - 8) * _K2, pool(at + size - 16) * _K0
    return _paired(
        _rotated(a - b, 43) + _rotated(c, 30) + d, a + _rotated(b ^ _K3, 20) - c + size.astype(np.uint64)
    )


def _to_64(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    def half(a: np.ndarray, z: np.ndarray, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        b, c = _rotated(a + z, 52), _rotated(a, 37)
        a = a + p
        c = c + _rotated(a, 7)
        a = a + q
        return a + z, b + _rotated(a, 31) + c

    end = at + size
    a = pool(at) + (size.astype(np.uint64) + pool(end - 16)) * _K0
    vf, vs = half(a, pool(at + 24), pool(at + 8), pool(at + 16))
    wf, ws = half(pool(at + 16) + pool(end - 32), pool(end - 8), pool(end - 24), pool(end - 16))
    r = _mixed((vf + ws) * _K2 + (wf + vs) * _K0)
    result: np.ndarray = _mixed(r * _K0 + vs) * _K2
    return result


def _weak(pool: _Pool, at: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mix 32 bytes at positions with two seeds."""
    w, x, y, z = (pool(at + i) for i in (0, 8, 16, 24))
    a = a + w
    b = _rotated(b + a + z, 21)
    c = a
    a = a + x + y
    return a + z, b + _rotated(a, 44) + c


def _above_64(pool: _Pool, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    length, end = size.astype(np.uint64), at + size
    x, y, z = pool(at), pool(end - 16) ^ _K1, pool(end - 56) ^ _K0
    v, w = _weak(pool, end - 64, length, y), _weak(pool, end - 32, length * _K1, _K0)
    z = z + _mixed(v[1]) * _K1
    x, y = _rotated(z + x, 39) * _K1, _rotated(y, 33) * _K1
    state = np.stack([x, y, z, *v, *w])
    rounds = (size - 1) >> 6
    for i in range(int(rounds.max())):
        rows = np.flatnonzero(rounds > i)
        state[:, rows] = _round(pool, at[rows] + 64 * i, state[:, rows])
    x, y, z, v0, v1, w0, w1 = state
    return _paired(_paired(v0, w0) + _mixed(y) * _K1 + z, _paired(v1, w1) + x)


def _round(pool: _Pool, at: np.ndarray, state: np.ndarray) -> np.ndarray:
    x, y, z, v0, v1, w0, w1 = state
    x = (_rotated(x + y + v0 + pool(at + 16), 37) * _K1) ^ w1
    y = (_rotated(y + v1 + pool(at + 48), 42) * _K1) ^ v0
    z = _rotated(z ^ w0, 33)
    v = _weak(pool, at, v1 * _K1, x + w0)
    w = _weak(pool, at + 32, z + w1, y)
    return np.stack([z, y, x, *v, *w])


_BY_SIZE = (
    (1, 3, _to_3),
    (4, 8, _to_8),
    (9, 16, _to_16),
    (17, 32, _to_32),
    (33, 64, _to_64),
    (65, 1 << 62, _above_64),
)
"""Functions of texts by their lengths in bytes."""
