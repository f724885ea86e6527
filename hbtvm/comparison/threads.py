"""Bound the threads of a library's model, and restore them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def limited(model: Any, threads: int) -> Iterator[None]:
    """Let a model's calls use at most a number of threads, until the context ends.

    This covers ``n_jobs`` of the model and its parts, XGBoost's ``nthread``, and the pools of OpenMP and BLAS
    (with threadpoolctl, which scikit-learn installs).
    """
    with contextlib.ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(threads))
        for part in _parts(model, set()):
            if hasattr(part, "n_jobs"):
                stack.callback(setattr, part, "n_jobs", part.n_jobs)
                part.n_jobs = threads
            booster = _booster(part)
            if booster is not None:
                before = json.loads(booster.save_config())["learner"]["generic_param"]["nthread"]
                stack.callback(booster.set_param, {"nthread": before})
                booster.set_param({"nthread": threads})
        yield


def _booster(part: Any) -> Any:
    """Return the XGBoost booster of a part; None if there is none."""
    if type(part).__module__.startswith("xgboost.") and hasattr(part, "save_config"):
        return part
    if hasattr(part, "get_booster"):
        with contextlib.suppress(Exception):  # an unfitted prototype within an ensemble
            return part.get_booster()
    return None


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a model and the models within its attributes."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, type):
        return
    elif hasattr(value, "get_params"):
        yield value
        inner = list(getattr(value, "__dict__", {}).values())
    else:
        if hasattr(value, "save_config"):
            yield value
        return
    for each in inner:
        if not isinstance(each, str | bytes | int | float):
            yield from _parts(each, seen)
