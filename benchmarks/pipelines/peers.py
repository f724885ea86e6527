"""How each peer takes a fitted pipeline and predicts with it.

Imported in a worker process, in that peer's own environment: only numpy, scikit-learn, pandas and that one
peer may be imported, and only inside the functions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Prepare = Callable[[Any], Any]
Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Job:
    """One pipeline for one peer.

    Attributes
    ----------
    peer
        Its name.
    model, package
        Files: the pickled pipeline, and what hbtvm compiled of it.
    method
        What is called of it.
    threads
        Threads that a call may use.
    """

    peer: str
    model: str
    package: str
    method: str
    threads: int


@dataclass(frozen=True)
class Way:
    """One way to call a peer: what is done before the clock starts, and what is timed."""

    prepare: Prepare
    call: Call


def sklearn(job: Job, sample: Any) -> dict[str, Way]:
    """scikit-learn itself: from a frame."""
    model = pickle.loads(Path(job.model).read_bytes())
    return {"frame": Way(_same, getattr(model, job.method))}


def hbtvm(job: Job, sample: Any) -> dict[str, Way]:
    """hbtvm: from a frame, from arrays, and from a dict."""
    import hbtvm as library

    model = library.load(job.package, threads=job.threads)
    call = getattr(model, job.method)
    return {
        "frame": Way(_same, call),
        "arrays": Way(_numbers_or_table, call),
        "dict": Way(_dict, call),
    }


def onnxruntime(job: Job, sample: Any) -> dict[str, Way]:
    """ONNX Runtime with what sklearn-onnx makes of the pipeline: feeds made from a frame, and ready ones."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        _onnx(pickle.loads(Path(job.model).read_bytes()), sample), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    wanted = names[-1:] if job.method == "predict_proba" else names[:1]
    return {
        "frame": Way(_same, lambda frame: session.run(wanted, _feeds(frame))[0]),
        "arrays": Way(_feeds, lambda feeds: session.run(wanted, feeds)[0]),
        "dict": Way(_dict, lambda row: session.run(wanted, _feeds_of_row(row, sample))[0]),
    }


def hummingbird(job: Job, sample: Any) -> dict[str, Way]:
    """Hummingbird's TorchScript: from an array of numbers."""
    import torch
    from hummingbird.ml import convert

    torch.set_num_threads(job.threads)
    array = sample.to_numpy(np.float32)
    converted = convert(pickle.loads(Path(job.model).read_bytes()), "torch.jit", array)
    call = getattr(converted, job.method)
    return {
        "frame": Way(_same, lambda frame: call(frame.to_numpy(np.float32))),
        "arrays": Way(lambda frame: frame.to_numpy(np.float32), call),
    }


PEERS: dict[str, Callable[[Job, Any], dict[str, Way]]] = {
    "sklearn": sklearn,
    "hbtvm": hbtvm,
    "onnxruntime": onnxruntime,
    "hummingbird": hummingbird,
}
"""By name; each returns its ways to predict."""

PACKAGES = {
    "sklearn": ("scikit-learn",),
    "hbtvm": ("hbtvm",),
    "onnxruntime": ("onnxruntime", "skl2onnx"),
    "hummingbird": ("hummingbird-ml", "torch"),
}
"""Packages of each, whose versions a report states."""


def _same(frame: Any) -> Any:
    return frame


def _numbers_or_table(frame: Any) -> Any:
    """An array where all columns are numbers, else an Arrow table."""
    if all(dtype.kind in "fiu" for dtype in frame.dtypes):
        return frame.to_numpy(np.float64)
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _dict(frame: Any) -> dict[str, Any]:
    """The first row as a service has it."""
    row = frame.iloc[0]
    return {
        name: None if value != value else (value.item() if isinstance(value, np.generic) else value)
        for name, value in row.items()
    }


def _onnx(model: Any, sample: Any) -> bytes:
    """What sklearn-onnx makes of a pipeline, with an input for each column."""
    import skl2onnx
    from skl2onnx.common import data_types

    _register_boosters(skl2onnx)
    kinds = {"f": data_types.FloatTensorType, "i": data_types.Int64TensorType}
    types = [
        (name, kinds.get(dtype.kind, data_types.StringTensorType)([None, 1]))
        for name, dtype in sample.dtypes.items()
    ]
    last = model[-1] if hasattr(model, "steps") else model
    options = {id(last): {"zipmap": False}} if hasattr(last, "predict_proba") else {}
    made = skl2onnx.convert_sklearn(
        model, initial_types=types, options=options, target_opset={"": 18, "ai.onnx.ml": 3}
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


def _feeds(frame: Any) -> dict[str, np.ndarray]:
    """A frame's columns as ONNX Runtime takes them."""
    found = {}
    for name in frame.columns:
        column = frame[name]
        kind = column.dtype.kind
        dtype = np.float32 if kind == "f" else np.int64 if kind == "i" else object
        found[name] = column.to_numpy(dtype).reshape(-1, 1)
    return found


def _feeds_of_row(row: dict[str, Any], sample: Any) -> dict[str, np.ndarray]:
    """A row's values as ONNX Runtime takes them."""
    found = {}
    for name, dtype in sample.dtypes.items():
        kind = np.float32 if dtype.kind == "f" else np.int64 if dtype.kind == "i" else object
        value = row[name]
        found[name] = np.array([[np.nan if value is None and kind is np.float32 else value]], kind)
    return found
