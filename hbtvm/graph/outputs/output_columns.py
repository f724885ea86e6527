"""Outputs that a kernel has computed whole: each is some columns of its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.outputs.arrays import HOST, Arrays
from hbtvm.graph.outputs.inverse import undo
from hbtvm.operators.coupling import coupled

if TYPE_CHECKING:
    from hbtvm.graph.outputs.output import OutputSpec

Slices = Mapping[str, tuple[int, int]]
"""By name (see `hbtvm.graph.predictor.Predictor`): the first column, and the one behind the last.

``"finite"`` is 0 in rows of finite numbers, and NaN in others.
"""

_NO_LABEL = (
    "a row has no label: there is no neighbour of it within the radius, or a value is none of those of "
    "training."
)
"""Front ends give such rows a position that no label has."""


def maker(spec: OutputSpec, output: str | None) -> Callable[..., Any] | None:
    """The function that cuts an output out of scores, float64, shape (n, O); None where there is none."""
    slices, output = spec.slices, _named(spec, output)
    if output == "label" and "index" in slices:
        return _labels(spec, slices["index"])
    if output == "proba" and "proba" in slices and len(spec.classes) > 1:
        return _several(spec, slices["proba"][0])
    if output == "proba" and "pairs" in slices:
        start, stop = slices["pairs"]
        count = len(spec.classes[0])
        return lambda raw, arrays=HOST: coupled(raw[:, start:stop], count)
    if output not in slices:
        return None
    inverse = spec.inverse if output == "response" else ()
    cut = _cut(slices[output], keeps_axis=spec.keeps_axis or output == "proba")
    dtype = spec.label_dtype
    if output == "response" and dtype is not None:
        return lambda raw, arrays=HOST: arrays.cast(cut(raw), dtype)
    return lambda raw, arrays=HOST: undo(cut(raw), inverse) if inverse else cut(raw)


def by_any_library(spec: OutputSpec, output: str | None) -> bool:
    """Return whether arrays of other libraries can be cut as numpy's are.

    Labels that a table holds are looked up on the host, which tells positions that no label has.
    """
    output = _named(spec, output)
    if output == "label" and "index" in spec.slices:
        return not spec.classes
    return output in spec.slices and not (output == "proba" and "pairs" in spec.slices)


def _named(spec: OutputSpec, output: str | None) -> str:
    """The output that is asked for; of None, what ``predict`` returns."""
    if output is not None:
        return output
    return "label" if "index" in spec.slices else "response" if "response" in spec.slices else "score"


def columns(
    label_dtype: str | None, rows: str, keeps_axis: bool = False
) -> Callable[[np.ndarray], np.ndarray]:
    """The function from a kernel's scores, shape (n, columns), to what ``transform`` returns.

    It returns the scores themselves where they are of the right type.

    Parameters
    ----------
    label_dtype
        As `OutputSpec.label_dtype` says: a type, ``"rows"`` for that of the rows, None for float64.
    rows
        The rows' type.
    keeps_axis
        Whether integers are columns, as `OutputSpec.keeps_axis` says.
    """
    if label_dtype == "int64" and keeps_axis:
        return lambda scores: scores.astype(np.int64)
    if label_dtype == "int64":
        return lambda scores: scores[:, 0].astype(np.int64)
    kind = np.dtype(
        "float32" if "float32" in (label_dtype, rows if label_dtype == "rows" else "") else "float64"
    )

    def typed(scores: np.ndarray) -> np.ndarray:
        if scores.dtype == kind:
            return scores
        with np.errstate(over="ignore"):
            return scores.astype(kind)

    return typed


def _cut(columns: tuple[int, int], keeps_axis: bool) -> Callable[[Any], Any]:
    start, stop = columns
    if stop - start == 1 and not keeps_axis:
        return lambda raw: raw[:, start]
    return lambda raw: raw[:, start:stop]


def _labels(spec: OutputSpec, columns: tuple[int, int]) -> Callable[..., Any]:
    start, stop = columns
    classes, dtype = spec.classes, spec.label_dtype or "int64"
    if not classes:
        cut = _cut(columns, keeps_axis=spec.keeps_axis)
        return lambda raw, arrays=HOST: arrays.cast(cut(raw), dtype)
    if len(classes) == 1:
        table = classes[0]

        def one(raw: Any, arrays: Arrays = HOST) -> Any:
            index = arrays.cast(raw[:, start], "int64")
            try:
                return table.take(index) if arrays is HOST else table[index]
            except IndexError:
                raise InputError(_NO_LABEL) from None

        return one

    def several(raw: Any, arrays: Arrays = HOST) -> Any:
        index = arrays.cast(raw[:, start:stop], "int64")
        try:
            return arrays.columns([labels[index[:, i]] for i, labels in enumerate(classes)])
        except IndexError:
            raise InputError(_NO_LABEL) from None

    return several


def _several(spec: OutputSpec, first: int) -> Callable[..., Any]:
    ends = first + np.cumsum([len(labels) for labels in spec.classes])
    spans = list(zip([first, *ends[:-1].tolist()], ends.tolist(), strict=True))
    return lambda raw, arrays=HOST: [raw[:, start:stop] for start, stop in spans]
