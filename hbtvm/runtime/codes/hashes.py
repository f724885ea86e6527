"""Hashes of a column's categories: each distinct value is hashed once."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.hashes import HashText

_MOST = 1 << 17  # values whose hashes are kept
_KEPT = frozenset((str, int, bool))  # their types


class HashCoder:
    """Hashes of a column's values, with the methods of `hbtvm.runtime.codes.coder.Coder`.

    `step`: the hash.
    `hash_texts`: the executor's ``hbtvm_hash_texts``, once it is loaded.
    """

    def __init__(self, step: HashText) -> None:
        self._step = step
        self.hash_texts: Callable[..., int] | None = None
        self._known: dict[Any, int] = {}
        self._levels: tuple[Any, np.ndarray] | None = None

    @property
    def where(self) -> str:
        """The column's name in errors."""
        return self._step.where

    def of_value(self, value: Any) -> int:
        """Return the hash of a value. Raises `InputError` if it is neither a text nor an integer."""
        known = self._known.get(value) if type(value) in _KEPT else None
        return int(self.of_values([value])[0]) if known is None else known

    def of_values(self, values: list[Any]) -> np.ndarray:
        """Return the hashes of Python values, shape (n,).

        Raises `InputError` if a value is neither a text nor an integer; it names the row.
        """
        # Others are not looked up: 1.0, which is refused, equals 1.
        if not _KEPT.issuperset(map(type, values)):
            return self._step.hashes(values)
        known = self._known
        try:
            return np.fromiter(map(known.__getitem__, values), np.int64, len(values))
        except KeyError:
            new = list({*values} - known.keys())
        if len(new) + len(known) > _MOST:
            self._known = {}
            return self._step.hashes(values)
        try:
            hashes = self._step.hashes(new)
        except InputError:
            return self._step.hashes(values)  # its error names the row
        known.update(zip(new, hashes.tolist(), strict=True))
        return np.fromiter(map(known.__getitem__, values), np.int64, len(values))

    def of_numbers(self, x: np.ndarray) -> np.ndarray:
        """Return the hashes of an array of integers or bools, shape (n,).

        Raises `InputError` for other numbers.
        """
        if x.dtype.kind not in "iub":
            return self._step.hashes(x[:1].tolist())
        distinct, at = np.unique(x, return_inverse=True)
        try:
            result: np.ndarray = self.of_values(distinct.tolist())[at.reshape(-1)]
        except InputError:  # an integer beyond 64 bits with a sign
            return self._step.hashes(x.tolist())
        return result

    def of_levels(
        self, at: np.ndarray, levels: Any, values: Callable[[], list[Any]], null: Any
    ) -> np.ndarray:
        """Return the hashes of values that are positions in a list, shape (n,); see `Coder.of_levels`."""
        missing = at < 0
        if missing.any():
            self._step.text(null, int(missing.argmax()))
        known = self._levels
        if known is None or known[0] is not levels:
            known = self._levels = levels, self.of_values(values())
        result: np.ndarray = known[1][at]
        return result

    def of_text(self, array: Any, null: Any) -> np.ndarray:
        """Return the hashes of Arrow's texts, shape (n,)."""
        if array.null_count:
            self._step.text(null, array.is_null().index(True).as_py())
        if str(array.type) == "string_view":
            array = array.cast("large_string")
        if self.hash_texts is not None:
            return self._of_arrow(self.hash_texts, array)
        encoded = importlib.import_module("pyarrow.compute").dictionary_encode(array)
        hashes = self.of_values(encoded.dictionary.to_pylist())
        result: np.ndarray = hashes[encoded.indices.to_numpy(zero_copy_only=False)]
        return result

    def _of_arrow(self, hash_texts: Callable[..., int], array: Any) -> np.ndarray:
        n, wide = len(array), str(array.type) != "string"
        result = np.empty(n, np.int32)
        _, offsets, texts = array.buffers()
        if n and offsets is not None:
            start = offsets.address + array.offset * (8 if wide else 4)
            size = 0 if texts is None else texts.size
            place = 0 if texts is None else texts.address
            row = hash_texts(place, size, start, wide, n, result.ctypes.data)
            if row >= 0:
                raise InputError(f"{self.where}, row {ROW}: a text lies outside of its column.", row)
        return result
