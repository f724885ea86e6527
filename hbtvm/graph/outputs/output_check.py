"""What has to hold of an `OutputSpec` beyond the types of its fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hbtvm.codec import Scalar, Via
from hbtvm.graph.outputs import inverse

if TYPE_CHECKING:
    from hbtvm.graph.outputs.output import OutputSpec

_SLICES = ("index", "proba", "pairs", "decision", "response", "score", "finite")


def _labels(given: tuple[str, tuple[Any, ...]]) -> np.ndarray:
    dtype, values = given
    if not re.fullmatch(r"[<|=]?[biufUO]\d{0,4}", dtype):
        raise ValueError(f"labels are of type {dtype!r:.40}")
    try:
        return np.array(values, dtype)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"labels of type {dtype} are {values!r:.100}") from None


Labels = Annotated[
    np.ndarray,
    Via(tuple[str, tuple[Scalar, ...]], lambda labels: (labels.dtype.str, labels.tolist()), _labels),
]
"""Labels, shape (n,), of any type."""


def check(spec: OutputSpec) -> None:
    """Check that fields fit each other.

    Raises
    ------
    ValueError
        If they do not.
    """
    label = spec.label_dtype
    if label not in (None, "rows") and not _is_number(label):
        raise ValueError(f"label_dtype is {label!r:.100}")
    if spec.label_rule not in (None, "side") and not spec.classes and label is None:
        raise ValueError("labels have neither classes nor a type")
    inverse.check(spec.inverse)
    if spec.selects and len(spec.selects) != spec.n_outputs:
        raise ValueError(f"{len(spec.selects)} columns are selected, not {spec.n_outputs}")
    _check_slices(spec)


def _is_number(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf"
    except (TypeError, ValueError, SyntaxError):
        return False


def _check_slices(spec: OutputSpec) -> None:
    slices = spec.slices
    if (spec.transform == "columns") != bool(slices):
        raise ValueError(f"slices are {dict(slices)!r:.200}")
    for name, (start, stop) in slices.items():
        if name not in _SLICES or not 0 <= start < stop <= spec.n_outputs:
            raise ValueError(f"the slice {name!r:.40} is {start, stop}")
    width = {name: stop - start for name, (start, stop) in slices.items()}
    classes = [len(labels) for labels in spec.classes]
    if slices and classes and (
        width.get("index", 1) != len(classes) or width.get("proba", sum(classes)) != sum(classes)
    ):  # fmt: skip
        raise ValueError(f"slices are {dict(slices)!r:.200} for {len(classes)} targets")
    if "pairs" in slices and (
        len(classes) != 1 or width["pairs"] != classes[0] * (classes[0] - 1) // 2
    ):  # fmt: skip
        raise ValueError(f"pairs are {slices['pairs']!r} of {classes} classes")
