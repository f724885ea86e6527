"""`Rare`: feature-engine's ``RareLabelEncoder``: rare categories are a single one to the encoder behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Encode, Lookup, Step
from hbtvm.graph.columns.table import AllColumns, Column, Made, parts_of


@dataclass(frozen=True, eq=False)
class Rare(Step):
    """Values of categories, for front ends: `encoded` replaces it by the codes of the next encoder."""

    kept: tuple[Any, ...]  # the categories that stay, maybe with NaN and None
    value: Any  # what other values become
    takes_missing: bool  # whether NaN stays NaN; else missing values are refused
    place: str  # step, class and column, for errors
    step: str  # step and class

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Raise `UnsupportedModel`: another step than an encoder reads the values."""
        raise self.refused()

    def refused(self) -> UnsupportedModel:
        """Return the error for a step that no encoder follows."""
        return UnsupportedModel(
            f"{self.step} turns categories into texts, which only an encoder directly behind it may read; "
            "use scikit-learn's encoders, which have min_frequency."
        )

    def encoded(
        self,
        values: tuple[Any, ...],
        unknown: Literal["error", "code", "missing"],
        column: Column,
        place: str,
    ) -> Column:
        """Return a column, whose last step this is, as codes of an encoder's categories.

        `values`, `unknown`, `place`: of the encoder, as in `Encode`.
        Raises `ModelError` if the encoder refuses a category that stays.
        """
        before = replace(column, steps=column.steps[:-1])
        if before.encoder is not None:
            raise self.refused()
        behind = Encode(values, unknown)

        def code(value: Any) -> int:
            try:
                return behind.code(value)
            except InputError:
                return -1

        known = {value: code(value) for value in self.kept if value is not None and value == value}
        if -1 in known.values():
            raise ModelError(f"{place}: it gets values that it does not know.")
        missing, other = code(math.nan) if self.takes_missing else -1, code(self.value)
        errors: Literal["error", "code", "missing"] = "code"
        if other < 0:
            errors = "error"
        elif missing < 0:
            errors = "missing"
        if missing >= 0 or errors == "missing":
            known[math.nan] = missing
        if missing >= 0 and None in self.kept:
            known[None] = code(None)
        first = Encode(tuple(known), errors, place if self.takes_missing or other < 0 else self.place)
        codes = np.array([*known.values(), other], np.float64)
        # The code of refused values is not read.
        return before.then(first, Lookup(np.maximum(codes, 0)), Encode(tuple(range(len(values)))))


def refuse_rare(columns: Sequence[Column | Feed]) -> None:
    """Refuse columns, or columns that they are computed from, that no encoder read.

    Raises `UnsupportedModel` if one has a `Rare`.
    """
    waiting, seen = [columns], set[int]()
    while waiting:
        for part in parts_of(waiting.pop()):  # type: ignore[arg-type]
            # All columns of an operation are alike in this, and there may be a million of them.
            for column in part[:1] if isinstance(part, AllColumns) else part:
                for step in column.steps:
                    if isinstance(step, Rare):
                        raise step.refused()
                if isinstance(column.source, Made) and id(column.source.operation) not in seen:
                    seen.add(id(column.source.operation))
                    waiting.append(column.source.operation.inputs.columns)
