"""Predictions of a model as the runtime makes them of users' rows, with no kernel compiled."""

from __future__ import annotations

from typing import Any

from hbtvm.pipeline import reference
from hbtvm.pipeline.pipeline import Pipeline
from hbtvm.runtime.inputs import Inputs


def predict(pipeline: Pipeline, X: Any, output: Any = None) -> Any:
    """As `Model.predict`; an `InputError` where the rows don't fit."""
    ensemble = pipeline.ensemble
    inputs = Inputs(pipeline.input, ensemble.compare_dtype, ("float32", "float64"))
    rows = inputs.prepare(X)
    inputs.check(rows)
    return pipeline.output.maker(output)(reference.margins(ensemble, rows))
