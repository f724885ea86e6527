"""Timing of a package against the library that trained its model, in turns on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.candidates.samples import sample_rows
from hbtvm.errors import InputError
from hbtvm.frontends import load_model
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph
from hbtvm.graph.passes.in_kernel import in_kernel
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import anchor_facts
from hbtvm.runtime.package.summary import anchor_words

Call = Callable[[Any], Any]

ROUNDS = 9
_PLAIN = (".txt", ".json", ".ubj")  # model files that are not pickles
SECONDS = 1.0  # approximate seconds of timing per alternative


@dataclass(frozen=True)
class Speed:
    """Times for one number of rows."""

    rows: int  # rows in a call
    library: float  # median seconds per call, with the library's fastest number of threads
    package: float  # median seconds per call
    # Largest difference of the two outputs, relative to the library's largest; None without a common numeric
    # output
    difference: float | None
    compared: str = "predictions"  # the output that was compared


def compare(model: Model, path: Path, *, trust: bool = False) -> list[Speed]:
    """Time a package and its library for each batch size for which the package was tuned.

    Raises `InputError` if the package was made from another model, or a pickle is not trusted. Raises
    `ModelError` if the model file cannot be read.
    """
    if not trust and path.suffix.lower() not in _PLAIN:
        # hbtvm reads pickles without running them, but the library can't.
        raise InputError(
            f"{path}: timing the library requires loading this pickle, which can run any program; "
            "if you trust the file, pass trust=True (on the command line: --trust)"
        )
    graph = load_model(path)
    if model.package.target.get("kind") != "cuda":
        graph = in_kernel(graph)
    _same_model(graph, model)
    calls = _library(path, model.threads)
    sizes = sorted({kernel.rows for kernel in model.package.kernels})
    if graph.feeds or isinstance(graph.anchor, Columns):
        raise InputError(f"{path}: only single models are timed against their library, not pipelines.")
    sample = _sample(graph, max(sizes))
    # Not every library accepts infinite or missing values.
    sample = np.nan_to_num(sample, nan=0.0, posinf=0.0, neginf=0.0)
    results = []
    for rows in sizes:
        X = np.ascontiguousarray(sample[:rows])
        times = in_turns({**calls, "package": model.predict}, X)
        off, compared = largest_difference(next(iter(calls.values())), model, X)
        library = min(times[name] for name in calls)
        results.append(Speed(rows, library, times["package"], off, compared))
    return results


def _sample(graph: Graph, rows: int) -> np.ndarray:
    """Return random rows for a bare model, float32, shape (rows, n_features)."""
    if graph.stages:
        rng = np.random.default_rng(0)
        return rng.normal(size=(rows, graph.input.n_features)).astype(np.float32)
    assert not isinstance(graph.anchor, Columns)
    return sample_rows(graph.anchor, rows, "float32")


def largest_difference(predict: Call, model: Model, X: np.ndarray) -> tuple[float | None, str]:
    """Compare the numeric outputs of a library and a package, relative to the library's largest.

    Classifiers are compared by probabilities and isolation forests by scores, since labels hide small
    differences. Returns the difference, None without a common numeric output; and the compared output.
    """
    method = getattr(predict, "func", predict)  # unwrap a partial
    estimator = getattr(method, "__self__", None)
    for output, name in (("proba", "predict_proba"), ("score", "score_samples")):
        theirs = getattr(estimator, name, None)
        if output in model.package.output.outputs and theirs is not None:
            compared = "probabilities" if output == "proba" else "scores"
            return _relative(theirs(X), model.predict(X, output)), compared
    return _relative(predict(X), model.predict(X)), "predictions"


def _relative(expected: Any, got: Any) -> float | None:
    """Return the largest relative difference of arrays, or of lists of arrays (several targets)."""
    if isinstance(expected, list):
        pairs = [_relative(first, other) for first, other in zip(expected, got, strict=True)]
        known = [off for off in pairs if off is not None]
        return max(known, default=None)
    expected, got = np.asarray(expected), np.asarray(got)
    if expected.dtype.kind != "f":
        return None
    # Results may have either precision; compute the difference in float64.
    off = np.max(np.abs(got.astype(np.float64) - expected.astype(np.float64)))
    return float(off / max(float(np.max(np.abs(expected))), 1e-300))


def in_turns(calls: Mapping[str, Call], X: Any) -> dict[str, float]:
    """Return median seconds per call; calls take turns, so that other load affects all alike."""
    numbers = {}
    for name, call in calls.items():
        call(X)
        start = time.perf_counter()
        call(X)
        numbers[name] = max(1, round(SECONDS / ROUNDS / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(numbers[name]):
                call(X)
            times[name].append((time.perf_counter() - start) / numbers[name])
    return {name: statistics.median(values) for name, values in times.items()}


def _same_model(graph: Graph, model: Model) -> None:
    package = model.package
    theirs, ours = anchor_facts(graph.anchor), package.forest
    # Trees may have dropped one of two outputs (`hbtvm.graph.networks.complement`), but no nodes.
    names = ("operator", "trees", "nodes", "numbers", "categories", "entries", "operators")
    same = all(theirs.get(name) == ours.get(name) for name in names)
    before = [anchor_facts(stage.anchor)["operator"] for stage in graph.stages]
    same &= before == [stage.facts["operator"] for stage in package.stages]
    if graph.input.n_features != package.input.n_features or not same:
        raise InputError(
            f"the package belongs to another model: it has {_size(ours)}, the model {_size(theirs)}"
        )


def _size(facts: Mapping[str, Any]) -> str:
    """Describe the size of a forest or a linear model."""
    if "trees" in facts:
        return f"{facts['trees']} trees with {facts['nodes']} nodes"
    return ", ".join(anchor_words(facts).values())


def _library(path: Path, threads: int) -> dict[str, Call]:
    """Return the library's predict with one thread and with the package's number of threads."""
    return {str(n): _with_threads(path, n) for n in {1, threads}}


def _with_threads(path: Path, threads: int) -> Call:
    suffix = path.suffix.lower()
    if suffix == ".txt":
        import lightgbm

        return partial(lightgbm.Booster(model_file=str(path)).predict, num_threads=threads)
    if suffix in _PLAIN:
        import xgboost

        return _xgboost(xgboost.Booster(model_file=str(path)), threads)
    import joblib

    model: Any = joblib.load(path)
    library, name = type(model).__module__.partition(".")[0], type(model).__name__
    if library == "lightgbm":
        return partial(model.predict, num_threads=threads)
    if library == "xgboost" and name == "Booster":
        return _xgboost(model, threads)
    if hasattr(model, "n_jobs"):
        model.n_jobs = threads
    predict: Call = model.predict
    return predict


def _xgboost(booster: Any, threads: int) -> Call:
    booster.set_param({"nthread": threads})
    predict: Call = booster.inplace_predict
    return predict
