"""Functions of one or two float64 numbers as expressions that vectorise.

TVM lowers most of them to calls of the C library, which take one number at a time. The important functions
are polynomials here, with relative errors below 4e-14; infinities, zeros and NaN agree with numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx

from hbtvm.operators.normal import COEFFICIENTS
from hbtvm.strategies.intrinsics.exponential import exponential

_F, _I = "float64", "int64"
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""The logarithm of 2 in two parts; the first times a whole number up to 2**20 is exact."""


def number(value: float) -> Any:
    """Return a float64 constant."""
    return tirx.const(float(value), _F)


def known(x: Any) -> Any:
    """Return whether a number is not NaN; TVM's test for NaN would scalarise vectors."""
    return x >= number(-math.inf)


def truth(condition: Any) -> Any:
    """Return 1 where a condition holds, else 0."""
    return tirx.Select(condition, number(1), number(0))


def _let(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return `body` of a variable for a value, which is then computed once."""
    value = tirx.convert(value)
    name = tirx.Var("v", str(value.ty))
    return tirx.Let(name, value, body(name))


def _horner(x: Any, coefficients: list[float]) -> Any:
    """Return a polynomial; `coefficients` begin with the largest power's."""
    result = number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + number(coefficient)
    return result


_ATANH = [1 / (2 * n + 1) for n in range(10, -1, -1)]


def log(x: Any) -> Any:
    """Return the natural logarithm."""

    def of(x: Any) -> Any:
        tiny = x < number(2.0**-1000)
        bits = tirx.reinterpret(_I, tirx.Select(tiny, x * number(2.0**54), x))
        return _let(bits, lambda bits: parts(x, tiny, bits))

    def parts(x: Any, tiny: Any, bits: Any) -> Any:
        mantissa = (bits & tirx.const((1 << 52) - 1, _I)) | tirx.const(1023 << 52, _I)
        exponent = ((bits >> tirx.const(52, _I)) & tirx.const(2047, _I)) - tirx.const(1023, _I)
        e = exponent.astype(_F) - tirx.Select(tiny, number(54), number(0))
        return _let(tirx.reinterpret(_F, mantissa), lambda m: _let(e, lambda e: centred(x, m, e)))

    def centred(x: Any, m: Any, e: Any) -> Any:
        large = m > number(math.sqrt(2))
        e = e + truth(large)
        m = tirx.Select(large, m * number(0.5), m)
        f = (m - number(1)) / (m + number(1))
        return _let(f, lambda f: _let(f * f, lambda s: ends(x, e, f * number(2) * _horner(s, _ATANH))))

    def ends(x: Any, e: Any, series: Any) -> Any:
        result = e * number(_LN2_HIGH) + (e * number(_LN2_LOW) + series)
        result = tirx.Select(x < number(math.inf), result, x)  # infinity and NaN
        result = tirx.Select(x == number(0), number(-math.inf), result)
        return tirx.Select(x < number(0), number(math.nan), result)

    return _let(x, of)


def log1p(x: Any) -> Any:
    """Return the logarithm of 1 + x, exact near 0."""

    def of(x: Any, u: Any) -> Any:
        # Correct the rounding error of 1 + x by the first term of a series.
        corrected = log(u) - ((u - number(1)) - x) / u
        result = tirx.Select(u == number(1), x, corrected)
        return tirx.Select(tirx.all(x > number(-1), x < number(math.inf)), result, log(u))

    return _let(x, lambda x: _let(x + number(1), lambda u: of(x, u)))


_EXPM1 = [1 / math.factorial(n) for n in range(16, 0, -1)]


def expm1(x: Any) -> Any:
    """Return e to a power, less 1; exact near 0."""

    def of(x: Any) -> Any:
        small = tirx.all(x > number(-0.7), x < number(0.7))
        return tirx.Select(small, x * _horner(x, _EXPM1), exponential(x) - number(1))

    return _let(x, of)


def sigmoid(x: Any, exp: Callable[[Any], Any] = exponential, number: Callable[[float], Any] = number) -> Any:
    """Return 1 / (1 + exp(-x)); `exp` and `number` must have x's type."""
    return number(1) / (number(1) + exp(number(0) - x))


_TANH = [62 / 2835, -17 / 315, 2 / 15, -1 / 3, 1.0]


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""

    def of(x: Any) -> Any:
        size = tirx.Select(x < number(0), number(0) - x, x)
        return _let(size, lambda size: _let(x * x, lambda s: signed(x, size, s)))

    def signed(x: Any, size: Any, s: Any) -> Any:
        large = number(1) - number(2) / (exponential(size * number(2)) + number(1))
        return _let(large, lambda large: chosen(x, size, s, large))

    def chosen(x: Any, size: Any, s: Any, large: Any) -> Any:
        large = tirx.Select(x < number(0), number(0) - large, large)
        return tirx.Select(size < number(0.05), x * _horner(s, _TANH), large)

    return _let(x, of)


def raised(x: Any, y: Any, logarithm: Any) -> Any:
    """Return x to the power y; `logarithm` is that of abs(x). NaN for negative x and fractional y."""

    def of(x: Any, y: Any, size: Any) -> Any:
        whole = tirx.floor(y) == y
        odd = tirx.floor(y * number(0.5)) * number(2) != y
        negative = tirx.Select(whole, tirx.Select(odd, number(0) - size, size), number(math.nan))
        result = tirx.Select(x < number(0), negative, size)
        is_one = tirx.any(y == number(0), x == number(1))
        return tirx.Select(is_one, number(1), result)

    # (The logarithm of 0 is -inf, which gives the right powers.) Bind arguments that are used twice: they may
    # contain let variables, which must be unique.
    return _let(y, lambda y: _let(exponential(y * logarithm), lambda size: _let(x, lambda x: of(x, y, size))))


def root(x: Any, logarithm: Any) -> Any:
    """Return the cube root; `logarithm` is that of abs(x)."""
    size = exponential(logarithm * number(1 / 3))
    return _let(size, lambda size: tirx.Select(x < number(0), number(0) - size, size))


def log_of_size(x: Any) -> Any:
    """Return the logarithm of the absolute value."""
    return _let(x, lambda x: log(tirx.Select(x < number(0), number(0) - x, x)))


def _absolute(x: Any) -> Any:
    return _let(x, lambda x: tirx.Select(x < number(0), number(0) - x, x))


def _sign(x: Any) -> Any:
    def of(x: Any) -> Any:
        positive = tirx.Select(x > number(0), number(1), x * number(0))
        return tirx.Select(x < number(0), number(-1), tirx.Select(known(x), positive, x))

    return _let(x, of)


def _sinh(x: Any) -> Any:
    def signed(x: Any, e: Any) -> Any:
        size = _let(e, lambda e: (e + e / (e + number(1))) * number(0.5))
        return _let(size, lambda size: tirx.Select(x < number(0), number(0) - size, size))

    return _let(x, lambda x: signed(x, expm1(_absolute(x))))


def _cosh(x: Any) -> Any:
    return _let(exponential(_absolute(x)), lambda e: (e + number(1) / e) * number(0.5))


def _arcsinh(x: Any) -> Any:
    def of(x: Any, size: Any) -> Any:
        root = tirx.sqrt(size * size + number(1))
        result = log1p(size + size * size / (root + number(1)))
        return _let(result, lambda result: tirx.Select(x < number(0), number(0) - result, result))

    return _let(x, lambda x: _let(_absolute(x), lambda size: of(x, size)))


def _maximum(a: Any, b: Any) -> Any:
    # NaN of either argument stays.
    return _let(a, lambda a: _let(b, lambda b: tirx.Select(a < b, b, tirx.Select(known(b), a, b))))


def _minimum(a: Any, b: Any) -> Any:
    return _let(a, lambda a: _let(b, lambda b: tirx.Select(a > b, b, tirx.Select(known(b), a, b))))


def tail_root(p: Any, log: Callable[[Any], Any]) -> Any:
    """Return sqrt(-log(min(p, 1 - p)))."""

    def of(p: Any) -> Any:
        return tirx.Select(p < number(0.5), p, number(1) - p)

    return tirx.sqrt(number(0) - log(_let(p, of)))


def normal_quantile(p: Any, root: Any) -> Any:
    """Return the quantile of the normal distribution (see `hbtvm.operators.normal`).

    `root`: `tail_root` of p, computed in a separate stage: nested expressions take long to compile.
    """

    def rational(name: str, x: Any) -> Any:
        over, under = (list(part[::-1]) for part in COEFFICIENTS[name])
        return _let(x, lambda x: tirx.div(_horner(x, over), _horner(x, under)))

    def tail(r: Any) -> Any:
        size = tirx.Select(r <= number(5), rational("tail", r - number(1.6)), rational("end", r - number(5)))
        return tirx.Select(r == number(math.inf), r, size)

    def of(q: Any, size: Any) -> Any:
        signed = tirx.Select(q < number(0), number(0) - size, size)
        near = tirx.all(q >= number(-0.425), q <= number(0.425))
        return tirx.Select(near, q * rational("middle", number(0.180625) - q * q), signed)

    return _let(p - number(0.5), lambda q: _let(_let(root, tail), lambda size: of(q, size)))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "negative": lambda x: number(0) - x,
    "exp": exponential,
    "exp2": lambda x: exponential(x * number(math.log(2))),
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "log2": lambda x: log(x) * number(1 / math.log(2)),
    "log10": lambda x: log(x) * number(1 / math.log(10)),
    "sqrt": tirx.sqrt,
    "square": lambda x: _let(x, lambda x: x * x),
    "absolute": _absolute,
    "reciprocal": lambda x: number(1) / x,
    "tanh": tanh,
    "sinh": _sinh,
    "cosh": _cosh,
    "sin": tirx.sin,
    "cos": tirx.cos,
    "tan": tirx.tan,
    "arcsin": lambda x: _let(x, lambda x: tirx.atan(x / tirx.sqrt((number(1) - x) * (number(1) + x)))),
    "arctan": tirx.atan,
    "arcsinh": _arcsinh,
    "arctanh": lambda x: _let(x, lambda x: (log1p(x) - log1p(number(0) - x)) * number(0.5)),
    "floor": tirx.floor,
    "ceil": tirx.ceil,
    "rint": tirx.nearbyint,
    "trunc": tirx.trunc,
    "sign": _sign,
    "sigmoid": sigmoid,
    "relu": lambda x: _let(x, lambda x: tirx.Select(x < number(0), number(0), x)),
    "isnan": lambda x: tirx.Select(known(x), number(0), number(1)),
    "round_float32": lambda x: x.astype("float32").astype(_F),
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: tirx.div(a, b),
    "maximum": _maximum,
    "minimum": _minimum,
    "less": lambda a, b: truth(a < b),
    "less_equal": lambda a, b: truth(a <= b),
    "greater": lambda a, b: truth(a > b),
    "greater_equal": lambda a, b: truth(a >= b),
    "equal": lambda a, b: truth(a == b),
    "where": lambda c, a, b: tirx.Select(c == number(0), b, a),
}
"""Expressions of `hbtvm.operators.pointwise.FUNCTIONS` by name; ``"power"``, ``"cbrt"`` and
``"normal_quantile"`` take two stages."""
