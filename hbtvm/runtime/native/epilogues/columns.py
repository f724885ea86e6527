"""Epilogues of kernels that compute whole outputs, as `hbtvm.graph.outputs.output_columns` splits them."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.native.epilogues.epilogue import MOST_COUPLED, TYPES, Epilogue, Rule
from hbtvm.runtime.native.epilogues.parts import looked_up, plain, undone


def of_columns(spec: OutputSpec, output: str | None) -> Epilogue | None:
    """Return the epilogue of an output that is some columns of scores; None if only Python computes it."""
    slices = spec.slices
    name = output or ("label" if "index" in slices else "response" if "response" in slices else "score")
    if name == "label" and "index" in slices:
        return _index(spec, slices["index"])
    if name == "proba" and "proba" in slices and len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        first = slices["proba"][0]
        values = plain((first, first + ends[-1]), "float64", flat=False)
        return replace(values, cuts=tuple(pairwise((0, *ends))))
    if name == "proba" and "pairs" in slices:
        count = len(spec.classes[0])
        if count > MOST_COUPLED:
            return None
        pairs = plain(slices["pairs"], "float64", flat=False)
        return replace(pairs, plain=False, columns=count, rule=Rule.COUPLED)
    if name not in slices:
        return None
    first, last = slices[name]
    flat = last - first == 1 and not (spec.keeps_axis or name == "proba")
    if name == "response" and spec.label_dtype is not None:
        return plain((first, last), spec.label_dtype, flat) if spec.label_dtype in TYPES else None
    values = plain((first, last), "float64", flat)
    return undone(values, spec.inverse) if name == "response" else values


def _index(spec: OutputSpec, columns: tuple[int, int]) -> Epilogue | None:
    first, last = columns
    if not spec.classes:
        dtype = spec.label_dtype or "int64"
        flat = last - first == 1 and not spec.keeps_axis
        return plain(columns, dtype, flat) if dtype in TYPES else None
    count = len(spec.classes)
    if count > 1 and last - first < count:
        return None
    positions = plain((first, first + count), "float64", flat=count == 1)
    return looked_up(replace(positions, plain=False, rule=Rule.POSITION), spec.classes)
