"""How each peer takes a fitted operator and computes with it, rows ready as arrays.

Imported in a worker process, in that peer's own environment: only numpy, scikit-learn and that one peer may
be imported, and only inside the functions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pipelines import onnx
from benchmarks.pipelines.peers import PACKAGES as PIPELINE_PACKAGES
from benchmarks.pipelines.peers import Job, Way


def sklearn(job: Job, sample: Any) -> dict[str, Way]:
    """The operator itself."""
    return {"arrays": Way(_same, getattr(_model(job), job.method))}


def onedal(job: Job, sample: Any) -> dict[str, Way]:
    """scikit-learn-intelex's class in place of the operator's, fitted on the same rows.

    Raises
    ------
    ValueError
        If it has none for the operator.
    """
    import daal4py
    from sklearnex import patch_sklearn

    daal4py.daalinit(job.threads)
    patch_sklearn(verbose=False)
    from benchmarks.operators.cases import cases

    model = cases()[job.case].fit(job.dtype)
    if not type(model).__module__.startswith(("sklearnex", "daal4py")):
        raise ValueError(NOT_THERE)
    return {"arrays": Way(_same, getattr(model, job.method))}


NOT_THERE = "not offered"
"""What `onedal` raises where scikit-learn-intelex leaves an operator as it is."""


def onnxruntime(job: Job, sample: Any) -> dict[str, Way]:
    """ONNX Runtime with what sklearn-onnx makes of the operator, feeds ready."""
    return {"arrays": Way(onnx.feeds, onnx.session(_model(job), sample, job.method, job.threads))}


def hummingbird(job: Job, sample: Any) -> dict[str, Way]:
    """Hummingbird's TorchScript."""
    import torch
    from hummingbird.ml import constants, convert
    from hummingbird.ml.containers.sklearn import pytorch_containers

    torch.set_num_threads(job.threads)
    # Else it fails where an operator has no parameters.
    pytorch_containers.get_device = lambda model: torch.device("cpu")
    model, extra = _model(job), {constants.N_THREADS: job.threads}
    if "KNeighbors" in type(model).__name__:
        return {"arrays": _by_batch(model, job.method, extra)}
    call = getattr(convert(model, "torch.jit", _letters(sample), extra_config=extra), job.method)
    return {"arrays": Way(_letters, call)}


def _by_batch(model: Any, method: str, extra: dict[str, Any]) -> Way:
    """A conversion for each size of batches, as Hummingbird's neighbours need it."""
    from hummingbird.ml import constants, convert

    converted: dict[int, Any] = {}

    def prepare(rows: Any) -> Any:
        if len(rows) not in converted:
            more = {**extra, constants.BATCH_SIZE: len(rows)}
            converted[len(rows)] = convert(model, "torch.jit", rows.copy(), extra_config=more)
        return rows

    return Way(prepare, lambda rows: getattr(converted[len(rows)], method)(rows))


def hbtvm(job: Job, sample: Any) -> dict[str, Way]:
    """hbtvm, from arrays; from Arrow's where they hold strings."""
    import hbtvm as library

    model = library.load(job.package, threads=job.threads)
    call = getattr(model, job.method)
    ways = {"arrays": Way(_same, call)}
    # A hasher's row is a list of strings, no row of columns.
    strings = sample.dtype == object and model.package.model != "FeatureHasher"
    return ways | {"arrow": Way(_arrow, call)} if strings else ways


PEERS: dict[str, Callable[[Job, Any], dict[str, Way]]] = {
    "sklearn": sklearn,
    "onnxruntime": onnxruntime,
    "hummingbird": hummingbird,
    "onedal": onedal,
    "hbtvm": hbtvm,
}
"""By name; each returns its ways to compute."""

PACKAGES = {**PIPELINE_PACKAGES, "onedal": ("scikit-learn-intelex",)}
"""Packages of each, whose versions a report states."""


def _model(job: Job) -> Any:
    return pickle.loads(Path(job.model).read_bytes())


def _same(rows: Any) -> Any:
    return rows


def _letters(rows: Any) -> Any:
    """Strings as Hummingbird takes them: of fixed width, in columns."""
    if rows.dtype != object:
        return rows
    return rows.astype("U") if rows.ndim > 1 else rows.astype("U").reshape(-1, 1)


def _arrow(rows: np.ndarray) -> Any:
    """Strings in Arrow's memory: a table of columns, or one array."""
    import pyarrow

    if rows.ndim == 1:
        return pyarrow.array(rows, pyarrow.string())
    names = [str(at) for at in range(rows.shape[1])]
    return pyarrow.table([pyarrow.array(one, pyarrow.string()) for one in rows.T], names=names)
