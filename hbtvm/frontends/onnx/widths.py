"""The number of columns of an input without a known shape, from the operators that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hbtvm.frontends.onnx.reading import Body, Operation

_ARITHMETIC = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Where"),
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    )
)
_SAME_WIDTH = _ARITHMETIC | frozenset(
    (
        *("Cast", "CastLike", "Identity", "Neg", "Abs", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round"),
        *("Sign", "Relu", "Sigmoid", "Tanh", "Clip", "IsNaN", "Not", "Softmax", "Reciprocal"),
        *("Scaler", "Imputer", "Normalizer", "Binarizer", "LabelEncoder"),
    )
)
"""Operators whose first output has the columns of their input."""


def width_of(name: str, body: Body, constants: Mapping[str, np.ndarray]) -> int | None:
    """Return the number of columns of an input.

    `constants`: the graph's constants, including computed constants.
    It is the number that an operator demands, else the least that has all columns that are read; None if no
    operator determines it.
    """
    same, least = {name}, 0
    for operation in body.operations:
        at = next((i for i, value in enumerate(operation.inputs) if value in same), None)
        if at is None:
            continue
        known = [constants.get(value) for value in operation.inputs]
        wanted = _exact(operation, at, known)
        if wanted:
            return wanted
        least = max(least, _least(operation, at, known))
        if operation.kind in _SAME_WIDTH:
            same |= set(operation.outputs[:1])
    return least or None


def _exact(operation: Operation, at: int, constants: Sequence[np.ndarray | None]) -> int:
    """Return the columns that an operator demands of its input `at`; 0 if it accepts any."""
    find = _DEMANDS.get(operation.kind)
    if find is not None:
        return find(operation)
    others = [value for i, value in enumerate(constants) if i != at and value is not None]
    if operation.kind in _ARITHMETIC:
        return max((value.shape[-1] for value in others if value.ndim and value.shape[-1] > 1), default=0)
    if not others or at:
        # Either input of a loop may be the points.
        return (
            others[0].shape[-1]
            if operation.kind in ("CDist", "Scan") and others and others[0].ndim == 2
            else 0
        )
    match operation.kind:
        case "MatMul" if others[0].ndim in (1, 2):
            return len(others[0])
        case "Gemm" if others[0].ndim == 2 and not operation.attributes.get("transA", 0):
            return int(others[0].shape[1 if operation.attributes.get("transB", 0) else 0])
        case "CDist" | "Scan" if others[0].ndim == 2:
            return int(others[0].shape[1])
        case "Reshape" if others[0].size > 1 and others[0].ravel()[0] in (-1, 0):
            # A row has all extents but the first.
            extents = others[0].ravel()[1:]
            return int(np.prod(extents)) if np.all(extents > 0) else 0
        case "Split" if operation.attributes.get("axis", 0) in (1, -1):
            return int(others[0].sum())
    return 0


def _least(operation: Operation, at: int, constants: Sequence[np.ndarray | None]) -> int:
    """Return the least number of columns that an operator reads."""
    if operation.kind in ("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble"):
        features = operation.attributes.get("nodes_featureids")
        return int(features.max()) + 1 if isinstance(features, np.ndarray) and features.size else 0
    columns = constants[1] if len(constants) > 1 and at == 0 else None
    chosen = operation.kind == "ArrayFeatureExtractor" or (
        operation.kind == "Gather" and operation.attributes.get("axis", 0) in (1, -1)
    )
    if chosen and columns is not None and columns.size and columns.dtype.kind in "iu":
        return max(0, int(columns.max()) + 1, -int(columns.min()))
    return 0


def _size(operation: Operation, key: str) -> int:
    value = operation.attributes.get(key)
    return len(value) if isinstance(value, np.ndarray | list) else 0


def _per_column(*keys: str) -> Callable[[Operation], int]:
    """Return the rule for attributes with a number for each column, or for all."""

    def find(operation: Operation) -> int:
        size = max(_size(operation, key) for key in keys)
        return size if size > 1 else 0

    return find


def _linear_regressor(operation: Operation) -> int:
    return _size(operation, "coefficients") // max(1, int(operation.attributes.get("targets", 1)))


def _linear_classifier(operation: Operation) -> int:
    labels = max(_size(operation, "classlabels_ints"), _size(operation, "classlabels_strings"))
    return _size(operation, "coefficients") // max(1, _size(operation, "intercepts") or labels)


def _svm_regressor(operation: Operation) -> int:
    vectors = int(operation.attributes.get("n_supports", 0))
    return _size(operation, "support_vectors") // vectors if vectors > 0 else _size(operation, "coefficients")


def _svm_classifier(operation: Operation) -> int:
    sizes = operation.attributes.get("vectors_per_class")
    vectors = int(sizes.sum()) if isinstance(sizes, np.ndarray) else 0
    if vectors > 0:
        return _size(operation, "support_vectors") // vectors
    labels = max(_size(operation, "classlabels_ints"), _size(operation, "classlabels_strings"))
    return _size(operation, "coefficients") // max(1, labels)


_DEMANDS: Mapping[str, Callable[[Operation], int]] = {
    "Scaler": _per_column("offset", "scale"),
    "Imputer": _per_column("imputed_value_floats", "imputed_value_int64s"),
    "LinearRegressor": _linear_regressor,
    "LinearClassifier": _linear_classifier,
    "SVMRegressor": _svm_regressor,
    "SVMClassifier": _svm_classifier,
}
