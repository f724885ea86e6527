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

from benchmarks.pipelines import onnx

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
    case, dtype
        For peers that fit an operator themselves: which, and the type of its rows.
    """

    peer: str
    model: str
    package: str
    method: str
    threads: int
    case: str = ""
    dtype: str = "float32"


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
    ways = {"frame": Way(_same, call), "arrays": Way(_numbers_or_table, call)}
    return ways | {"dict": Way(_dict, call)} if hasattr(sample, "columns") else ways


def onnxruntime(job: Job, sample: Any) -> dict[str, Way]:
    """ONNX Runtime with what sklearn-onnx makes of the pipeline: feeds made from a frame, and ready ones."""
    run = onnx.session(pickle.loads(Path(job.model).read_bytes()), sample, job.method, job.threads)
    ways = {"frame": Way(_same, lambda frame: run(onnx.feeds(frame))), "arrays": Way(onnx.feeds, run)}
    if hasattr(sample, "columns"):
        ways["dict"] = Way(_dict, lambda row: run(onnx.feeds_of_row(row, sample)))
    return ways


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
    """An array where all columns are numbers, else an Arrow table; of a series of texts an Arrow array."""
    if not hasattr(frame, "columns"):
        import pyarrow

        return pyarrow.array(frame)
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
