"""Selection of the native executor's epilogue for an output, see `hbtvm/native/epilogue/epilogue.h`."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.native.epilogues.columns import of_columns
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, Rule, Transform
from hbtvm.runtime.native.epilogues.parts import largest, looked_up, numbers, plain, undone

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
"""Transforms that every library computes in float64."""


def epilogue_of(
    spec: OutputSpec, output: str | None, *, n_outputs: int, exported: bool = False
) -> Epilogue | None:
    """Return the epilogue of a model's output; None if only the methods of `spec` compute or refuse it.

    Parameters
    ----------
    output
        As for `OutputSpec.maker`.
    n_outputs
        Scores per row.
    exported
        Whether to include labels and decisions of isolation forests: the last bit of C's ``pow`` may differ
        from numpy's power, which matters for rows on the threshold.
    """
    if spec.slices:
        epilogue = of_columns(spec, output)
    elif spec.transform == "columns" or (spec.dtype == "float32" and spec.transform in _IN_FLOAT64):
        return None
    else:
        epilogue = _of_scores(spec, output, exported)
    return epilogue if epilogue is not None and epilogue.last <= n_outputs else None


def epilogue_of_columns(
    label_dtype: str | None, rows_dtype: str, n_outputs: int, keeps_axis: bool = False
) -> Epilogue:
    """Return the epilogue of a transformer's columns, as in `hbtvm.graph.outputs.output_columns.columns`.

    Parameters
    ----------
    label_dtype, rows_dtype
        Parameters of that function.
    n_outputs
        Scores per row.
    keeps_axis
        A parameter of that function.
    """
    if label_dtype == "int64":
        return plain((0, n_outputs if keeps_axis else 1), "int64", flat=not keeps_axis)
    single = label_dtype == "float32" or (label_dtype == "rows" and rows_dtype == "float32")
    return plain((0, n_outputs), "float32" if single else "float64", flat=False)


def _of_scores(spec: OutputSpec, output: str | None, exported: bool) -> Epilogue | None:
    """Return an epilogue of raw scores; None if there is none, and if `OutputSpec` raises an error."""
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
    epilogue = _response(spec)
    if epilogue is not None and name == "decision":
        return undone(epilogue, (("subtract", (spec.offset,)),))
    return epilogue


def _transformed(spec: OutputSpec, transform: str | None = None) -> Epilogue:
    """Return an epilogue for all responses of a row, shape (n, O)."""
    name = spec.transform if transform is None else transform
    epilogue = replace(
        plain((0, spec.n_outputs), spec.dtype, flat=False),
        transform=_TRANSFORMS[name],
        single=spec.dtype == "float32",
        plain=name == "identity",
    )
    if name in ("sigmoid", "one_vs_rest"):
        return replace(epilogue, factor=-float(spec.scale))
    return replace(epilogue, factor=float(spec.scale)) if name == "isolation" else epilogue


def _response(spec: OutputSpec) -> Epilogue | None:
    single = spec.n_outputs == 1 or spec.transform == "class_index"
    if (spec.keeps_axis and not single) or (spec.transform == "one_vs_rest" and spec.n_outputs == 1):
        return None
    flat = single and not spec.keeps_axis
    if spec.transform == "class_index":
        epilogue = replace(largest(_transformed(spec, "identity"), [spec.n_outputs]), flat=flat)
        return None if spec.inverse else epilogue
    return undone(replace(_transformed(spec), flat=flat), spec.inverse)


def _own_raw(spec: OutputSpec) -> Epilogue:
    """Return an epilogue for raw scores in the library's scale and shape."""
    epilogue = replace(_transformed(spec, "identity"), flat=spec.n_outputs == 1)
    if spec.raw_factor == 1.0:
        return epilogue
    return replace(epilogue, plain=False, transform=Transform.SCALED, factor=float(spec.raw_factor))


def _proba(spec: OutputSpec) -> Epilogue | None:
    if len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        return replace(plain((0, ends[-1]), spec.dtype, flat=False), cuts=tuple(pairwise((0, *ends))))
    if spec.transform == "class_index":
        return _transformed(spec, "softmax")
    epilogue = _response(spec)
    if epilogue is None or spec.n_outputs > 1:
        return epilogue
    if spec.keeps_axis:
        return None
    if _is_single_class(spec):
        return replace(epilogue, flat=False)
    return replace(epilogue, flat=False, plain=False, columns=2, rule=Rule.WITH_COMPLEMENT)


def _is_single_class(spec: OutputSpec) -> bool:
    return len(spec.classes) == 1 and len(spec.classes[0]) == 1 and spec.transform == "identity"


def _label(spec: OutputSpec) -> Epilogue | None:
    chosen = _chosen(spec)
    if chosen is None or spec.label_rule == "side":
        return chosen
    if spec.classes:
        return looked_up(chosen, spec.classes) if chosen.columns == len(spec.classes) else None
    return numbers(chosen, spec.label_dtype)


def _chosen(spec: OutputSpec) -> Epilogue | None:
    """Return an epilogue for each target's positions of labels in `spec.classes`; or -1 and 1."""
    # Raw scores in float64 decide labels.
    scores = replace(_transformed(spec, "identity"), plain=False, single=False)
    if spec.label_rule == "side":
        epilogue = _response(spec)
        if epilogue is None or epilogue.columns != 1:
            return None
        epilogue = replace(epilogue, plain=False, rule=Rule.SIDE, bound=float(spec.offset))
        return numbers(epilogue, "int64")
    if len(spec.classes) > 1:
        ends = list(accumulate(map(len, spec.classes)))
        # numpy has no largest value of an empty array.
        return largest(_transformed(spec, "identity"), ends) if all(map(len, spec.classes)) else None
    match spec.label_rule:
        case "raw_positive" | "raw_not_negative":
            rule = Rule.ABOVE if spec.label_rule == "raw_positive" else Rule.NOT_BELOW
            return replace(scores, last=1, columns=1, flat=True, rule=rule)
        case "each_raw_positive":
            return replace(scores, rule=Rule.ABOVE)
        case "above_half" | "each_above_half":
            epilogue = None if spec.transform == "class_index" else _response(spec)
            return epilogue and replace(epilogue, plain=False, rule=Rule.ABOVE, bound=0.5)
        case "raw_argmax":
            return largest(scores, [spec.n_outputs])
    return _likeliest(spec)


def _likeliest(spec: OutputSpec) -> Epilogue | None:
    """Return an epilogue for the positions of the largest probabilities."""
    if spec.transform == "class_index":
        return largest(_transformed(spec, "identity"), [spec.n_outputs])
    if "proba" not in spec.outputs and not (spec.transform == "sigmoid" and spec.n_outputs == 1):
        return None
    proba = _proba(spec)
    if proba is None:
        return None
    if proba.rule is Rule.WITH_COMPLEMENT:
        return replace(proba, flat=True, columns=1, rule=Rule.LIKELIER)
    return largest(proba, [spec.n_outputs])
