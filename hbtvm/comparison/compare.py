"""Compare a package with its library: every output that both have, and times of calls in turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hbtvm.comparison.differences import agreement, ties_of
from hbtvm.comparison.library import METHODS, Library, Live
from hbtvm.comparison.process import TIMEOUT, Remote
from hbtvm.comparison.result import Agreement, Comparison, Timing
from hbtvm.errors import HbtvmError, InputError

if TYPE_CHECKING:
    from hbtvm.runtime.model import Model
    from hbtvm.runtime.package.file import Package

SIZES = (1, 100)
"""Rows of timed calls, beside all rows."""

SECONDS = 1.0  # approximate seconds of timing for each number of rows
_TURNS = 9
_TOLERANCE, _EXACT = 1e-5, 1e-12
_HALF_UNIT = 2.0**-24  # XGBoost's rounding error for each tree that it adds in float32


def compare(
    model: Model,
    theirs: Any,
    X: Any,
    *,
    trust: bool = False,
    seconds: float | None = None,
    timeout: float = TIMEOUT,
    default: Model | None = None,
) -> Comparison:
    """Compare a package with a model object, or with a model file in a process of its own.

    Parameters and errors are those of `hbtvm.runtime.model.Model.compare`, and:

    `seconds`: approximate seconds of timing for each number of rows, `SECONDS` by default.
    `timeout`: seconds of a call of the library after which its process is killed.
    `default`: the model with default schedules, whose main output and times are compared, too.
    """
    library: Library
    if isinstance(theirs, str | os.PathLike):
        library = Remote(os.fspath(theirs), outputs_of(model), model.threads, trust=trust, timeout=timeout)
    else:
        library = Live(theirs, outputs_of(model), model.threads)
    try:
        return _against(model, library, X, SECONDS if seconds is None else seconds, default)
    finally:
        library.close()


def _against(
    model: Model, library: Library, X: Any, seconds: float, default: Model | None = None
) -> Comparison:
    """Compare a package with an opened library.

    Raises `InputError` if either refuses the rows in the first output. Raises `HbtvmError` if the library's
    process crashes or hangs.
    """
    X = [X] if isinstance(X, dict) else X
    count = X.shape[0] if hasattr(X, "shape") else len(X)
    if not count:
        raise InputError("there are no rows to compare.")
    calls = _calls(model)
    tolerance = _tolerance(model.package)
    library.take(X)
    main, *others = library.outputs
    expected = {main: library.result(main)}
    got = {main: calls[main](X)}
    problems: dict[str, str] = {}
    for output in others:
        try:
            expected[output] = library.result(output)
            got[output] = calls[output](X)
        except HbtvmError as error:
            problems[output] = str(error)
    ties = None
    for name in (METHODS["proba"], METHODS["decision"]):
        if ties is None and name in expected:
            ties = ties_of(expected[name], tolerance)
    outputs = [
        Agreement(output, count, 0, problem=problems[output])
        if output in problems
        else agreement(output, expected[output], got[output], tolerance, ties)
        for output in library.outputs
    ]
    timed = [calls[main]]
    if default is not None:
        timed.append(_calls(default)[main])
        name = f"{main} by default"
        outputs.append(agreement(name, expected[main], timed[1](X), tolerance, ties))
    sizes = [*(size for size in SIZES if size < count), count]
    timings = [_timed(library, main, timed, X[:rows], rows, seconds) for rows in sizes]
    return Comparison(library.title, model.threads, tolerance, tuple(timings), tuple(outputs))


def outputs_of(model: Model) -> tuple[str, ...]:
    """Return the names of a model's outputs, the main one first.

    Raises `InputError` for a recursive model, which has no library.
    """
    return tuple(_calls(model))


def _calls(model: Model) -> dict[str, Callable[[Any], Any]]:
    package = model.package
    if package.recursion is not None:
        raise InputError("a recursive model has no library to compare with.")
    calls: dict[str, Callable[[Any], Any]] = {} if package.transforms else {"predict": model.predict}
    calls |= {METHODS[o]: partial(model.predict, output=o) for o in package.output.outputs if o in METHODS}
    if model.scores is not None:
        calls[METHODS["score"]] = model.score_samples
    if package.transforms or model.beside is not None or package.transform_predicts:
        calls["transform"] = model.transform
    if "raw" in package.output.outputs:
        calls["raw"] = partial(model.predict, output="raw")
    # The main output comes first.
    first = "transform" if package.transforms else "predict"
    return {first: calls.pop(first), **calls}


def _tolerance(package: Package) -> float:
    """Return the largest relative difference that the documentation allows (*What exact means*)."""
    trees = package.forest.get("trees", 0)
    if package.library == "xgboost":
        return float(max(_TOLERANCE, trees * _HALF_UNIT))
    tables = (table for kernel in package.kernels for table in kernel.signature.tables)
    doubles = trees and any(table.name == "value" and table.dtype == "float64" for table in tables)
    return _EXACT if doubles and package.library in ("scikit-learn", "lightgbm", "catboost") else _TOLERANCE


def _timed(
    library: Library, output: str, calls: Sequence[Callable[[Any], Any]], X: Any, rows: int, seconds: float
) -> Timing:
    """Return median times of a call; library and packages take turns, so that other load affects all.

    `calls`: of the package and, perhaps, of the package with default schedules.
    """

    def timer(call: Callable[[Any], Any]) -> Callable[[int], float]:
        def mean(number: int) -> float:
            start = time.perf_counter()
            for _ in range(number):
                call(X)
            return (time.perf_counter() - start) / number

        return mean

    ours = [timer(call) for call in calls]
    timers: list[Callable[[int], float]] = [partial(library.seconds, output, rows), *ours]
    firsts = [library.prepare(output, rows), *(min(mean(1), mean(1)) for mean in ours)]
    turn = seconds / _TURNS / len(timers)
    numbers = [max(1, round(turn / max(first, 1e-7))) for first in firsts]
    times: list[list[float]] = [[] for _ in timers]
    end = time.perf_counter() + seconds
    while len(times[0]) < _TURNS and (not times[0] or time.perf_counter() < end):
        for mean, number, known in zip(timers, numbers, times, strict=True):
            known.append(mean(number))
    return Timing(rows, *map(statistics.median, times))
