"""Quantiles of the normal distribution, by rational functions (Wichura 1988, algorithm AS 241, PPND16).

Relative errors are about 1e-16. Kernels compute the same expression; see `COEFFICIENTS`.
"""

from __future__ import annotations

import numpy as np

# fmt: off
COEFFICIENTS = {
    "middle": (
        (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
         45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727),
        (1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077,
         21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610),
    ),
    "tail": (
        (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
         1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833,
         7.74545014278341407640e-4),
        (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550,
         0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4,
         1.05075007164441684324e-9),
    ),
    "end": (
        (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
         0.0265321895265761230930, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
         2.01033439929228813265e-7),
        (1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15),
    ),
}
# fmt: on
"""Numerator and denominator of three rational functions, from the constant on.

With q = p - 1/2 and r = sqrt(-log(min(p, 1 - p))): ``q * middle(0.180625 - q * q)`` where abs(q) is at most
0.425; else, with the sign of q, ``tail(r - 1.6)`` where r is at most 5, and ``end(r - 5)`` beyond.
"""


def normal_quantile(p: np.ndarray) -> np.ndarray:
    """Return the quantiles of probabilities, float64 of any shape; NaN outside of 0 to 1."""
    p = np.asarray(p, np.float64)
    with np.errstate(all="ignore"):
        q = p - 0.5
        r = np.sqrt(-np.log(np.minimum(p, 1.0 - p)))
        tail = np.where(r <= 5.0, _rational("tail", r - 1.6), _rational("end", r - 5.0))
        # At 0 and 1, the rational function is infinity divided by infinity.
        tail = np.where(r == np.inf, r, tail)
        result: np.ndarray = np.where(
            np.abs(q) <= 0.425, q * _rational("middle", 0.180625 - q * q), np.copysign(tail, q)
        )
    return result


def _rational(name: str, x: np.ndarray) -> np.ndarray:
    numerator, denominator = (_polynomial(coefficients, x) for coefficients in COEFFICIENTS[name])
    result: np.ndarray = numerator / denominator
    return result


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result
