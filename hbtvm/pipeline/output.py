"""What raw scores become: each library's own labels, probabilities and scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["classifier", "regressor", "ranker", "booster", "anomaly"]
Transform = Literal["identity", "sigmoid", "softmax", "exp", "softplus", "signed_square", "hinge", "isolation"]


@dataclass(frozen=True)
class OutputSpec:
    """From raw scores, float64 (n, O), to what the library's methods return."""

    kind: Kind
    n_outputs: int
    transform: Transform = "identity"
    scale: float = 1.0
    dtype: Literal["float32", "float64"] = "float64"
    classes: tuple[np.ndarray, ...] = ()

    def response(self, raw: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError
