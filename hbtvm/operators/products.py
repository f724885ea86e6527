"""Sums of products: `Contract` (matrix products), `LinearSum` (of numbers and codes), `Monomials`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.operators.base import Unary


@dataclass(frozen=True, eq=False)
class Contract(Unary):
    """``x @ weight``.

    `x`: width F.
    """

    weight: np.ndarray  # float64, shape (F, O)
    kind = "contract"

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])

    def tables(self) -> dict[str, np.ndarray]:
        return {"weight": self.weight}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        result: np.ndarray = inputs[0] @ self.weight
        return result

    def checked(self) -> Contract:
        if self.weight.ndim != 2 or self.weight.shape[0] != self.x.width or not self.weight.size:
            raise ValueError(
                f"a product of {self.x.width} columns with weights of the shape {self.weight.shape}"
            )
        return self


@dataclass(frozen=True, eq=False)
class LinearSum(Unary):
    """Weighted numbers plus table entries for codes, from the kernel's rows.

    Column o is ``sum over k of (missing[k, o] if isnan(x[feature[k]]) else (x[feature[k]] - shift[k]) *
    weight[k, o]) + sum over c of entries[first[c] + x[code_feature[c]], o]``. Scalers, imputers and one-hot
    encoders in front of a linear model become shift, missing and entries.

    `x`: numbers and codes, width F.
    """

    # `feature`, `shift`, `weight`, `missing`: int32 (K,), float64 (K,), (K, O), (K, O). Shifts are subtracted
    # first, so that a large mean cancels before weights round.
    feature: np.ndarray
    shift: np.ndarray
    weight: np.ndarray
    missing: np.ndarray
    # `code_feature`, `sizes`, `entries`: int32 (C,): the columns of codes; the number of codes of each; their
    # tables, concatenated, float64 (sum of sizes, O)
    code_feature: np.ndarray
    sizes: tuple[int, ...]
    entries: np.ndarray
    fills_missing: bool = True  # whether a number may be missing
    kind = "linear_sum"

    @property
    def width(self) -> int:
        return int(self.entries.shape[1])

    def attributes(self) -> dict[str, Any]:
        in_order = bool(np.array_equal(self.feature, np.arange(len(self.feature))))
        return {"in_order": in_order, "shifts": bool(self.shift.any()), "fills_missing": self.fills_missing}

    def tables(self) -> dict[str, np.ndarray]:
        first = np.cumsum([0, *self.sizes])[:-1].astype(np.int32)
        last = np.array(self.sizes, np.float64) - 1
        numbers = {
            "feature": self.feature,
            "shift": self.shift,
            "weight": self.weight,
            "missing": self.missing,
        }
        codes = {
            "code_feature": self.code_feature,
            "code_first": first,
            "code_last": last,
            "entries": self.entries,
        }
        return {**(numbers if len(self.feature) else {}), **(codes if self.sizes else {})}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        total = np.zeros((len(x), self.width))
        for k, feature in enumerate(self.feature.tolist()):
            value = x[:, feature, None]
            total += np.where(np.isnan(value), self.missing[k], (value - self.shift[k]) * self.weight[k])
        first = 0
        for feature, size in zip(self.code_feature.tolist(), self.sizes, strict=True):
            total += self.entries[first + np.clip(x[:, feature], 0, size - 1).astype(np.int64)]
            first += size
        return total


@dataclass(frozen=True, eq=False)
class Monomials(Unary):
    """Products of columns (`PolynomialFeatures`).

    `x`: width F.
    """

    # Int32, shape (O, D): the columns that each output multiplies; F stands for the factor 1
    factors: np.ndarray
    kind = "monomials"

    @property
    def width(self) -> int:
        return len(self.factors)

    def tables(self) -> dict[str, np.ndarray]:
        return {"factors": self.factors}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        result: np.ndarray = wide[:, self.factors].prod(axis=2)
        return result

    def checked(self) -> Monomials:
        if (
            self.factors.ndim != 2
            or not self.factors.size
            or not 0 <= self.factors.min() <= self.factors.max() <= self.x.width
        ):
            raise ValueError(f"products of columns beyond {self.x.width}")
        return self
