"""Other ways to score the same model on the same GPU; what is not installed is named and left out.

Each gives two calls: on rows that are on the device already, waiting for the result; and from rows of
numpy to a result of numpy. They were written to their libraries' documentation, on a machine without a GPU.
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
    """What is timed: kernel only, and with copies; and raw results to be compared, where it has such."""

    kernel: Callable[[], Any]
    copies: Callable[[], Any]
    raw: Callable[[], np.ndarray] | None = None


Make = Callable[[np.ndarray], Calls]


def peers(model: str, path: str) -> tuple[dict[str, Make], dict[str, str]]:
    """Those that are here, by name, and why the others are not.

    Parameters
    ----------
    model, path
        ``"lightgbm"`` or ``"xgboost"``, and the model's file.
    """
    found: dict[str, Make] = {}
    left_out: dict[str, str] = {}
    for make in (_forest_inference, _xgboost, _torch):
        try:
            found |= make(model, path)
        except Exception as error:  # whatever a library that does not fit this machine raises
            left_out[make.__name__.strip("_")] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return found, left_out


def _forest_inference(model: str, path: str) -> dict[str, Make]:
    import cupy

    kind = {"lightgbm": "lightgbm", "xgboost": "xgboost_json"}[model]
    try:
        import nvforest

        name, loaded = "nvForest", nvforest.load_model(path, model_type=kind, device="gpu")
    except ImportError:
        from cuml.fil import ForestInference

        name, loaded = "FIL", ForestInference.load(path, model_type=kind)

    def make(X: np.ndarray) -> Calls:
        resident = cupy.asarray(X)
        if hasattr(loaded, "optimize"):
            loaded.optimize(batch_size=len(X))

        def kernel() -> None:
            loaded.predict(resident)
            cupy.cuda.Device().synchronize()

        return Calls(kernel, lambda: cupy.asnumpy(loaded.predict(cupy.asarray(X))))

    return {name: make}


def _xgboost(model: str, path: str) -> dict[str, Make]:
    if model != "xgboost":
        return {}
    import cupy
    import xgboost

    booster = xgboost.Booster(model_file=path)
    booster.set_param({"device": "cuda"})

    def make(X: np.ndarray) -> Calls:
        resident = cupy.asarray(X)

        def kernel() -> Any:
            scores = booster.inplace_predict(resident, predict_type="margin")
            cupy.cuda.Device().synchronize()
            return scores

        def copies() -> np.ndarray:
            scores = booster.inplace_predict(cupy.asarray(X), predict_type="margin")
            return np.asarray(cupy.asnumpy(scores))

        return Calls(kernel, copies, copies)

    return {"XGBoost": make}


def _torch(model: str, path: str) -> dict[str, Make]:
    import torch

    from benchmarks.gpu.torch_forest import TorchForest

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    ensemble = load_model(path).ensemble
    forest = TorchForest(make_forest(ensemble, "float32", "float32"))

    def maker(run: Callable[[Any], Any]) -> Make:
        def make(X: np.ndarray) -> Calls:
            resident = torch.from_numpy(X).cuda()

            def kernel() -> None:
                run(resident)
                torch.cuda.synchronize()

            def copies() -> np.ndarray:
                return np.asarray(run(torch.from_numpy(X).cuda()).cpu().numpy())

            return Calls(kernel, copies, lambda: copies() / ensemble.divisor + ensemble.base_score)

        return make

    return {name: maker(run) for name, run in forest.algorithms.items()}
