"""scikit-learn's models in ONNX Runtime, by way of sklearn-onnx.

Imported in that peer's environment: its libraries are imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def session(model: Any, sample: Any, method: str, threads: int) -> Callable[[dict[str, np.ndarray]], Any]:
    """A function of feeds that runs a model in a session of its own.

    Parameters
    ----------
    model
        Fitted.
    sample
        Some rows, of the kind that it will get: a frame, a series of texts or an array.
    method
        What is called of it.
    threads
        Within an operator; operators run one after another.
    """
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    made = runtime.InferenceSession(_converted(model, sample), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in made.get_outputs()]
    wanted = names[-1:] if method == "predict_proba" else names[:1]
    return lambda feeds: made.run(wanted, feeds)[0]


def feeds(rows: Any) -> dict[str, np.ndarray]:
    """Rows as ONNX Runtime takes them: a frame by columns, else one array."""
    if isinstance(rows, np.ndarray):
        return {"x": rows}
    if not hasattr(rows, "columns"):
        return {"x": rows.to_numpy(object)}
    found = {}
    for name in rows.columns:
        column = rows[name]
        found[name] = column.to_numpy(_kept(column.dtype)).reshape(-1, 1)
    return found


def feeds_of_row(row: dict[str, Any], sample: Any) -> dict[str, np.ndarray]:
    """A row's values as ONNX Runtime takes them."""
    found = {}
    for name, dtype in sample.dtypes.items():
        kind, value = _kept(dtype), row[name]
        found[name] = np.array([[np.nan if value is None and kind is np.float32 else value]], kind)
    return found


def _kept(dtype: Any) -> Any:
    return np.float32 if dtype.kind == "f" else np.int64 if dtype.kind == "i" else object


def _types(sample: Any) -> list[tuple[str, Any]]:
    """The inputs that a model is converted for."""
    from skl2onnx.common import data_types

    if isinstance(sample, np.ndarray) or not hasattr(sample, "columns"):
        kinds = {"float32": data_types.FloatTensorType, "float64": data_types.DoubleTensorType}
        kind = kinds.get(str(sample.dtype), data_types.StringTensorType)
        return [("x", kind([None, *sample.shape[1:]]))]
    by_kind = {"f": data_types.FloatTensorType, "i": data_types.Int64TensorType}
    return [
        (name, by_kind.get(dtype.kind, data_types.StringTensorType)([None, 1]))
        for name, dtype in sample.dtypes.items()
    ]


def _converted(model: Any, sample: Any) -> bytes:
    """What sklearn-onnx makes of a model, at its fastest."""
    import skl2onnx

    _register_boosters(skl2onnx)
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    options: dict[int, dict[str, Any]] = {}
    if hasattr(steps[-1], "predict_proba"):
        options[id(steps[-1])] = {"zipmap": False}
    for step in steps:
        name = type(step).__name__
        if name in ("CountVectorizer", "TfidfVectorizer"):
            # The default, en_US, is not on every system; the model then does not load.
            options[id(step)] = {"locale": "C.UTF-8"}
        if name.startswith("KNeighbors"):
            # A row takes milliseconds without.
            options.setdefault(id(step), {})["optim"] = "cdist"
    made = skl2onnx.convert_sklearn(
        model, initial_types=_types(sample), options=options, target_opset={"": 18, "ai.onnx.ml": 3}
    )
    return bytes(made.SerializeToString())


def _register_boosters(skl2onnx: Any) -> None:
    """Tell sklearn-onnx of LightGBM's and XGBoost's classifiers, where they are installed."""
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes as shapes

    options = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    try:
        import lightgbm
        from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm

        skl2onnx.update_registered_converter(
            lightgbm.LGBMClassifier, "LightGbmLGBMClassifier", shapes, convert_lightgbm, options=options
        )
        import xgboost
        from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost

        skl2onnx.update_registered_converter(
            xgboost.XGBClassifier, "XGBoostXGBClassifier", shapes, convert_xgboost, options=options
        )
    except ImportError:
        return
