"""`Coupling`: class probabilities from pairwise ones, as libsvm couples them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.operators.base import Unary

_LEAST_ROUNDS = 100

TOLERANCE = 0.005  # bound of the error, times the number of classes; see `coupled`


@dataclass(frozen=True, eq=False)
class Coupling(Unary):
    """Class probabilities that fit best those of pairs of classes; see `coupled`.

    The number of rounds depends on the row. The host computes a `Coupling` that is a predictor's output;
    kernels compute others.

    `x`: probabilities of the first class of the pairs (0, 1), (0, 2), ..., (1, 2), ...; width
        C * (C - 1) / 2.
    """

    classes: int  # C, at least 2
    kind = "coupling"

    @property
    def width(self) -> int:
        return self.classes

    def attributes(self) -> dict[str, Any]:
        return {"classes": self.classes, "rounds": most_rounds(self.classes)}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return coupled(inputs[0], self.classes)

    def checked(self) -> Coupling:
        if self.classes < 2 or self.x.width != self.classes * (self.classes - 1) // 2:
            raise ValueError(f"{self.x.width} pairs of {self.classes} classes")
        return self


def most_rounds(classes: int) -> int:
    """Return the number of rounds after which libsvm stops."""
    return max(_LEAST_ROUNDS, classes)


def coupled(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Return the probabilities p of C classes that fit best those of pairs of classes.

    With r[i, j] the probability of i given i or j, p minimises the sum over pairs of
    ``(r[j, i] * p[i] - r[i, j] * p[j]) ** 2`` (Wu, Lin and Weng 2004, their second method). libsvm stops
    early, so its rounds are part of the definition. From p = 1 / C on, a round ends the iteration if every
    ``abs((Q @ p)[i] - p @ Q @ p)`` is below 0.005 / C, where ``Q[i, i]`` is the sum of ``r[j, i] ** 2`` and
    ``Q[i, j] = -r[j, i] * r[i, j]``; else it takes a Newton step for one class after another, each followed
    by a division by the sum. There are at most max(100, C) rounds.

    `pairs`: r[i, j] of the pairs (0, 1), (0, 2), ..., (1, 2), ...; float64, shape (n, C * (C - 1) / 2).
    `classes`: C, at least 2.
    Returns float64, shape (n, C).
    """
    out = np.full((len(pairs), classes), 1.0 / classes)
    quadratic = _quadratic(pairs, classes)
    active = np.arange(len(out))
    for _ in range(most_rounds(classes)):
        p, q = out[active], quadratic[active]
        product = np.einsum("rij,rj->ri", q, p)
        total = (p * product).sum(axis=1)
        error = np.abs(product - total[:, None]).max(axis=1, initial=0.0)
        # Written so that rows of NaN end as well.
        going = error >= TOLERANCE / classes
        if not going.all():
            active, p, q, product, total = (values[going] for values in (active, p, q, product, total))
        if not len(active):
            break
        for t in range(classes):
            step = (total - product[:, t]) / q[:, t, t]
            p[:, t] += step
            total = (total + step * (step * q[:, t, t] + 2 * product[:, t])) / (1 + step) / (1 + step)
            product = (product + step[:, None] * q[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        out[active] = p
    return out


def _quadratic(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Return each row's Q, float64, shape (n, C, C)."""
    first, second = np.triu_indices(classes, 1)
    r = np.zeros((len(pairs), classes, classes))
    r[:, first, second] = pairs
    r[:, second, first] = 1 - pairs
    q: np.ndarray = -r * r.transpose(0, 2, 1)
    at = np.arange(classes)
    q[:, at, at] = (r * r).sum(axis=1)
    return q
