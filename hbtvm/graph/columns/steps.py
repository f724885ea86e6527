"""Steps: functions that transformers apply to each value of a column.

`Step.apply` computes a step for arrays of numbers as the library does, operation by operation, with the same
roundings in float32 and in float64, so that trees behind it decide the same. Only the first steps of a column
take values other than numbers (strings, None): `Fill`, `IsMissing` and `Encode`, which returns codes, whole
numbers from 0.

Steps are equal only if they are the same object: columns that share work share the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, Literal

import numpy as np

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.operators.pointwise import FUNCTIONS


class AnyMissing(Enum):
    """``pandas.NA`` as the missing value: it stands for NaN and None, too."""

    NA = "NA"


NA: Final = AnyMissing.NA

Missing = Annotated[
    float | str | int | AnyMissing | None,
    codec.Via(
        str | bool | int | float | None | tuple[Literal["NA"]],
        lambda value: ("NA",) if value is NA else value,
        lambda value: NA if isinstance(value, tuple) else value,
    ),
]
"""A transformer's missing value: any NaN, None, a value, or `NA` (NaN and None)."""


class Step:
    """A function of one value."""

    monotone: bool = False  # whether it never falls, or never rises, over the numbers that are not NaN
    error: float = 0.0  # bound of a result's error, beside some units in its last place

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return the function's values of numbers (float32 or float64, any shape), in the same type."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Arithmetic(Step):
    """``x - constant`` etc., rounded once; NaN stays."""

    operation: Literal["subtract", "divide", "multiply", "add"]
    constant: float  # the number, float64
    # Whether the constant is rounded to the values' type first. Otherwise the operation is in float64, and
    # its result is rounded, as numpy does in place.
    cast: bool = False
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        result = np.array(x)
        constant = np.asarray(self.constant, x.dtype) if self.cast else np.array([self.constant])
        with np.errstate(all="ignore"):
            ARITHMETIC[self.operation](result, constant, out=result, casting="same_kind")
        return result


ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    name: FUNCTIONS[name].reference for name in ("subtract", "divide", "multiply", "add")
}
"""numpy's functions of two numbers that scalers use, by name."""


@dataclass(frozen=True, eq=False)
class Clip(Step):
    """Values below `low` become `low`, those above `high` become `high`; NaN stays."""

    low: float
    high: float
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        kind = x.dtype.type
        result: np.ndarray = np.clip(x, kind(self.low), kind(self.high))
        return result


@dataclass(frozen=True, eq=False)
class Within(Step):
    """Values below `low` or above `high` become NaN: the domain of a function."""

    low: float
    high: float
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        return np.where((x >= self.low) & (x <= self.high), x, x.dtype.type(np.nan))


@dataclass(frozen=True, eq=False)
class Above(Step):
    """1 above a threshold, else 0 (`Binarizer`)."""

    threshold: float
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = (x > self.threshold).astype(x.dtype)
        return result


@dataclass(frozen=True, eq=False)
class Cast(Step):
    """Rounding to another type of numbers."""

    dtype: Literal["float32", "float64"]
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            result: np.ndarray = x.astype(self.dtype)
        return result


UFUNCS: Mapping[str, Any] = {
    **{
        name: row.reference
        for name, row in FUNCTIONS.items()
        if row.arity == 1 and isinstance(row.reference, np.ufunc)
    },
    **{name: getattr(np, name) for name in ("positive", "fabs", "deg2rad", "rad2deg", "degrees", "radians")},
}
"""numpy's unary functions that `FunctionTransformer` may hold, by name."""

_NOT_MONOTONE = ("square", "absolute", "fabs", "reciprocal", "sin", "cos", "tan", "cosh")


@dataclass(frozen=True, eq=False)
class Function(Step):
    """One of `UFUNCS`."""

    name: str

    def validate(self) -> None:
        """Raise `ValueError` for names of other functions."""
        if self.name not in UFUNCS:
            raise ValueError(f"{self.name!r:.100} is not a known function")

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the function is monotone, but for the last bits of numpy's results."""
        return self.name not in _NOT_MONOTONE

    def apply(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result: np.ndarray = UFUNCS[self.name](x)
        return result


@dataclass(frozen=True, eq=False)
class Fill(Step):
    """A value in place of missing ones."""

    value: codec.Scalar  # a number, or (in columns of values) a string
    missing: Missing = np.nan  # what is missing
    # Whether the library leaves integers in their type (for front ends; packages do not hold it)
    keeps_integers: Annotated[bool, codec.SKIP] = False
    numbers: bool = False  # whether the library refuses values other than numbers

    def apply(self, x: np.ndarray) -> np.ndarray:
        return np.where(missing_in(x, self.missing), x.dtype.type(self.value), x)


@dataclass(frozen=True, eq=False)
class IsMissing(Step):
    """1 where a value is missing, else 0."""

    missing: Missing = np.nan
    numbers: bool = False  # whether the library refuses values other than numbers

    def apply(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = missing_in(x, self.missing).astype(x.dtype)
        return result


@dataclass(frozen=True, eq=False)
class ZeroIsMissing(Step):
    """NaN in place of 0: XGBoost's reading of rows that an earlier transformer made sparse."""

    def apply(self, x: np.ndarray) -> np.ndarray:
        return np.where(x == 0, x.dtype.type(np.nan), x)


@dataclass(frozen=True, eq=False)
class Encode(Step):
    """The position of a value among categories: a code, 0 to n - 1, or n for an unknown value."""

    categories: tuple[codec.Scalar, ...]  # distinct values, maybe with NaN (any kind of it) and None
    # Which values are errors: unknown ones ("error"), none ("code"), or missing ones ("missing"), for which
    # the categories have a NaN. Unknown values have the code n unless they are errors.
    unknown: Literal["error", "code", "missing"] = "code"
    where: str = ""  # step, class and column, for errors
    code_of: dict[Any, int] = field(init=False, repr=False)
    nan_code: int = field(init=False, repr=False)
    none_code: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = {x: code for code, x in enumerate(self.categories) if x is not None and x == x}
        nans = [code for code, x in enumerate(self.categories) if x is not None and x != x]
        nones = [code for code, x in enumerate(self.categories) if x is None]
        object.__setattr__(self, "code_of", known)
        object.__setattr__(self, "nan_code", nans[0] if nans else -1)
        if self.unknown == "missing":
            nones = nans
        object.__setattr__(self, "none_code", nones[0] if nones else -1)

    @property
    def refused_code(self) -> int:
        """The code that stands for errors; -1 if no value is an error."""
        if self.unknown == "missing":
            return self.nan_code
        return len(self.categories) if self.unknown == "error" else -1

    def __len__(self) -> int:
        """Return the number of codes, including the code of unknown values."""
        return len(self.categories) + 1

    def code(self, value: Any) -> int:
        """Return the code of a value.

        Raises `InputError` for values that `unknown` calls errors.
        """
        if value is None:
            code = self.none_code
        elif is_nan(value):
            code = self.nan_code
        else:
            code = self.code_of.get(value, -1)
        if code < 0:
            code = len(self.categories)
        if code == self.refused_code:
            raise self.refused(value)
        return code

    def refused(self, value: Any) -> InputError:
        """Return the error for a value."""
        if self.unknown == "missing":
            return InputError(f"{self.where}: got {value!r}; the encoder refuses missing values.")
        known = ", ".join(map(repr, self.categories[:5])) + (", ..." if len(self.categories) > 5 else "")
        return InputError(f"{self.where}: {value!r} was not in the training data; known are {known}.")

    def apply(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.array([self.code(value) for value in x.ravel().tolist()], np.float64)
        return result.reshape(x.shape).astype(x.dtype if x.dtype.kind == "f" else np.float64)


@dataclass(frozen=True, eq=False)
class Lookup(Step):
    """A number for each code."""

    values: codec.Numbers  # float64, shape (codes,): one for each code of the column's `Encode`

    def apply(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.values[x.astype(np.int64)].astype(x.dtype)
        return result


@dataclass(frozen=True, eq=False)
class Equals(Step):
    """1 for some codes, else 0: a column of a one-hot encoder; NaN stays."""

    codes: tuple[codec.Index, ...]

    def apply(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.isin(x, self.codes).astype(x.dtype)
        result[np.isnan(x)] = np.nan
        return result


def check_codes(steps: Sequence[Step]) -> None:
    """Check that each `Lookup` reads codes, and has a number for each.

    Raises `ValueError` otherwise.
    """
    codes = 0
    for step in steps:
        if isinstance(step, Lookup) and not 0 < codes <= len(step.values):
            raise ValueError(f"{len(step.values)} numbers are looked up by {codes} codes")
        if isinstance(step, Encode):
            codes = len(step)
        elif not isinstance(step, Cast):
            codes = 0


def missing_in(x: np.ndarray, missing: Missing) -> np.ndarray:
    """Return a mask of the missing numbers: bool, of the same shape."""
    if missing is None or isinstance(missing, str):
        return np.zeros(x.shape, bool)
    result: np.ndarray = np.isnan(x) if missing is NA or missing != missing else x == missing
    return result


def is_nan(value: Any) -> bool:
    """Return whether a value of any kind is NaN; ``pandas.NA`` is not."""
    return isinstance(value, (float, np.floating)) and bool(value != value)


def is_missing(value: Any, missing: Missing) -> bool:
    """Return whether a value of any kind is missing."""
    if missing is None:
        return value is None
    if missing is NA:
        # By name, as pandas may not be installed.
        return value is None or is_nan(value) or type(value).__name__ in ("NAType", "NaTType")
    if missing != missing:
        return is_nan(value)
    # Comparing pandas.NA gives no bool.
    return type(value).__name__ != "NAType" and bool(value == missing)
