"""Which epilogue of the native executor computes an output, see `hbtvm/native/epilogue.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hbtvm.graph.inverse import Inverse
from hbtvm.graph.output import OutputSpec
from hbtvm.runtime.native.epilogue import (
    ARITHMETIC,
    FUNCTIONS,
    MOST_COUPLED,
    TYPES,
    Epilogue,
    Rule,
    Transform,
    Type,
)

_TRANSFORMS = {
    "identity": Transform.IDENTITY,
    "sigmoid": Transform.SIGMOID,
    "softmax": Transform.SOFTMAX,
    "exp": Transform.EXP,
    "softplus": Transform.SOFTPLUS,
    "signed_square": Transform.SIGNED_SQUARE,
    "hinge": Transform.HINGE,
    "isolation": Transform.ISOLATION,
    "one_vs_rest": Transform.ONE_VS_REST,
    "modified_huber": Transform.MODIFIED_HUBER,
}

_IN_FLOAT64 = ("isolation", "one_vs_rest", "modified_huber")
"""Transforms that no library computes in float32."""


def epilogue_of(
    spec: OutputSpec, output: str | None, *, n_outputs: int, exported: bool = False
) -> Epilogue | None:
    """Return what computes an output of a model; None where only the methods of `spec` do (or refuse to).

    Parameters
    ----------
    output
        As for `OutputSpec.maker`.
    n_outputs
        Scores of a row.
    exported
        Whether labels and decisions of isolation forests are wanted: the last bit of C's ``pow`` may differ
        from that of numpy's power, which decides for rows on the threshold.
    """
    if spec.slices:
        found = _of_columns(spec, output)
    elif spec.transform == "columns" or (spec.dtype == "float32" and spec.transform in _IN_FLOAT64):
        return None
    else:
        found = _of_scores(spec, output, exported)
    return found if found is not None and found.last <= n_outputs else None


def epilogue_of_columns(label_dtype: str | None, rows_dtype: str, n_outputs: int) -> Epilogue:
    """Return what computes the columns of a transformer, as `hbtvm.graph.output_columns.columns` does.

    Parameters
    ----------
    label_dtype, rows_dtype
        The parameters of that function.
    n_outputs
        Scores of a row.
    """
    if label_dtype == "int64":
        return _plain((0, 1), "int64", flat=True)
    single = label_dtype == "float32" or (label_dtype == "rows" and rows_dtype == "float32")
    return _plain((0, n_outputs), "float32" if single else "float64", flat=False)


def _of_scores(spec: OutputSpec, output: str | None, exported: bool) -> Epilogue | None:
    """An epilogue of raw scores; None where there is none, and of what `OutputSpec` raises an error."""
    name = output or ("response" if spec.label_rule is None else "label")
    if name != "response" and (name not in spec.outputs or spec.inverse):
        return None
    isolation = spec.transform == "isolation"
    if isolation and name in ("label", "decision") and not exported:
        return None
    if name == "label":
        return _label(spec)
    if name == "proba":
        return _proba(spec)
    if name == "raw" or (name == "decision" and not isolation):
        return _own_raw(spec)
    found = _response(spec)
    if found is not None and name == "decision":
        return _undone(found, (("subtract", (spec.offset,)),))
    return found


def _plain(columns: tuple[int, int], dtype: str, flat: bool) -> Epilogue:
    """Scores as they are."""
    first, last = columns
    return Epilogue(np.dtype(dtype), last - first, flat, TYPES[dtype], first, last, plain=True)


def _transformed(spec: OutputSpec, transform: str | None = None) -> Epilogue:
    """All responses of a row, shape (n, O)."""
    name = spec.transform if transform is None else transform
    made = replace(
        _plain((0, spec.n_outputs), spec.dtype, flat=False),
        transform=_TRANSFORMS[name],
        single=spec.dtype == "float32",
        plain=name == "identity",
    )
    if name in ("sigmoid", "one_vs_rest"):
        return replace(made, factor=-float(spec.scale))
    return replace(made, factor=float(spec.scale)) if name == "isolation" else made


def _response(spec: OutputSpec) -> Epilogue | None:
    single = spec.n_outputs == 1 or spec.transform == "class_index"
    if (spec.keeps_axis and not single) or (spec.transform == "one_vs_rest" and spec.n_outputs == 1):
        return None
    flat = single and not spec.keeps_axis
    if spec.transform == "class_index":
        made = replace(_largest(_transformed(spec, "identity"), [spec.n_outputs]), flat=flat)
        return None if spec.inverse else made
    return _undone(replace(_transformed(spec), flat=flat), spec.inverse)


def _undone(made: Epilogue, inverse: Inverse) -> Epilogue | None:
    """With the steps of `hbtvm.graph.inverse` behind it."""
    width, numbers, rows = made.last - made.first, [], []
    for name, constants in inverse:
        if name == "column":
            made = replace(made, flat=False)
        elif name in ARITHMETIC:
            if len(constants) not in (1, width):
                return None
            numbers.append(ARITHMETIC.index(name))
            rows.append(np.broadcast_to(np.array(constants, np.float64), width))
        elif name != "positive":
            numbers.append(FUNCTIONS[name])
            rows.append(np.zeros(width))
    if not numbers:
        return made
    return replace(made, plain=False, step=np.array(numbers, np.int64), constants=np.stack(rows))


def _own_raw(spec: OutputSpec) -> Epilogue:
    """Raw scores as the library scales and shapes them."""
    made = replace(_transformed(spec, "identity"), flat=spec.n_outputs == 1)
    if spec.raw_factor == 1.0:
        return made
    return replace(made, plain=False, transform=Transform.SCALED, factor=float(spec.raw_factor))


def _proba(spec: OutputSpec) -> Epilogue | None:
    if len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        return replace(_plain((0, ends[-1]), spec.dtype, flat=False), cuts=tuple(pairwise((0, *ends))))
    if spec.transform == "class_index":
        return _transformed(spec, "softmax")
    found = _response(spec)
    if found is None or spec.n_outputs > 1:
        return found
    if spec.keeps_axis:
        return None
    if _is_single_class(spec):
        return replace(found, flat=False)
    return replace(found, flat=False, plain=False, columns=2, rule=Rule.WITH_COMPLEMENT)


def _is_single_class(spec: OutputSpec) -> bool:
    return len(spec.classes) == 1 and len(spec.classes[0]) == 1 and spec.transform == "identity"


def _label(spec: OutputSpec) -> Epilogue | None:
    found = _chosen(spec)
    if found is None or spec.label_rule == "side":
        return found
    if spec.classes:
        return _looked_up(found, spec.classes) if found.columns == len(spec.classes) else None
    return _numbers(found, spec.label_dtype)


def _chosen(spec: OutputSpec) -> Epilogue | None:
    """Positions of labels in `spec.classes`, of each target; or -1 and 1."""
    # Of these, raw scores in float64 decide.
    scores = replace(_transformed(spec, "identity"), plain=False, single=False)
    if spec.label_rule == "side":
        found = _response(spec)
        if found is None or found.columns != 1:
            return None
        found = replace(found, plain=False, rule=Rule.SIDE, bound=float(spec.offset))
        return _numbers(found, "int64")
    if len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        # numpy has no largest value of none.
        return _largest(_transformed(spec, "identity"), ends) if all(map(len, spec.classes)) else None
    match spec.label_rule:
        case "raw_positive" | "raw_not_negative":
            rule = Rule.ABOVE if spec.label_rule == "raw_positive" else Rule.NOT_BELOW
            return replace(scores, last=1, columns=1, flat=True, rule=rule)
        case "each_raw_positive":
            return replace(scores, rule=Rule.ABOVE)
        case "above_half" | "each_above_half":
            found = None if spec.transform == "class_index" else _response(spec)
            return found and replace(found, plain=False, rule=Rule.ABOVE, bound=0.5)
        case "raw_argmax":
            return _largest(scores, [spec.n_outputs])
    return _likeliest(spec)


def _likeliest(spec: OutputSpec) -> Epilogue | None:
    """Positions of the largest probabilities."""
    if spec.transform == "class_index":
        return _largest(_transformed(spec, "identity"), [spec.n_outputs])
    if "proba" not in spec.outputs and not (spec.transform == "sigmoid" and spec.n_outputs == 1):
        return None
    proba = _proba(spec)
    if proba is None:
        return None
    if proba.rule is Rule.WITH_COMPLEMENT:
        return replace(proba, flat=True, columns=1, rule=Rule.LIKELIER)
    return _largest(proba, [spec.n_outputs])


def _largest(values: Epilogue, ends: Sequence[int]) -> Epilogue:
    """The position of each target's largest value."""
    return replace(
        values,
        flat=len(ends) == 1,
        plain=False,
        columns=len(ends),
        last=values.first + ends[-1],
        rule=Rule.LARGEST,
        targets=len(ends),
        ends=np.array(ends, np.int64),
    )


def _numbers(positions: Epilogue, dtype: str | None) -> Epilogue | None:
    """Whole numbers as results; None of a type that C does not write."""
    if dtype not in TYPES:
        return None
    return replace(positions, dtype=np.dtype(dtype), type=TYPES[dtype])


def _looked_up(positions: Epilogue, classes: Sequence[np.ndarray]) -> Epilogue | None:
    """Labels of positions: bytes of a table, or positions of Python objects."""
    kind = classes[0].dtype
    starts = np.array([0, *accumulate(map(len, classes))], np.int64)
    made = replace(positions, targets=len(classes), labels=starts)
    if kind.hasobject:
        return replace(made, dtype=np.dtype("int64"), type=Type.I64, lookups=tuple(classes))
    if not kind.itemsize:
        return None
    try:
        # Labels of all targets have the first one's type, as numpy's columns of one array do.
        table = np.concatenate([labels.astype(kind) for labels in classes])
    except (TypeError, ValueError):
        return None
    return replace(made, dtype=kind, type=Type.BYTES, table=np.frombuffer(table.tobytes(), np.uint8))


def _of_columns(spec: OutputSpec, output: str | None) -> Epilogue | None:
    """An epilogue of scores that hold outputs whole, as `hbtvm.graph.output_columns.maker` has them."""
    slices: dict[str, Any] = dict(spec.slices)
    name = output or ("label" if "index" in slices else "response" if "response" in slices else "score")
    if name == "label" and "index" in slices:
        return _index(spec, slices["index"])
    if name == "proba" and "proba" in slices and len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        first = slices["proba"][0]
        made = _plain((first, first + ends[-1]), "float64", flat=False)
        return replace(made, cuts=tuple(pairwise((0, *ends))))
    if name == "proba" and "pairs" in slices:
        count = len(spec.classes[0])
        if count > MOST_COUPLED:
            return None
        made = _plain(slices["pairs"], "float64", flat=False)
        return replace(made, plain=False, columns=count, rule=Rule.COUPLED)
    if name not in slices:
        return None
    first, last = slices[name]
    flat = last - first == 1 and not (spec.keeps_axis or name == "proba")
    if name == "response" and spec.label_dtype is not None:
        return _plain((first, last), spec.label_dtype, flat) if spec.label_dtype in TYPES else None
    made = _plain((first, last), "float64", flat)
    return _undone(made, spec.inverse) if name == "response" else made


def _index(spec: OutputSpec, columns: tuple[int, int]) -> Epilogue | None:
    first, last = columns
    if not spec.classes:
        dtype = spec.label_dtype or "int64"
        flat = last - first == 1 and not spec.keeps_axis
        return _plain(columns, dtype, flat) if dtype in TYPES else None
    count = len(spec.classes)
    if count > 1 and last - first < count:
        return None
    made = _plain((first, first + count), "float64", flat=count == 1)
    return _looked_up(replace(made, plain=False, rule=Rule.POSITION), spec.classes)
