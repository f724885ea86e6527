"""A model of Spark ML, called with hbtvm's rows in a local session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_COLUMNS = {"predict_proba": "probabilityCol", "decision_function": "rawPredictionCol"}
"""Parameters that name a model's columns, by methods of hbtvm's models."""


def load(path: str) -> Any:
    """Load a saved model in a local session."""
    from pyspark.ml.util import DefaultParamsReader

    return DefaultParamsReader.loadParamsInstance(Path(path).resolve().as_uri(), _session())


def calls(model: Any) -> Mapping[str, Callable[[Any], np.ndarray]]:
    """Return the outputs of a model by hbtvm's names of methods."""
    stages = _stages(model)
    predictor = next((stage for stage in reversed(stages) if stage.hasParam("predictionCol")), None)
    if predictor is None:
        return {"transform": partial(_column, model, _named(stages[-1], "outputCol"))}
    prediction = _named(predictor, "predictionCol")
    behind = stages[stages.index(predictor) + 1 :]
    texts = [stage for stage in behind if type(stage).__name__ == "IndexToString"]
    label = next((stage for stage in texts if _named(stage, "inputCol") == prediction), None)
    result = {"predict": partial(_column, model, _named(label, "outputCol") if label else prediction)}
    for method, parameter in _COLUMNS.items():
        if predictor.hasParam(parameter) and _named(predictor, parameter):
            result[method] = partial(_column, model, _named(predictor, parameter))
    return result


def _session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def _stages(model: Any) -> list[Any]:
    if not hasattr(model, "stages"):
        return [model]
    return [stage for inner in model.stages for stage in _stages(inner)]


def _named(stage: Any, parameter: str) -> str:
    return str(stage.getOrDefault(parameter))


def _column(model: Any, name: str, X: Any) -> np.ndarray:
    """Return a column of a model's output for rows."""
    rows = model.transform(_frame(model, X)).select(name).collect()
    return np.array([value.toArray() if hasattr(value, "toArray") else value for (value,) in rows])


def _frame(model: Any, X: Any) -> Any:
    """Return rows as a frame of Spark: columns by name, or a column of vectors."""
    from pyspark.ml.linalg import Vectors

    if hasattr(X, "columns"):
        columns = [_plain(list(X[name])) for name in X.columns]
        return _session().createDataFrame(list(zip(*columns, strict=True)), list(X.columns))
    first = _stages(model)[0]
    name = next(p for p in ("featuresCol", "inputCol") if first.hasParam(p) and first.isDefined(p))
    vectors = [(Vectors.dense(row),) for row in np.asarray(X, np.float64).tolist()]
    return _session().createDataFrame(vectors, [_named(first, name)])


def _plain(values: list[Any]) -> list[Any]:
    """Return a column's values as Python's; missing texts are null."""
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(isinstance(value, str) for value in values):
        return [value if isinstance(value, str) else None for value in values]
    return values
