"""The functions of a library for C: the outputs of a package that C computes, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.runtime.host import OUTPUTS
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, Type
from hbtvm.runtime.native.epilogues.select import epilogue_of, epilogue_of_columns
from hbtvm.runtime.package.file import Package

DTYPES = ("float32", "float64")  # types of rows, in the order of C's numbers for them

_NAMES = {
    None: "predict",
    "label": "predict_label",
    "proba": "predict_proba",
    "decision": "decision_function",
    "score": "score_samples",
    "raw": "predict_raw",
}

_DESCRIPTIONS = {
    "predict": "what the model predicts",
    "predict_label": "the class labels",
    "predict_proba": "the probability of each class",
    "decision_function": "the decision function",
    "score_samples": "the anomaly score",
    "predict_raw": "the raw scores, before they become probabilities or predictions",
    "transform": "the columns that the model makes",
    "predict_class": "positions of class labels",
    "contributions": "what each column adds to a raw score, then the base value, for each raw score",
}

_C_TYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A function of the library for rows of both types."""

    name: str  # as in Python; ``"predict_class"`` returns positions of labels
    model: int  # 0 for the package's kernels, else the place among `further_of`, from 1
    epilogues: tuple[Epilogue, Epilogue]  # for float32 and float64 rows
    description: str  # a description of a row's results

    @property
    def columns(self) -> int:
        """Number of results of a row."""
        return self.epilogues[0].columns

    @property
    def c_types(self) -> tuple[str, str]:
        """C types of the results for float32 and float64 rows."""
        narrow, wide = (_C_TYPES[epilogue.dtype.name] for epilogue in self.epilogues)
        return narrow, wide


def further_of(package: Package) -> list[Package]:
    """Return the packages of a library's further models."""
    further = [package.transform, package.views.get("reasons")]
    return [other for other in further if other is not None]


def methods_of(package: Package) -> tuple[list[Method], list[str]]:
    """Return the functions of a package's library, and names of Python functions that it lacks."""
    methods, lacking = list[Method](), list[str]()
    if package.transforms:
        return [_transform(package, 0)], lacking
    spec = package.output
    # Mostly, ``predict`` returns labels.
    names = [name for name in OUTPUTS[1:] if name in spec.outputs]
    if spec.predicts_labels and "label" in names:
        names.remove("label")
    for name in (None, *names):
        method = _NAMES[name]
        epilogue = epilogue_of(spec, name, n_outputs=_outputs(package), exported=True)
        if epilogue is None:
            lacking.append(method)
            continue
        if epilogue.labels.size:
            positions = replace(
                epilogue,
                dtype=np.dtype("int64"),
                type=Type.I64,
                lookups=(),
                table=np.empty(0, np.uint8),
            )
            methods.append(Method("predict_class", 0, (positions, positions), _DESCRIPTIONS["predict_class"]))
            if epilogue.lookups or epilogue.dtype.name not in _C_TYPES:
                continue
        if epilogue.dtype.name not in _C_TYPES:
            lacking.append(method)
            continue
        description = _DESCRIPTIONS[method]
        if spec.hangs_on_power(spec.name_of(name)):
            description += " (a power decides, whose last bit may be another than in Python)"
        methods.append(Method(method, 0, (epilogue, epilogue), description))
    if package.transform_predicts and methods:
        methods.append(replace(methods[0], name="transform"))
    if package.transform is not None:
        methods.append(_transform(package.transform, 1))
    reasons = package.views.get("reasons")
    if reasons is not None:
        epilogue = epilogue_of(reasons.output, None, n_outputs=_outputs(reasons), exported=True)
        if epilogue is None:
            lacking.append("contributions")
        else:
            model, text = len(further_of(package)), _DESCRIPTIONS["contributions"]
            methods.append(Method("contributions", model, (epilogue, epilogue), text))
    return methods, lacking


def label_names(package: Package, methods: Sequence[Method]) -> list[list[str]]:
    """Return the labels of each target as texts; empty if no function returns positions of labels."""
    if not any(method.name == "predict_class" for method in methods):
        return []
    return [[_text(label) for label in labels.tolist()] for labels in package.output.classes]


def _text(label: object) -> str:
    return label.decode("utf-8", "surrogateescape") if isinstance(label, bytes) else str(label)


def _outputs(package: Package) -> int:
    """Return the number of scores of a row."""
    return package.kernels[0].signature.outputs


def _transform(package: Package, model: int) -> Method:
    spec = package.output
    narrow, wide = (
        epilogue_of_columns(spec.label_dtype, rows, _outputs(package), spec.keeps_axis) for rows in DTYPES
    )
    return Method("transform", model, (narrow, wide), _DESCRIPTIONS["transform"])
