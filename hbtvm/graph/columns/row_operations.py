"""Operations on whole rows that the host computes, as no kernel does yet."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from hbtvm import codec
from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.steps import is_nan
from hbtvm.graph.columns.table import RowOperation, Table

Method = Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s"]

_MOST = 1 << 16  # values whose buckets are kept


@dataclass(frozen=True, eq=False)
class Normalize(RowOperation):
    """Each row divided by its norm; rows of norm 0 stay as they are."""

    inputs: Table
    norm: Literal["l1", "l2", "max"]
    sparse: bool = False  # whether the library's rows are sparse: it adds up their norms in another order

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns."""
        return len(self.inputs)

    def reference(self, x: np.ndarray) -> np.ndarray:
        norms = self._sparse_norms(x) if self.sparse else self._norms(x)
        # scikit-learn takes norms of dense rows below this for zero.
        small = norms == 0 if self.sparse else norms < 10 * np.finfo(norms.dtype).eps
        norms = np.where(small, norms.dtype.type(1), norms)
        result: np.ndarray = (x / norms[:, None]).astype(x.dtype)
        return result

    def _norms(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray
        if self.norm == "l1":
            result = np.abs(x).sum(axis=1)
        elif self.norm == "l2":
            result = np.sqrt(np.einsum("ij,ij->i", x, x))
        else:
            result = np.abs(x).max(axis=1)
        return result

    def _sparse_norms(self, x: np.ndarray) -> np.ndarray:
        """Return norms, added up value by value in float64."""
        if self.norm == "max":
            return self._norms(x)
        parts = np.abs(x) if self.norm == "l1" else x * x
        total: np.ndarray = np.cumsum(parts, axis=1, dtype=np.float64)[:, -1]
        return total if self.norm == "l1" else np.sqrt(total)


@dataclass(frozen=True, eq=False)
class Buckets(RowOperation):
    """Counts of a row's values by bucket, as category_encoders' ``HashingEncoder`` has them.

    A value's bucket is the digest of its text (:mod:`hashlib`) modulo the buckets; None has none.
    """

    inputs: Table  # columns of texts and integers
    width: codec.Count  # the number of buckets
    method: Annotated[str, codec.Via(Method)]
    missing: tuple[str, ...]  # by column: the text of NaN; empty for columns of integers
    where: str = ""  # the step, for errors
    _known: Annotated[dict[str, int], codec.SKIP] = field(default_factory=dict, init=False, repr=False)

    takes_values = True

    def validate(self) -> None:
        """Raise `ValueError` if the texts of missing values are not those of its columns."""
        if len(self.missing) != len(self.inputs) or self.width < 1:
            raise ValueError(f"{len(self.missing)} texts of missing values for {len(self.inputs)} columns")

    def reference(self, x: np.ndarray) -> np.ndarray:
        """Return the counts, float64, shape (n, `width`).

        `x`: values or numbers, shape (n, columns); in columns of integers, whole floats stand for integers.
        Raises `InputError` for values that are neither texts nor integers.
        """
        counts = np.zeros((len(x), self.width))
        for column, missing in zip(x.T, self.missing, strict=True):
            values = column.tolist()
            at = [-1 if value is None else self._bucket(self._text(value, missing, row)) for row, value in
                  enumerate(values)]  # fmt: skip
            buckets = np.array(at, np.int64)
            rows = np.flatnonzero(buckets >= 0)
            counts[rows, buckets[rows]] += 1
        return counts

    def _text(self, value: Any, missing: str, row: int) -> str:
        if isinstance(value, str):
            return value
        if missing and is_nan(value):
            return missing
        if isinstance(value, int):
            return str(value)
        if not missing and isinstance(value, float) and value.is_integer():
            return str(int(value))
        raise InputError(
            f"{self.where}, row {ROW}: expected texts or integers as in training, got {value!r:.60}.", row
        )

    def _bucket(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            digest = hashlib.new(self.method, text.encode("utf-8"), usedforsecurity=False).digest()
            known = int.from_bytes(digest, "big") % self.width
            if len(self._known) < _MOST:
                self._known[text] = known
        return known
