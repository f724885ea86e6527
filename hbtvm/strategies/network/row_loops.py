"""Calls that stand for loops over a row's own values, until they are lowered (see
`hbtvm.schedules.network.loops`)."""

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
    """From tile, column and row to the call.

    `inputs`: stages with their widths.
    `tables`: read whole.
    `sizes`: whole numbers.
    """

    def made(i: Any, w: Any, r: Any) -> Any:
        # How far columns are apart follows from the first two.
        columns = [value(i, min(n, width - 1), r) for value, width in inputs for n in (0, 1)]
        first = [table(*(0 for _ in table.shape)) for table in tables]
        numbers = (tirx.const(one, "int32") for one in sizes)
        return tirx.call_pure_extern("float64", name, *columns, *first, *numbers)

    return made
