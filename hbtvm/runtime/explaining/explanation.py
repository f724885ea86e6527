"""`Explanation`: contributions of columns to scores, row by row."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np

from hbtvm.errors import InputError, missing_package

_AXES = ("row", "feature", "output")

Sign = Literal["any", "positive", "negative"]


class Reasons(NamedTuple):
    """The strongest contributions of each row, arrays of shape (n, k).

    `names`: feature names, strings; None where a row has fewer contributions of the sign.
    `values`: the caller's values of these columns, objects; None there.
    `contributions`: float64; NaN there.
    """

    names: np.ndarray
    values: np.ndarray
    contributions: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Shapley values of rows: ``base_values + values.sum(axis=1)`` are the scores.

    shap's plots take it as a `shap.Explanation`. Indexing follows numpy, by rows, features and outputs, of
    which the latter may be names: ``explanation[0]``, ``explanation[:, "age"]``, ``explanation[..., "yes"]``.

    Attributes
    ----------
    values
        Contributions, float64, shape (n, P); (n, P, O) if there are several outputs.
    base_values
        The score of a row of which nothing is known, float64, shape (n,) or (n, O).
    data
        The caller's values of the columns, shape (n, P), numbers or objects.
    feature_names
        Names of the P columns.
    output_names
        Names of the O outputs; None for a single output.
    errors
        Standard errors of `values`, of the same shape; None if the values are exact.
    """

    values: np.ndarray
    base_values: np.ndarray
    data: np.ndarray
    feature_names: Any
    output_names: Any = None
    errors: np.ndarray | None = None
    _axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self._axes:
            object.__setattr__(self, "_axes", _AXES[: self.values.ndim])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `values`."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, item: Any) -> Any:
        parts = item if isinstance(item, tuple) else (item,)
        if not all(_is_index(part) for part in parts):
            return self.to_shap()[item]  # shap's chains of operations
        result = self
        for axis, part in reversed(list(zip(self._axes, _expanded(parts, len(self._axes)), strict=True))):
            if not (isinstance(part, slice) and part == slice(None)):
                result = result._along(axis, part)
        return result

    def _along(self, axis: str, index: Any) -> Explanation:
        """Return the part at an index, a number, a slice, an array or a name, of an axis."""
        names = {"feature": self.feature_names, "output": self.output_names}.get(axis)
        if isinstance(index, str):
            if names is None or index not in list(names):
                raise InputError(
                    f"there is no {axis} {index!r}; there are {', '.join(map(str, names or ()))}."
                )
            index = list(names).index(index)
        single = np.ndim(np.empty(self.shape[self._axes.index(axis)])[index]) == 0

        def part(array: Any, without: str = "") -> Any:
            axes = [other for other in self._axes if other != without]
            return array[(slice(None),) * axes.index(axis) + (index,)] if axis in axes else array

        return Explanation(
            part(self.values),
            part(self.base_values, "feature"),
            part(self.data, "output"),
            _named(self.feature_names, index) if axis == "feature" else self.feature_names,
            _named(self.output_names, index) if axis == "output" else self.output_names,
            None if self.errors is None else part(self.errors),
            tuple(other for other in self._axes if other != axis) if single else self._axes,
        )

    def top(self, k: int, sign: Sign = "any", output: int | str | None = None) -> Reasons:
        """Return the strongest contributions of each row, strongest first.

        Parameters
        ----------
        k
            Most contributions of a row, at least 1.
        sign
            ``"positive"`` or ``"negative"`` for those that raise, or lower, the score, such as the reasons of
            a refusal; ``"any"`` for both. Contributions of 0 are no reasons.
        output
            Of several outputs, the name or number of one; None for each row's output of the highest score.

        Raises
        ------
        InputError
            If `k` or `sign` is out of range, or there is no such output.
        """
        if k < 1:
            raise InputError(f"k is {k}; expected at least 1.")
        if sign not in ("any", "positive", "negative"):
            raise InputError(f"sign is {sign!r}; expected 'any', 'positive' or 'negative'.")
        if self._axes[:2] != _AXES[:2]:
            raise InputError("expected an explanation of rows and features.")
        values = self.values
        if values.ndim == 3:
            values = (self.highest()[0] if output is None else self[..., output]).values
        strength = {"any": np.abs, "positive": np.positive, "negative": np.negative}[sign](values)
        order = np.argsort(-strength, axis=1, kind="stable")[:, :k]
        absent = np.take_along_axis(strength, order, 1) <= 0
        names = np.array(self.feature_names, object)[order]
        data = np.take_along_axis(np.asarray(self.data, object), order, 1)
        return Reasons(
            np.where(absent, None, names),  # type: ignore[call-overload]
            np.where(absent, None, data),  # type: ignore[call-overload]
            np.where(absent, np.nan, np.take_along_axis(values, order, 1)),
        )

    def highest(self) -> tuple[Explanation, np.ndarray]:
        """Return the explanation of each row's highest score, and the outputs' names, objects, shape (n,).

        Raises
        ------
        InputError
            If there is only one output.
        """
        if self.values.ndim != 3:
            raise InputError("expected an explanation of several outputs.")
        at = (self.base_values + self.values.sum(axis=1)).argmax(axis=1)

        def taken(array: np.ndarray) -> np.ndarray:
            return np.take_along_axis(array, at[:, None, None], 2)[:, :, 0]

        highest = Explanation(
            taken(self.values),
            taken(self.base_values[:, None])[:, 0],
            self.data,
            self.feature_names,
            None,
            None if self.errors is None else taken(self.errors),
        )
        return highest, np.array(self.output_names, object)[at]

    def to_pandas(self) -> Any:
        """Return a data frame: the column ``base_value``, then a column for each feature.

        With several outputs, the columns have two levels: output and name.

        Raises
        ------
        MissingPackageError
            If pandas is not installed.
        """
        pandas = _library("pandas", "a data frame needs")
        if self._axes[:2] != _AXES[:2]:
            raise InputError("expected an explanation of rows and features.")
        names = ["base_value", *map(str, self.feature_names)]
        if self.values.ndim == 2:
            return pandas.DataFrame(np.column_stack([self.base_values, self.values]), columns=names)
        table = np.concatenate([self.base_values[:, None], self.values], axis=1)
        columns = pandas.MultiIndex.from_product([list(map(str, self.output_names)), names])
        return pandas.DataFrame(table.transpose(0, 2, 1).reshape(len(table), -1), columns=columns)

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` of the same arrays.

        Raises
        ------
        MissingPackageError
            If shap is not installed.
        """
        return _library("shap", "its explanations need").Explanation(
            self.values,
            self.base_values if np.ndim(self.base_values) else float(self.base_values),
            data=self.data,
            feature_names=_listed(self.feature_names),
            output_names=_listed(self.output_names),
            error_std=self.errors,
        )

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """`shap.Explanation` if shap is imported: its plots check the class, and this makes them take it."""
        shap = sys.modules.get("shap")
        return getattr(shap, "Explanation", Explanation)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that only shap's explanations have, such as ``abs`` or ``display_data``."""
        if name.startswith("_") or "shap" not in sys.modules:
            raise AttributeError(f"an explanation has no {name!r}")
        return getattr(self.to_shap(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.values, self.base_values, self.data, self.feature_names, self.output_names, self.errors)
        return Explanation, (*parts, self._axes)

    def __repr__(self) -> str:
        sizes = " x ".join(
            f"{n:,} {axis}{'' if n == 1 else 's'}" for n, axis in zip(self.shape, self._axes, strict=True)
        )
        how = (
            "exact" if self.errors is None else f"standard errors up to {np.max(self.errors, initial=0):.2g}"
        )
        return f"<hbtvm.Explanation: {sizes or 'a single value'}, {how}>"


def _is_index(part: Any) -> bool:
    return part is Ellipsis or isinstance(part, int | np.integer | slice | str | list | np.ndarray)


def _expanded(parts: tuple[Any, ...], n: int) -> list[Any]:
    """Return an index for each of n axes."""
    at = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(at) > 1 or len(parts) - len(at) > n:
        raise IndexError(f"too many indices: an explanation of {n} axes was indexed by {len(parts)}")
    before, after = (parts[: at[0]], parts[at[0] + 1 :]) if at else (parts, ())
    return [*before, *[slice(None)] * (n - len(before) - len(after)), *after]


def _named(names: Any, index: Any) -> Any:
    part = np.array(names, object)[index]
    return tuple(part) if isinstance(part, np.ndarray) else part


def _listed(names: Any) -> Any:
    return list(names) if isinstance(names, tuple) else names


def _library(name: str, needs: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_package(needs, name, name) from error
