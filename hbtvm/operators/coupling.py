"""`Coupling`: probabilities of several classes from those of pairs, as libsvm couples them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.operators.base import Unary

_LEAST_ROUNDS = 100

TOLERANCE = 0.005  # what errors of all classes together may be; see `coupled`


@dataclass(frozen=True, eq=False)
class Coupling(Unary):
    """Class probabilities that fit best those of pairs of classes; see `coupled`.

    How many rounds it takes depends on the row. Of a predictor's own probabilities that are such a node, the
    host computes it; kernels do where something else reads it.

    `x`: probabilities of the first of the pairs (0, 1), (0, 2), ..., (1, 2), ...; width C * (C - 1) / 2.
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
    """Rounds after which libsvm gives up."""
    return max(_LEAST_ROUNDS, classes)


def coupled(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Return the class probabilities p of C classes that fit best what is known of pairs of classes.

    With r[i, j] the probability of i where it is i or j, p minimises the sum over pairs of
    ``(r[j, i] * p[i] - r[i, j] * p[j]) ** 2`` (Wu, Lin and Weng 2004, their second method). As libsvm stops
    early, its rounds are part of the definition: from p = 1 / C on, each round begins with a look at whether
    every ``abs((Q @ p)[i] - p @ Q @ p)`` is below 0.005 / C, where ``Q[i, i]`` is the sum of ``r[j, i] ** 2``
    and ``Q[i, j] = -r[j, i] * r[i, j]``; if not, it takes a Newton step for one class after another, each
    followed by a division by the sum. There are at most max(100, C) rounds.

    `pairs`: r[i, j] of the pairs (0, 1), (0, 2), ..., (1, 2), ...; float64, shape (n, C * (C - 1) / 2).
    `classes`: C, at least 2.
    Returns float64, shape (n, C).
    """
    out = np.full((len(pairs), classes), 1.0 / classes)
    quadratic = _quadratic(pairs, classes)
    active = np.arange(len(out))
    for _ in range(most_rounds(classes)):
        p, own = out[active], quadratic[active]
        product = np.einsum("rij,rj->ri", own, p)
        total = (p * product).sum(axis=1)
        error = np.abs(product - total[:, None]).max(axis=1, initial=0.0)
        # Written so that rows of NaN end as well.
        going = error >= TOLERANCE / classes
        if not going.all():
            active, p, own, product, total = (one[going] for one in (active, p, own, product, total))
        if not len(active):
            break
        for t in range(classes):
            step = (total - product[:, t]) / own[:, t, t]
            p[:, t] += step
            total = (total + step * (step * own[:, t, t] + 2 * product[:, t])) / (1 + step) / (1 + step)
            product = (product + step[:, None] * own[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        out[active] = p
    return out


def _quadratic(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Q of each row, float64, shape (n, C, C)."""
    first, second = np.triu_indices(classes, 1)
    r = np.zeros((len(pairs), classes, classes))
    r[:, first, second] = pairs
    r[:, second, first] = 1 - pairs
    q: np.ndarray = -r * r.transpose(0, 2, 1)
    at = np.arange(classes)
    q[:, at, at] = (r * r).sum(axis=1)
    return q
