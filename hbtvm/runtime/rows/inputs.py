"""Convert users' rows to the contiguous arrays that kernels read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.rows.columns import ColumnReader
from hbtvm.runtime.rows.frames import NUMBERS, Column, Frame, object_column, object_columns, read_frame
from hbtvm.runtime.rows.matrix import Interleave, matrix_of
from hbtvm.runtime.rows.row_types import RowTypes
from hbtvm.runtime.unreadable import reason
from hbtvm.words.similar import misspelt

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_EXACT_INTEGER = 1 << 24  # float32 holds every integer up to this magnitude
_SMALL = 8192


def all_finite(X: np.ndarray) -> bool:
    """Return whether all values are finite; False also if their squares add up to infinity."""
    # Neither branch warns or starts threads, as the dot product of a large array would.
    if X.size <= _SMALL:
        return math.isfinite(np.vdot(X, X))
    flat = X.reshape(-1)
    return math.isfinite(np.maximum.reduce(flat)) and math.isfinite(np.minimum.reduce(flat))


class Inputs:
    """Checks rows and converts them as the model's library does.

    The executor, which reads the rows anyway, checks values (`all_finite`, `check`).

    `spec`: what the model accepts.
    `compare_dtype`: the type that the library compares in. With ``"float32"`` every input is cast to it; with
        ``"float64"`` input that float32 does not hold exactly needs a float64 kernel.
    `dtypes`: the types of rows that kernels take.
    `float32_apart`: whether the kernels for float32 rows match the library for float32 numbers only:
        integers, which the library converts to float64, then need a float64 kernel.
    `checks`: whether the library refuses missing or infinite values.
    `refuses`: by column, refused values: 1 NaN, 2 infinities, 3 both; uint8, shape (n_features,).
    `ready`: dtypes of arrays that are a kernel's rows without conversion.
    `columns`: the reader of tables' columns.
    `interleave`: the executor's function that copies columns, once it is loaded.
    """

    def __init__(
        self, spec: InputSpec, compare_dtype: str, dtypes: Collection[str], float32_apart: bool = False
    ) -> None:
        self.spec = spec
        self._apart = float32_apart
        self._single = compare_dtype == "float32" or "float64" not in dtypes
        self._exact = compare_dtype == "float64"
        self._dtypes = frozenset(np.dtype(dtype) for dtype in dtypes)
        self.columns = ColumnReader(spec)
        self._row_types = RowTypes(spec) if spec.types_refused else None
        self._maps_arrays = bool(spec.categories) and spec.numbers_are_categories
        self.checks = not (spec.allow_nan and spec.allow_inf)
        refused = (not spec.allow_nan) + 2 * (not spec.allow_inf)
        self.refuses = np.full(spec.n_features, refused, np.uint8)
        self.interleave: Interleave | None = None
        self._plain = not self._maps_arrays and spec.missing_value is None
        # Types that a kernel takes without a cast; not float64 if the library compares in float32.
        taken = frozenset(d for d in self._dtypes if self._exact or d == _F32)
        self.ready = taken if self._plain else frozenset()

    def prepare(self, X: Any) -> np.ndarray:
        """Return rows in a kernel's type.

        Raises `InputError` if the rows don't fit the model.

        `X`: shape (n, n_features): a numpy array, a pandas, polars or pyarrow table, or lists.
        Returns float32 or float64, shape (n, n_features), C-contiguous, aligned to its elements; `X` itself
        if it needs no conversion.
        """
        if (
            type(X) is np.ndarray
            and X.dtype in self.ready
            and X.ndim == 2
            and X.shape[1] == self.spec.n_features
            and X.flags.c_contiguous
            and X.flags.aligned
        ):
            return X
        return self._convert(X)

    def look(self, X: np.ndarray) -> None:
        """Run `check`, which is slower, only if a value is missing or infinite."""
        if not all_finite(X):
            self.check(X)

    def check(self, X: np.ndarray) -> None:
        """Refuse values that the library refuses.

        `X`: a result of `prepare`.
        Raises `InputError`, which names the first of them.
        """
        if not self.spec.allow_nan:
            self._refuse_values(np.isnan(X), "NaN, but the model was trained without missing values")
        if not self.spec.allow_inf:
            self._refuse_values(np.isinf(X), f"infinity or a value too large for {X.dtype}")

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse rows whose shape is not (n, n_features)."""
        expected = f"expected rows of {self.spec.n_features} columns"
        if len(shape) != 2:
            hint = "; for a single row use X.reshape(1, -1)" if len(shape) == 1 else ""
            raise InputError(f"{expected}, shape (n, {self.spec.n_features}), got shape {shape}{hint}.")
        if shape[1] != self.spec.n_features:
            raise InputError(f"{expected}, got {shape[1]}.")

    def cast(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of any shape in a kernel's dtype, with NaN for the spec's missing value."""
        return self._numbers(values)

    def kernel_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the dtype of the kernel for rows of a dtype, independent of values.

        Raises `InputError` if there is none, or the model does not take arrays of numbers.
        """
        if self._maps_arrays:
            raise InputError(
                "the model knows categories by their values; expected rows in host memory, where they are "
                "looked up, got rows on a GPU."
            )
        if dtype.kind not in NUMBERS:
            raise InputError(f"expected numbers, got an array of {dtype}.")
        if self._row_types is not None:
            self._row_types.check_dtype(dtype)
        if self._single or (dtype == _F32 if self._apart else np.can_cast(dtype, _F32)):
            return _F32 if _F32 in self._dtypes else _F64
        if _F64 not in self._dtypes:
            raise InputError(
                f"the model was compiled for float32 rows only, got {dtype}; cast them if that is right."
            )
        return _F64

    def _convert(self, X: Any) -> np.ndarray:
        self.check_types(X)
        return self._numbers(self.numbers(X))

    def check_types(self, X: Any) -> None:
        """Refuse rows of types that the model refuses; see `RowTypes.check`."""
        if self._row_types is not None:
            self._row_types.check(X)

    def check_sparse(self, X: Any) -> None:
        """Refuse sparse rows if the model refuses all of them."""
        if self.spec.sparse_refused:
            raise InputError(f"got sparse rows: {self.spec.sparse_refused}; expected dense rows.")
        self.check_types(X)

    def numbers(self, X: Any) -> np.ndarray:
        """Return rows as an array of numbers, in their common dtype.

        Raises `InputError` if the rows don't fit the model; values are not checked.
        """
        if type(X) is np.ndarray and X.dtype.kind in NUMBERS and not self._maps_arrays:
            return self._shaped(X)
        if isinstance(X, Mapping):
            return self._of_dicts([X])
        if isinstance(X, list | tuple) and X and isinstance(X[0], Mapping):
            return self._of_dicts(X)
        try:
            frame = read_frame(X)
        except TypeError as error:
            raise InputError(f"expected rows of {self.spec.n_features} numbers, got {error}.") from None
        if frame is not None:
            self.columns.check_names(frame)
            return (
                self._of_columns(frame.columns, len(X), True) if frame.matrix is None else self._matrix(frame)
            )
        array = self.array(X)
        if array.dtype.kind in "OUST":
            return self._of_columns(object_columns(array), len(array), False)
        if array.dtype.kind not in NUMBERS:
            raise InputError(f"expected numbers, got an array of {array.dtype}.")
        if self._maps_arrays:
            columns = tuple(Column(str(array.dtype), array[:, i]) for i in range(array.shape[1]))
            return self._of_columns(columns, len(array), False)
        return array

    def _of_dicts(self, rows: Sequence[Any]) -> np.ndarray:
        """Return rows that are dicts by column name, which may have further keys."""
        names, known = self.spec.feature_names, self.spec.categories
        if names is None:
            raise InputError(
                "the model was trained without column names; expected an array or lists, got a dict."
            )
        columns = []
        for i, name in enumerate(names):
            read = known.get(i) != ()
            for at, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise InputError(f"expected dicts, got a {type(row).__name__} in row {ROW}.", at)
                if read and name not in row:
                    place = f" in row {ROW}" if len(rows) > 1 else ""
                    hint = misspelt(name, [key for key in row if key not in names]) or "."
                    raise InputError(f"column {name!r} is missing{place}{hint}", at)
            columns.append(object_column([row.get(name) for row in rows], "object", i in known and read))
        return self._of_columns(tuple(columns), len(rows), True)

    def array(self, X: Any) -> np.ndarray:
        """Return rows that are not a table as an array of shape (n, n_features), of any dtype."""
        expected = f"expected rows of {self.spec.n_features} columns"
        if hasattr(X, "nnz"):
            raise InputError(f"{expected}, dense or sparse as scipy has them, got a {type(X).__name__}.")
        try:
            if hasattr(X, "filled") and hasattr(X, "mask"):
                X = X.astype(np.float64).filled(np.nan)
            array = np.asarray(X)
            if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
                # Numpy converts numbers beside strings to strings.
                array = np.asarray(X, dtype=object)
        except Exception as error:  # from the rows' class
            problem = f"got a {type(X).__name__} that is not a table of numbers"
            raise InputError(f"{expected}, {problem} ({reason(error)}).") from None
        if array.ndim == 0:
            raise InputError(f"{expected}, got a {type(X).__name__}.")
        return self._shaped(array)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        if array.ndim == 1 and self.spec.takes_vectors:
            array = array.reshape(-1, 1)
        self.check_shape(array.shape)
        return array

    def _matrix(self, frame: Frame) -> np.ndarray:
        matrix = frame.matrix
        assert matrix is not None
        if not self.columns.maps:
            return matrix
        columns = tuple(Column(str(matrix.dtype), matrix[:, i]) for i in range(matrix.shape[1]))
        return self._of_columns(columns, len(matrix), True)

    def _of_columns(self, columns: tuple[Column, ...], n: int, named: bool) -> np.ndarray:
        values = self.columns.read(columns, named)
        return matrix_of(values, n, np.result_type(*values), self.interleave)

    def _numbers(self, array: np.ndarray) -> np.ndarray:
        """Return numbers of any layout in a kernel's dtype, with NaN for the spec's missing value."""
        dtype = self._target(array)
        # Values too large for float32 become infinite, as in the library. (Signalling NaN is "invalid".)
        with np.errstate(over="ignore", invalid="ignore"):
            out = array.astype(dtype, order="C", copy=False)
        if not out.flags.aligned:
            out = out.copy()
        if self._exact and dtype == _F32 and not np.can_cast(array.dtype, _F32):
            self._check_exact(array, out)
        missing = self.spec.missing_value
        if missing is not None:
            with np.errstate(over="ignore"):
                is_missing = out.astype(_F32, copy=False) == np.float32(missing)
            if is_missing.any():
                out = np.where(is_missing, out.dtype.type(np.nan), out)
        # A model that compares in float32 may have float64 kernels only.
        return out if dtype in self._dtypes else out.astype(_F64)

    def _target(self, array: np.ndarray) -> np.dtype:
        dtype = array.dtype
        if self._single:
            return _F32
        if self._apart:
            exact = dtype == _F32
        elif np.can_cast(dtype, _F32):
            exact = True
        elif dtype.kind in "iu":
            exact = array.size == 0 or (
                int(array.min()) >= -_EXACT_INTEGER and int(array.max()) <= _EXACT_INTEGER
            )
        else:
            exact = False
        return _F32 if exact and _F32 in self._dtypes else _F64

    def _check_exact(self, array: np.ndarray, out: np.ndarray) -> None:
        if not np.array_equal(array.astype(_F64, copy=False), out, equal_nan=True):
            raise InputError(
                "the model was compiled for float32 rows only; expected values that float32 holds exactly, "
                f"got other {array.dtype} values; cast them (X.astype('float32')) if that is right."
            )

    def _refuse_values(self, bad: np.ndarray, what: str) -> None:
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                f"{self.columns.name(int(column))}, row {ROW}: got {what}; expected finite numbers.", int(row)
            )
