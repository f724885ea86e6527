"""Other ways to score the same model on the same GPU; what is not installed is named and left out.

Each gives two calls: on rows that are on the device already, waiting for the result; and from rows of
numpy to a result of numpy. They were written to their libraries' documentation, on a machine without a GPU;
on the device ``"cpu"`` they can be tried without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.frontends import load_model
from hbtvm.strategies import make_forest


@dataclass(frozen=True)
class Calls:
    """What is timed: kernel only, and with copies; and what is to be compared.

    Attributes
    ----------
    kernel, copies
        The calls; `copies` gives an array of numpy.
    raw
        Whether that is raw scores, and not what ``predict`` of a booster gives.
    """

    kernel: Callable[[], Any]
    copies: Callable[[], np.ndarray]
    raw: bool


Make = Callable[[np.ndarray], Calls]


def peers(model: str, path: str, device: str = "cuda") -> tuple[dict[str, Make], dict[str, str]]:
    """The installed peers by name, and for each of the others why it is missing.

    Parameters
    ----------
    model, path
        ``"lightgbm"`` or ``"xgboost"``, and the model's file.
    device
        ``"cuda"``, or ``"cpu"`` to see whether they work.
    """
    found: dict[str, Make] = {}
    left_out: dict[str, str] = {}
    for make in (_forest_inference, _xgboost, _torch):
        try:
            found |= make(model, path, device)
        except Exception as error:  # whatever a library that does not fit this machine raises
            left_out[make.__name__.strip("_")] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return found, left_out


def _calls(run: Callable[[Any], Any], X: np.ndarray, device: str, raw: bool) -> Calls:
    """Calls of a function of rows on a device, of CuPy's or of numpy's, to an array there."""
    if device == "cpu":
        return Calls(lambda: run(X), lambda: np.asarray(run(X)), raw)
    import cupy

    resident = cupy.asarray(X)

    def kernel() -> None:
        run(resident)
        cupy.cuda.Device().synchronize()

    return Calls(kernel, lambda: np.asarray(cupy.asnumpy(run(cupy.asarray(X)))), raw)


def _forest_inference(model: str, path: str, device: str) -> dict[str, Make]:
    kind = {"lightgbm": "lightgbm", "xgboost": "xgboost_json"}[model]
    try:
        import nvforest
    except ImportError:
        return _cuml(kind, path, device)

    # In float32, as FIL does by itself, and as rows and leaf values are in hbtvm.
    where = "gpu" if device == "cuda" else "cpu"
    loaded = nvforest.load_model(path, model_type=kind, device=where, precision="single")
    # A classifier's predict would choose a class as well.
    method = "predict_proba" if hasattr(loaded, "predict_proba") else "predict"

    def make(X: np.ndarray) -> Calls:
        tuned = loaded.optimize(data=X, predict_method=method)  # a copy: the given estimator stays unchanged
        return _calls(getattr(tuned, method), X, device, raw=False)

    return {"nvForest": make}


def _cuml(kind: str, path: str, device: str) -> dict[str, Make]:
    from cuml.fil import ForestInference

    # Unless told that it is a classifier, its predict gives probabilities.
    loaded = ForestInference.load(path, model_type=kind)

    def make(X: np.ndarray) -> Calls:
        loaded.optimize(data=X)
        return _calls(loaded.predict, X, device, raw=False)

    return {"FIL": make}


def _xgboost(model: str, path: str, device: str) -> dict[str, Make]:
    if model != "xgboost":
        return {}
    import xgboost

    booster = xgboost.Booster(model_file=path)
    booster.set_param({"device": device})

    def run(rows: Any) -> Any:
        return booster.inplace_predict(rows, predict_type="margin")

    return {"XGBoost": lambda X: _calls(run, X, device, raw=True)}


def _torch(model: str, path: str, device: str) -> dict[str, Make]:
    import torch

    from benchmarks.gpu.torch_forest import TorchForest

    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    ensemble = load_model(path).anchor
    forest = TorchForest(make_forest(ensemble, "float32", "float32"), device)

    def maker(run: Callable[[Any], Any]) -> Make:
        def make(X: np.ndarray) -> Calls:
            resident = torch.from_numpy(X).to(device)

            def kernel() -> None:
                run(resident)
                if device == "cuda":
                    torch.cuda.synchronize()

            def copies() -> np.ndarray:
                sums = run(torch.from_numpy(X).to(device)).cpu().numpy()
                return np.asarray(sums / ensemble.divisor + ensemble.base_score)

            return Calls(kernel, copies, raw=True)

        return make

    return {name: maker(run) for name, run in forest.algorithms.items()}
