"""Other ways to score the same model on the same GPU; what is not installed is named and left out.

Each gives two calls: on rows that are on the device already, which need not wait for the result; and from
rows of numpy to a result of numpy. All of them give the same output, base score and link included. They were
written to their libraries' documentation, on a machine without a GPU; on the device ``"cpu"`` they can be
tried without one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.clock import Calls
from hbtvm.frontends import load_model
from hbtvm.graph.outputs.output import Output
from hbtvm.runtime.cuda.rows.libraries import TorchLibrary
from hbtvm.runtime.model import Model

OUTPUTS: dict[str, Output | None] = {"predictions": None, "margins": "raw"}
"""What is computed of a booster: what its ``predict`` returns (probabilities, say), or raw scores."""


Make = Callable[[np.ndarray], Calls]


def peers(
    model: str, path: str, output: str = "predictions", device: str = "cuda"
) -> tuple[dict[str, Make], dict[str, str]]:
    """Return the installed peers by name, and for each of the others why it is missing.

    Parameters
    ----------
    model, path
        ``"lightgbm"`` or ``"xgboost"``, and the model's file.
    output
        One of `OUTPUTS`.
    device
        ``"cuda"``, or ``"cpu"`` to see whether they work.
    """
    found: dict[str, Make] = {}
    left_out: dict[str, str] = {}
    for make in (_forest_inference, _xgboost, _torch):
        try:
            found |= make(model, path, output, device)
        except Exception as error:  # whatever a library that does not fit this machine raises
            name = make.__name__.strip("_")
            left_out[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return found, left_out


def require_arrays() -> None:
    """Check that a library is here whose arrays are rows on the device.

    Raises
    ------
    ImportError
        If there is neither CuPy nor torch, or the latter sees no GPU.
    """
    if _has_cupy():
        return
    try:
        import torch
    except ImportError:
        raise ImportError("rows on the device take CuPy or torch, neither of which is installed") from None
    if not torch.cuda.is_available():
        raise ImportError("rows on the device take CuPy, or a torch that sees the GPU")


def _has_cupy() -> bool:
    return bool(sys.modules.get("cupy") or importlib.util.find_spec("cupy"))


def own_calls(model: Model, X: np.ndarray, output: str) -> Calls:
    """Return hbtvm's calls, on rows of CuPy's or else of torch's (see `require_arrays`)."""
    make = _calls if _has_cupy() else _torch_calls
    rows = make(lambda rows: model.predict(rows, OUTPUTS[output]), X, "cuda")
    # Its own copies, for which it takes rows of numpy.
    return Calls(rows.device, lambda: np.asarray(model.predict(X, OUTPUTS[output])))


def compare(got: np.ndarray, want: np.ndarray) -> dict[str, float]:
    """Check that a peer computes the same model.

    A few rows may reach other leaves where a peer rounds thresholds to float32.

    Returns
    -------
    ``wrong``, the share of rows that differ, and ``off``, the largest difference.

    Raises
    ------
    ValueError
        If more than a hundredth of the rows differ.
    """
    got, want = got.reshape(len(got), -1), want.reshape(len(want), -1)
    if got.shape[1] == 2 * want.shape[1] == 2:
        got = got[:, 1:]  # of two classes' probabilities, the second's
    off = np.abs(got - want)
    wrong = float((~(off <= 1e-3 * max(1.0, float(np.abs(want).max()))).all(axis=1)).mean())
    if not wrong <= 0.01:
        raise ValueError(f"{wrong:.1%} of its scores differ, by up to {off.max():.3g}")
    return {"wrong": wrong, "off": float(off.max())}


def _calls(run: Callable[[Any], Any], X: np.ndarray, device: str) -> Calls:
    """Calls of a function of rows on a device, of CuPy's or of numpy's, to an array there."""
    if device == "cpu":
        return Calls(lambda: run(X), lambda: np.asarray(run(X)))
    import cupy

    resident = cupy.asarray(X)
    return Calls(lambda: run(resident), lambda: np.asarray(cupy.asnumpy(run(cupy.asarray(X)))))


def _torch_calls(run: Callable[[Any], Any], X: np.ndarray, device: str) -> Calls:
    """As `_calls`, with torch's tensors."""
    import torch

    resident = torch.from_numpy(X).to(device)
    return Calls(lambda: run(resident), lambda: np.asarray(run(torch.from_numpy(X).to(device)).cpu()))


def _forest_inference(model: str, path: str, output: str, device: str) -> dict[str, Make]:
    if output != "predictions":
        raise ValueError("its predictions have their link applied; it gives no margins")
    kind = {"lightgbm": "lightgbm", "xgboost": "xgboost_json"}[model]
    try:
        nvforest = import_nvforest()
    except ImportError:
        return _cuml(kind, path, device)

    # In float32, as FIL does by itself, and as rows and leaf values are in hbtvm.
    where = "gpu" if device == "cuda" else "cpu"
    loaded = nvforest.load_model(path, model_type=kind, device=where, precision="single")
    # A classifier's predict would choose a class as well.
    method = "predict_proba" if hasattr(loaded, "predict_proba") else "predict"

    def make(X: np.ndarray) -> Calls:
        tuned = loaded.optimize(data=X, predict_method=method)  # a copy: the given estimator stays unchanged
        return _calls(getattr(tuned, method), X, device)

    return {"nvForest": make}


def import_nvforest() -> Any:
    """Import nvForest, with or without libraft.

    It loads librmm together with libraft, a large library of which it uses nothing; RMM loads librmm alone.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("rmm")
    return importlib.import_module("nvforest")


def _cuml(kind: str, path: str, device: str) -> dict[str, Make]:
    from cuml.fil import ForestInference

    # Unless told that it is a classifier, its predict gives probabilities.
    loaded = ForestInference.load(path, model_type=kind)

    def make(X: np.ndarray) -> Calls:
        loaded.optimize(data=X)
        return _calls(loaded.predict, X, device)

    return {"FIL": make}


def _xgboost(model: str, path: str, output: str, device: str) -> dict[str, Make]:
    if model != "xgboost":
        return {}
    import xgboost

    if device == "cuda":
        if not xgboost.build_info()["USE_CUDA"]:
            raise RuntimeError("xgboost was built without CUDA")
        import cupy  # noqa: F401  # else it is missed only when rows are predicted
    booster = xgboost.Booster(model_file=path)
    booster.set_param({"device": device})
    kind = "margin" if output == "margins" else "value"

    def run(rows: Any) -> Any:
        return booster.inplace_predict(rows, predict_type=kind)

    return {"XGBoost": lambda X: _calls(run, X, device)}


def _torch(model: str, path: str, output: str, device: str) -> dict[str, Make]:
    import torch

    from benchmarks.gpu.torch_forest import TorchForest
    from hbtvm.strategies import make_forest  # takes TVM, which other peers can do without

    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    graph = load_model(path)
    ensemble, finish, arrays = (
        graph.anchor,
        partial(graph.output.compute, OUTPUTS[output]),
        TorchLibrary().arrays,
    )
    forest = TorchForest(make_forest(ensemble, "float32", "float32"), device)
    base = torch.from_numpy(np.array(ensemble.base_score, np.float64)).to(device)

    def maker(run: Callable[[Any], Any]) -> Make:
        # Sums of all trees are rounded to float32, as each peer has them; what follows is hbtvm's own.
        def scored(rows: Any) -> Any:
            return finish(run(rows).to(torch.float64) / ensemble.divisor + base, arrays)

        return lambda X: _torch_calls(scored, X, device)

    return {name: maker(run) for name, run in forest.algorithms.items()}
