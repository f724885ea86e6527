"""Functions of float32 vectors, as expressions that compute shared parts once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import splat

_CLAMP = 7.90531110763549805
"""Beyond it, the quotient of polynomials below leaves [-1, 1]; tanh is 1 there within float32's last bits."""

_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


class Functions:
    """Makes expressions; shared parts become preceding statements.

    `statements`: the list to append them to.
    `lanes`: lanes of a vector.
    """

    def __init__(self, statements: list[Any], lanes: int) -> None:
        self.statements, self.lanes = statements, lanes
        self.kind = "float32" if lanes == 1 else f"float32x{lanes}"

    def number(self, value: float) -> Any:
        """Return a vector of a constant."""
        return splat(value, "float32", self.lanes)

    def shared(self, value: Any, name: str = "v") -> Any:
        """Bind a value that is used more than once to a variable."""
        if isinstance(value, tirx.Var):
            return value
        variable = tirx.Var(name, str(value.ty.dtype))
        self.statements.append(tirx.Bind(variable, value))
        return variable

    def of(self, op: str, x: Any) -> Any:
        """Apply a function by its name in `hbtvm.recursive.cell.UNARY`."""
        function: Callable[[Any], Any] = getattr(self, op)
        return function(x)

    def neg(self, x: Any) -> Any:
        """-x."""
        return self.number(0.0) - x

    def abs(self, x: Any) -> Any:
        """The absolute value."""
        x = self.shared(x)
        return tirx.max(x, self.number(0.0) - x)

    def relu(self, x: Any) -> Any:
        """x, but at least 0."""
        return tirx.max(x, self.number(0.0))

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent, as a quotient of polynomials; errors of a few units of the last place."""
        bounded = tirx.max(tirx.min(x, self.number(_CLAMP)), self.number(-_CLAMP))
        x = self.shared(bounded, "x")
        square = self.shared(x * x, "square")
        return x * self._polynomial(_ODD, square) / self._polynomial(_EVEN, square)

    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + e**-x)."""
        half = self.number(0.5)
        return self.tanh(x * half) * half + half

    def exp(self, x: Any) -> Any:
        """e to the power of x."""
        x = self.shared(tirx.max(tirx.min(x, self.number(88.0)), self.number(-87.0)), "x")
        # (The compiler would remove rounding by adding and subtracting a large number.)
        n = self.shared(tirx.floor(x * self.number(1 / math.log(2)) + self.number(0.5)), "n")
        high = 0.693359375
        r = self.shared(x - n * self.number(high) - n * self.number(math.log(2) - high), "r")
        series = self._polynomial([1 / math.factorial(k) for k in range(7, -1, -1)], r)
        whole = "int32" if self.lanes == 1 else f"int32x{self.lanes}"
        bits = (tirx.Cast(whole, n) + splat(127, "int32", self.lanes)) << splat(23, "int32", self.lanes)
        return series * tirx.reinterpret(self.kind, bits)

    def _polynomial(self, coefficients: Sequence[float], x: Any) -> Any:
        result = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = result * x + self.number(coefficient)
        return result
