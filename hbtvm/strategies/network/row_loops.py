"""Calls that stand for loops over a row's values until they are lowered
(see `hbtvm.schedules.network.loops`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

IMPUTATION = "hbtvm.imputation"
"""Steps of an `Imputation`.

Its arguments: the first two columns of the state and of the marks; the first entries of the tables
``column``, ``weight``, ``intercept``, ``low`` and ``high``; steps, columns.
"""

COUPLING = "hbtvm.coupling"
"""Rounds of a `Coupling`. Its arguments: the first two columns of the pairs; classes, rounds at most."""

Value = Callable[[Any, Any, Any], Any]  # from tile, column and row to a value: an entry of a stage


def call(
    name: str, inputs: Sequence[tuple[Value, int]], tables: Sequence[Any], sizes: Sequence[int]
) -> Callable[[Any, Any, Any], Any]:
    """Return a function from tile, column and row to the call.

    `inputs`: stages with their widths.
    `tables`: tables that the call reads as a whole.
    `sizes`: whole numbers.
    """

    def entry(i: Any, w: Any, r: Any) -> Any:
        # The first two columns give the stride.
        columns = [value(i, min(n, width - 1), r) for value, width in inputs for n in (0, 1)]
        first = [table(*(0 for _ in table.shape)) for table in tables]
        numbers = (tirx.const(size, "int32") for size in sizes)
        return tirx.call_pure_extern("float64", name, *columns, *first, *numbers)

    return entry
