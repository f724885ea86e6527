"""Convert tables' columns to numbers: check their names, look up their categories."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.categories import named as named_columns
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.rows.frames import NUMBERS, Column, Frame
from hbtvm.runtime.unreadable import described
from hbtvm.words.similar import misspelt


class ColumnReader:
    """Reads columns as the model's library does.

    `spec`: what the model accepts.
    `maps`: whether any column holds categories, so that columns are read one by one.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._spec = spec
        self._maps = _maps_of(spec)
        self._order = spec.category_order
        self.maps = bool(self._maps or self._order)
        names = spec.feature_names
        # LightGBM's names for unnamed columns.
        automatic = names is not None and all(name == f"Column_{i}" for i, name in enumerate(names))
        self._names = None if automatic else names

    @property
    def compares_names(self) -> bool:
        """Whether a data frame's column names must be the model's."""
        return self._names is not None

    def name(self, index: int) -> str:
        """Return a column's name for errors."""
        return f"column {index}" if self._names is None else f"column {index} ({self._names[index]!r})"

    def check_names(self, frame: Frame) -> None:
        """Refuse a data frame whose columns are not the model's."""
        count = len(frame.columns) if frame.matrix is None else frame.matrix.shape[1]
        self.check_header(frame.names, count)

    def check_header(self, names: tuple[str, ...] | None, count: int) -> None:
        """Refuse columns whose names (None if unnamed) or count are not the model's."""
        expected = self._names
        if names is not None and expected is not None and names != expected:
            self._compare_names(names, expected)
        if count != self._spec.n_features:
            raise InputError(f"expected {self._spec.n_features} columns, got {count}.")

    def _compare_names(self, names: tuple[str, ...], expected: tuple[str, ...]) -> None:
        # LightGBM keeps names with underscores for spaces.
        plain = tuple(name.replace(" ", "_") for name in names)
        wanted = tuple(name.replace(" ", "_") for name in expected)
        if plain == wanted:
            return
        lacking = [name for name, key in zip(expected, wanted, strict=True) if key not in plain]
        if lacking:
            hint = misspelt(lacking[0], [name for name in names if name not in expected]) or "."
            raise InputError(f"column {lacking[0]!r} is missing{_and_more(lacking)}{hint}")
        extra = [name for name, key in zip(names, plain, strict=True) if key not in wanted]
        if extra:
            raise InputError(f"column {extra[0]!r} was not in the training data{_and_more(extra)}.")
        pairs = enumerate(zip(plain, wanted, strict=False))
        at = next((i for i, (present, want) in pairs if present != want), len(wanted))
        if at == len(wanted):
            raise InputError(f"column {names[at]!r} appears twice.")
        raise InputError(
            f"columns are in another order than in training: column {at} is {names[at]!r}, "
            f"expected {expected[at]!r}."
        )

    def read(self, columns: tuple[Column, ...], named: bool) -> list[np.ndarray]:
        """Return each column's numbers, shape (n,): its values, or the codes of its categories (NaN:
        missing).

        Raises `InputError` if a column does not fit the model.

        `columns`: as many as the model has.
        `named`: whether they are a data frame's, whose types are meaningful.
        """
        maps = self._placed(columns, named) if self._order else self._maps
        return [self._column(i, column, named, maps.get(i)) for i, column in enumerate(columns)]

    def _placed(self, columns: tuple[Column, ...], named: bool) -> dict[int, dict[Any, int]]:
        """Return the codes of category columns, if only the rows' types tell which columns these are."""
        typed = [i for i, column in enumerate(columns) if column.categorical]
        words = [
            i for i, column in enumerate(columns) if column.levels is not None and not column.categorical
        ]
        if words:
            return _maps_of(self._spec.placed(typed + words, words))
        if not named:
            return {}  # numbers in a plain array are codes
        # LightGBM pairs a frame's category columns with the training frame's by their order.
        if len(typed) != len(self._order):
            mention = f" ({named_columns(typed, self._names)})" if typed else ""
            raise InputError(
                f"the model was trained with {len(self._order)} category columns, but the data frame "
                f"has {len(typed)}{mention}; expected category columns as in training."
            )
        for i, levels in zip(typed, self._order, strict=True):
            if i not in levels.columns:
                raise InputError(
                    f"{self.name(i)} was not a category column in training, but is one in the data frame; "
                    "expected category columns as in training."
                )
        return {i: _code_of(levels.values) for i, levels in zip(typed, self._order, strict=True)}

    def _column(self, index: int, column: Column, named: bool, known: dict[Any, int] | None) -> np.ndarray:
        values, levels = column.values, column.levels
        if known is not None and not known and values is not None:
            # The model does not read this column.
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
                self._refuse(index, f"{described(levels[0])} ({type(levels[0]).__name__})")
            if self._spec.numbers_are_categories and column.categorical:
                self._refuse_infinity(index, levels)
            return self._codes(index, values, levels, known)
        if known is None:
            return values
        if self._spec.numbers_are_categories:
            # In objects, scikit-learn looks for NaN only; infinity is an unknown category.
            if column.type_name != "object" and np.isinf(values).any():
                self._refuse_infinity(index, (math.inf,))
            distinct, at = np.unique(values, return_inverse=True)
            return self._codes(index, at.reshape(-1), tuple(distinct.tolist()), known)
        if named:
            # It could hold codes or values, and the library refuses it too.
            raise InputError(
                f"{self.name(index)} was a category column in training; expected categories or "
                f"strings, got {column.type_name}."
            )
        return values

    def _refuse_infinity(self, index: int, levels: tuple[Any, ...]) -> None:
        if any(isinstance(level, float) and math.isinf(level) for level in levels):
            raise InputError(f"{self.name(index)}: got infinity; expected categories, or finite numbers.")

    def _codes(
        self, index: int, at: np.ndarray, levels: tuple[Any, ...], known: dict[Any, int]
    ) -> np.ndarray:
        """Return the codes of values that are positions in `levels`."""
        # The last entry is for position -1, a missing value.
        codes = np.full(len(levels) + 1, np.nan, np.float32)
        used = np.unique(at)
        for i in used[used >= 0].tolist():
            level = levels[i]
            code = known.get(level)
            if code is not None:
                codes[i] = code
            elif level == level and self._spec.unknown_category == "error":
                listed = ", ".join(map(repr, list(known)[:5]))
                raise InputError(
                    f"{self.name(index)}: the category {described(level)} was not in the training data; "
                    f"known are {listed}{', ...' if len(known) > 5 else ''}."
                )
        result: np.ndarray = codes[at]
        return result

    def _refuse(self, index: int, got: str) -> NoReturn:
        kinds = "numbers or categories" if index in self._maps or self._order else "numbers"
        raise InputError(f"{self.name(index)}: expected {kinds}, got {got}.")


def _maps_of(spec: InputSpec) -> dict[int, dict[Any, int]]:
    return {column: _code_of(values) for column, values in spec.categories.items()}


def _code_of(values: tuple[Any, ...]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _and_more(names: list[str]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""
