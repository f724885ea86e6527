"""Convert users' rows into the contiguous arrays that kernels read."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np

from hbtvm.errors import InputError
from hbtvm.pipeline.categories import named as named_columns
from hbtvm.pipeline.pipeline import InputSpec
from hbtvm.runtime.frames import NUMBERS, Column, Frame, object_columns, read_frame

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_EXACT_INTEGER = 1 << 24
"""float32 holds every integer up to this magnitude."""
_SMALL = 8192


class Inputs:
    """Checks rows and converts them, as the model's library would.

    Values are checked apart from that (`all_finite`, `check`), by the executor, which reads
    the rows anyway.

    Parameters
    ----------
    spec
        What the model accepts.
    compare_dtype
        The type that the library compares in. With ``"float32"`` every input is cast to it; with
        ``"float64"`` input that float32 does not hold exactly needs a float64 kernel.
    dtypes
        The types for which there are kernels.

    Attributes
    ----------
    checks
        Whether the library refuses missing or infinite values.
    """

    def __init__(self, spec: InputSpec, compare_dtype: str, dtypes: Collection[str]) -> None:
        self.spec = spec
        self._single = compare_dtype == "float32" or "float64" not in dtypes
        self._exact = compare_dtype == "float64"
        self._dtypes = frozenset(np.dtype(dtype) for dtype in dtypes)
        self._maps = _maps_of(spec)
        self._order = spec.category_order
        self._maps_arrays = bool(self._maps) and spec.numbers_are_categories
        self.checks = not (spec.allow_nan and spec.allow_inf)
        self._plain = not self._maps_arrays and spec.missing_value is None
        # Types that a kernel takes without a cast; not float64 where the library compares in float32.
        self._ready = frozenset(d for d in self._dtypes if self._exact or d == _F32)
        names = spec.feature_names
        # LightGBM names columns so where it was given no names.
        automatic = names is not None and all(name == f"Column_{i}" for i, name in enumerate(names))
        self._names = None if automatic else names

    def prepare(self, X: Any) -> np.ndarray:
        """Return rows in a kernel's type.

        Parameters
        ----------
        X
            Shape (n, n_features): a numpy array, a pandas, polars or pyarrow table, or lists.

        Returns
        -------
        float32 or float64, shape (n, n_features), C-contiguous, aligned to its elements. It is
        `X` itself where nothing has to be done.

        Raises
        ------
        InputError
            If the rows don't fit the model.
        """
        if (
            self._plain
            and type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in self._ready
            and X.shape[1] == self.spec.n_features
            and X.flags.c_contiguous
            and X.flags.aligned
        ):
            return X
        return self._convert(X)

    def all_finite(self, X: np.ndarray) -> bool:
        """Return whether all values are finite; False also where their squares add up to infinity."""
        # Neither branch warns of such values, or starts threads, as the dot product of a large array would.
        if X.size <= _SMALL:
            return math.isfinite(np.vdot(X, X))
        flat = X.reshape(-1)
        return math.isfinite(np.maximum.reduce(flat)) and math.isfinite(np.minimum.reduce(flat))

    def check(self, X: np.ndarray) -> None:
        """Raise an error if there are values that the library refuses.

        Parameters
        ----------
        X
            What `prepare` returned.

        Raises
        ------
        InputError
            Names the first of them.
        """
        if not self.spec.allow_nan:
            self._refuse_values(np.isnan(X), "NaN, but the model was trained without missing values")
        if not self.spec.allow_inf:
            self._refuse_values(np.isinf(X), f"infinity or a value too large for {X.dtype}")

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise an error for rows of another shape than (n, n_features)."""
        expected = f"expected rows of {self.spec.n_features} columns"
        if len(shape) != 2:
            hint = "; for a single row use X.reshape(1, -1)" if len(shape) == 1 else ""
            raise InputError(f"{expected}, shape (n, {self.spec.n_features}), got shape {shape}{hint}.")
        if shape[1] != self.spec.n_features:
            raise InputError(f"{expected}, got {shape[1]}.")

    def cast(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of any shape in a kernel's type, with NaN for the spec's missing value."""
        return self._numbers(values)

    def column_name(self, index: int) -> str:
        """Return a column's number and name, for errors."""
        return self._name(index)

    def kernel_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the type of the kernel for rows of a type, independent of their values.

        Raises
        ------
        InputError
            If there is none, or arrays of numbers are no input of this model.
        """
        if self._maps_arrays:
            raise InputError(
                "the model knows categories by their values; expected rows in host memory, where they are "
                "looked up, got rows on a GPU."
            )
        if dtype.kind not in NUMBERS:
            raise InputError(f"expected numbers, got an array of {dtype}.")
        if self._single or np.can_cast(dtype, _F32):
            return _F32 if _F32 in self._dtypes else _F64
        if _F64 not in self._dtypes:
            raise InputError(
                f"the model was compiled for float32 rows only, got {dtype}; cast them if that is right."
            )
        return _F64

    def _convert(self, X: Any) -> np.ndarray:
        if type(X) is np.ndarray and X.dtype.kind in NUMBERS and not self._maps_arrays:
            return self._numbers(self._shaped(X))
        try:
            frame = read_frame(X)
        except TypeError as error:
            raise InputError(f"expected rows of {self.spec.n_features} numbers, got {error}.") from None
        if frame is not None:
            self._check_names(frame)
            return (
                self._of_columns(frame.columns, len(X), True) if frame.matrix is None else self._matrix(frame)
            )
        array = self._array(X)
        if array.dtype.kind in "OUST":
            return self._of_columns(object_columns(array), len(array), False)
        if array.dtype.kind not in NUMBERS:
            raise InputError(f"expected numbers, got an array of {array.dtype}.")
        if self._maps_arrays:
            columns = tuple(Column(str(array.dtype), array[:, i]) for i in range(array.shape[1]))
            return self._of_columns(columns, len(array), False)
        return self._numbers(array)

    def _array(self, X: Any) -> np.ndarray:
        expected = f"expected rows of {self.spec.n_features} columns"
        if hasattr(X, "nnz"):
            raise InputError(f"{expected}, dense or sparse as scipy has them, got a {type(X).__name__}.")
        if hasattr(X, "filled") and hasattr(X, "mask"):
            X = X.astype(np.float64).filled(np.nan)
        try:
            array = np.asarray(X)
            if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
                # Numpy converts numbers beside strings to strings.
                array = np.asarray(X, dtype=object)
        except (TypeError, ValueError):
            raise InputError(f"{expected}, got a {type(X).__name__} that is no table of numbers.") from None
        if array.ndim == 0:
            raise InputError(f"{expected}, got a {type(X).__name__}.")
        return self._shaped(array)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        self.check_shape(array.shape)
        return array

    def _check_names(self, frame: Frame) -> None:
        names, expected = frame.names, self._names
        if names is not None and expected is not None and names != expected:
            self._compare_names(names, expected)
        count = len(frame.columns) if frame.matrix is None else frame.matrix.shape[1]
        if count != self.spec.n_features:
            raise InputError(f"expected {self.spec.n_features} columns, got {count}.")

    def _compare_names(self, names: tuple[str, ...], expected: tuple[str, ...]) -> None:
        # LightGBM replaces spaces in names by underscores.
        plain = tuple(name.replace(" ", "_") for name in names)
        wanted = tuple(name.replace(" ", "_") for name in expected)
        if plain == wanted:
            return
        lacking = [name for name, key in zip(expected, wanted, strict=True) if key not in plain]
        if lacking:
            raise InputError(f"column {lacking[0]!r} is missing{_and_more(lacking)}.")
        extra = [name for name, key in zip(names, plain, strict=True) if key not in wanted]
        if extra:
            raise InputError(f"column {extra[0]!r} was not there in training{_and_more(extra)}.")
        pairs = enumerate(zip(plain, wanted, strict=False))
        at = next((i for i, (found, want) in pairs if found != want), len(wanted))
        if at == len(wanted):
            raise InputError(f"column {names[at]!r} is there twice.")
        raise InputError(
            f"columns are in another order than in training: column {at} is {names[at]!r}, "
            f"expected {expected[at]!r}."
        )

    def _matrix(self, frame: Frame) -> np.ndarray:
        matrix = frame.matrix
        assert matrix is not None
        if not self._maps and not self._order:
            return self._numbers(matrix)
        columns = tuple(Column(str(matrix.dtype), matrix[:, i]) for i in range(matrix.shape[1]))
        return self._of_columns(columns, len(matrix), True)

    def _of_columns(self, columns: tuple[Column, ...], n: int, named: bool) -> np.ndarray:
        maps = self._placed(columns, named) if self._order else self._maps
        values = [self._column(i, column, named, maps.get(i)) for i, column in enumerate(columns)]
        out = np.empty((n, len(values)), np.result_type(*values))
        for i, column_values in enumerate(values):
            out[:, i] = column_values
        return self._numbers(out)

    def _placed(self, columns: tuple[Column, ...], named: bool) -> dict[int, dict[Any, int]]:
        """Return the codes of the columns that hold categories, where only the rows show which these are."""
        typed = [i for i, column in enumerate(columns) if column.categorical]
        words = [
            i for i, column in enumerate(columns) if column.levels is not None and not column.categorical
        ]
        if words:
            return _maps_of(self.spec.placed(typed + words, words))
        if not named:
            return {}  # numbers in a plain array: codes
        # As LightGBM pairs a frame's category columns with those of the training frame: by their order.
        if len(typed) != len(self._order):
            found = f" ({self._listed(typed)})" if typed else ""
            raise InputError(
                f"the model was trained with {len(self._order)} columns of categories, but the data frame "
                f"has {len(typed)}{found}; expected category columns as in training."
            )
        for i, one in zip(typed, self._order, strict=True):
            if i not in one.columns:
                raise InputError(
                    f"{self._name(i)} was no column of categories in training, but is one in the data frame; "
                    "expected category columns as in training."
                )
        return {i: _code_of(one.values) for i, one in zip(typed, self._order, strict=True)}

    def _listed(self, columns: list[int]) -> str:
        return named_columns(columns, self._names)

    def _column(self, index: int, column: Column, named: bool, known: dict[Any, int] | None) -> np.ndarray:
        """Return a column's numbers, or its categories' codes (NaN: missing)."""
        values, levels = column.values, column.levels
        if known is not None and not known and values is not None:
            # Nothing reads this column.
            return values if levels is None else np.full(len(values), np.nan, np.float32)
        if values is None or (values.dtype.kind not in NUMBERS):
            self._refuse(index, column.type_name)
        if levels is not None:
            if known is None:
                plain = None if column.type_name.startswith("category") else column.numbers()
                if plain is not None:
                    return plain
                if column.categorical:
                    self._refuse(index, "categories")
                self._refuse(index, f"{levels[0]!r} ({type(levels[0]).__name__})")
            return self._codes(index, values, levels, known)
        if known is None:
            return values
        if self.spec.numbers_are_categories:
            if np.isinf(values).any():
                raise InputError(
                    f"{self._name(index)}: got infinity; expected categories, or finite numbers."
                )
            distinct, at = np.unique(values, return_inverse=True)
            return self._codes(index, at.reshape(-1), tuple(distinct.tolist()), known)
        if named:
            # The numbers may be codes or values; the library refuses the column, too.
            raise InputError(
                f"{self._name(index)} was a column of categories in training; expected categories or "
                f"strings, got {column.type_name}."
            )
        return values

    def _codes(
        self, index: int, at: np.ndarray, levels: tuple[Any, ...], known: dict[Any, int]
    ) -> np.ndarray:
        """Return the codes of values that are given as positions in `levels`."""
        # The last entry is the code at position -1: missing.
        codes = np.full(len(levels) + 1, np.nan, np.float32)
        used = np.unique(at)
        for i in used[used >= 0].tolist():
            level = levels[i]
            code = known.get(level)
            if code is not None:
                codes[i] = code
            elif level == level and self.spec.unknown_category == "error":
                some = ", ".join(map(repr, list(known)[:5]))
                raise InputError(
                    f"{self._name(index)}: the category {level!r} was not there in training; "
                    f"known are {some}{', ...' if len(known) > 5 else ''}."
                )
        result: np.ndarray = codes[at]
        return result

    def _numbers(self, array: np.ndarray) -> np.ndarray:
        """Return numbers of any type and layout in a kernel's type, with NaN for the spec's missing value."""
        dtype = self._target(array)
        # Values too large for float32 become infinite, as in the library.
        with np.errstate(over="ignore"):
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
        # A model that compares in float32 may still have float64 kernels alone.
        return out if dtype in self._dtypes else out.astype(_F64)

    def _target(self, array: np.ndarray) -> np.dtype:
        dtype = array.dtype
        if self._single:
            return _F32
        if np.can_cast(dtype, _F32):
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
            raise InputError(f"{self._name(int(column))}, row {row}: got {what}; expected finite numbers.")

    def _refuse(self, index: int, got: str) -> NoReturn:
        what = "numbers or categories" if index in self._maps or self._order else "numbers"
        raise InputError(f"{self._name(index)}: expected {what}, got {got}.")

    def _name(self, index: int) -> str:
        return f"column {index}" if self._names is None else f"column {index} ({self._names[index]!r})"


def _maps_of(spec: InputSpec) -> dict[int, dict[Any, int]]:
    return {column: _code_of(values) for column, values in spec.categories.items()}


def _code_of(values: tuple[Any, ...]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _and_more(names: list[str]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""
