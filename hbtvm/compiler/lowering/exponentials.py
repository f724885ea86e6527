"""Lower exponentials (see `hbtvm.strategies.intrinsics.exponential`) to arithmetic, and permutes of a table.

``exp(x) = 2**(n / N) * exp(r)`` with a whole number n and ``|r| <= log(2) / (2 * N)``. The bits of n give the
first factor, a polynomial the second. With AVX-512, N is 16: one instruction looks up ``2**(j / 16)`` for
eight values of j, and the polynomial has half as many terms. Elsewhere N is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx.op import register_intrin_lowering

from hbtvm.compiler.lowering.lookups import register_lanes
from hbtvm.strategies.intrinsics.exponential import EXPONENTIAL

_ROUNDS = 1.5 * 2.0**52
"""Adding it to a number of moderate size leaves the nearest whole number in the lowest bits."""

_LOWEST = -1022 * math.log(2)  # at which all bits of half the first factor are 0
_HIGHEST = 709.79  # beyond float64's largest power, half of which float64 still holds
_PARTS = 16  # entries of the table: two registers of eight

_ENTRIES = (2.0 ** (np.arange(_PARTS) / _PARTS - 1)).view(np.int64) - (np.arange(_PARTS) << 48)
"""Bits of half the powers, minus the bits of j in ``n << 48``."""

_DEGREES = {1: 11, _PARTS: 6}
"""Degrees of the series by the number of parts: further terms are below 1e-14."""


def lower(call: Any) -> Any:
    """Return the replacement of a call."""
    return _Exponential(int(str(call.ty.dtype).partition("x")[2] or 1)).of(call.args[0])


class _Exponential:
    """Expressions of vectors of `lanes` numbers."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.parts = _PARTS if register_lanes("float64") == 8 and lanes % 8 == 0 else 1

    def of(self, x: Any) -> Any:
        """Return e to the powers x."""
        low, high = self._number(_LOWEST), self._number(_HIGHEST)
        return _let(
            x,
            lambda x: _let(
                tirx.Select(x < low, low, x),
                lambda x: _let(tirx.Select(x > high, high, x), self._bounded),
            ),
        )

    def _bounded(self, x: Any) -> Any:
        rounds = self._number(_ROUNDS)

        def reduced(t: Any) -> Any:
            # A fused multiply-add does not round the product, so one step suffices.
            r = x - (t - rounds) * self._number(math.log(2) / self.parts)
            return _let(r, lambda r: self._twice(r) * self._half_power(t))

        return _let(x * self._number(self.parts / math.log(2)) + rounds, reduced)

    def _twice(self, r: Any) -> Any:
        """Return twice the polynomial; its product with half of the largest power does not overflow."""
        degree = _DEGREES[self.parts]
        result = self._number(2 / math.factorial(degree))
        for n in range(degree - 1, -1, -1):
            result = result * r + self._number(2 / math.factorial(n))
        return result

    def _half_power(self, t: Any) -> Any:
        """Return half of 2 to the n / parts, where n is in the low bits of `t`."""
        whole = tirx.reinterpret(self._type("int64"), t)
        if self.parts == 1:
            bits = (whole << self._whole(52)) + self._whole(1022 << 52)
        else:
            bits = _let(whole, lambda n: _entries(n, self.lanes) + (n << self._whole(48)))
        return tirx.reinterpret(self._type("float64"), bits)

    def _type(self, element: str) -> str:
        return element if self.lanes == 1 else f"{element}x{self.lanes}"

    def _number(self, value: float) -> Any:
        return tirx.const(value, self._type("float64"))

    def _whole(self, value: int) -> Any:
        return tirx.const(value, self._type("int64"))


def _entries(n: Any, lanes: int) -> Any:
    """Return entries of the table by the lowest four bits of each number."""
    if lanes > 8:
        halves = [part(f"int64x{lanes // 2}", n) for part in (tirx.vectorlow, tirx.vectorhigh)]
        parts = [_let(half, lambda index: _entries(index, lanes // 2)) for half in halves]
        return tirx.vectorcombine(f"int64x{lanes}", *parts)
    low, high = (
        tirx.Shuffle(
            [tirx.const(int(entry), "int64") for entry in _ENTRIES[first : first + 8]], list(range(8))
        )
        for first in (0, 8)
    )
    return tirx.call_llvm_pure_intrin("int64x8", "llvm.x86.avx512.vpermi2var.q.512", low, n, high)


def _let(value: Any, body: Callable[[Any], Any]) -> Any:
    name = tirx.Var("v", str(value.ty.dtype))
    return tirx.Let(name, value, body(name))


register_intrin_lowering(EXPONENTIAL, target="llvm", f=lower)
