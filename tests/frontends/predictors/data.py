"""Rows and targets that estimators are fitted on."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(7)
X = RNG.normal(size=(150, 6)) @ RNG.normal(size=(6, 6)) + np.arange(6.0)
ROWS = np.concatenate([2 * RNG.normal(size=(60, 6)) + np.arange(6.0), X[:15]])
_CODES = (X[:, 0] > np.median(X[:, 0])).astype(int) + (X[:, 1] > np.quantile(X[:, 1], 0.7))

TARGETS = {
    "binary": X[:, 0] + X[:, 2] > 2.0,
    "several": _CODES * 3 - 2,
    "strings": np.array(["a red one", "blue", "green"])[_CODES],
    "two strings": np.array(["no", "yes"])[(X[:, 3] > 3).astype(int)],
}
"""By name; labels of several types."""

NUMBERS = X @ np.arange(6.0) + X[:, 0] ** 2
COUNTS = RNG.poisson(3.0, size=(150, 6)).astype(np.float64)
NEW_COUNTS = np.minimum(RNG.poisson(4.0, size=(60, 6)), COUNTS.max(axis=0))
