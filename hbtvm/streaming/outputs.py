"""Predictions as tables with column names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from hbtvm.graph.outputs.output import OutputSpec


def column_names(spec: OutputSpec, output: str | None, shape: Sequence[int]) -> list[str]:
    """Name the columns of predictions.

    `spec`: the model's output.
    `output`: the requested output; None for that of the library's ``predict``.
    `shape`: shape of the predictions, ``(n,)`` or ``(n, columns)``.
    Returns ``label`` or ``prediction``, the classes for probabilities (prefixed by the target's number if
    there are several), else the output's name; numbered if there are several columns.
    """
    columns = shape[1] if len(shape) > 1 else 1
    if output == "proba":
        targets = [[str(name) for name in names.tolist()] for names in spec.classes]
        names = (
            [f"{i}_{name}" for i, target in enumerate(targets) for name in target]
            if len(targets) > 1
            else [name for target in targets for name in target]
        )
        return names if len(names) == columns else [str(i) for i in range(columns)]
    name = output or ("label" if spec.predicts_labels else "prediction")
    if name != "raw" and (len(shape) == 1 or (columns == 1 and name == "label")):
        return [name]
    return [f"{name}_{i}" for i in range(columns)]


def table_of(predicted: Any, spec: OutputSpec) -> np.ndarray:
    """Return predictions as one array, with targets side by side and texts of one width."""
    import numpy as np

    if isinstance(predicted, list):  # probabilities of several targets
        return np.concatenate(predicted, axis=1)
    if not isinstance(predicted, np.ndarray):  # sparse rows
        predicted = predicted.toarray()
    values: np.ndarray = predicted
    if values.dtype == object:
        classes = [label for labels in spec.classes for label in labels.tolist()]
        if all(isinstance(label, str) for label in classes):
            return values.astype(f"U{max(map(len, classes))}")
    return values
