"""Time whole calls of a model on random rows: an array, a data frame, and one row as a dict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.steps import Encode
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.feeds.file_columns import steps_of
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.calls import CallTimes

_SECONDS = 0.03  # time for the calls of one size and container, but for the last call
_SLOW = 0.5  # seconds of a first call from which it is not repeated
_CELLS = 1 << 24  # most numbers of a batch
_TEXT = "the quick brown fox jumps over the lazy dog"

Batches = Mapping[int, Mapping[str, Any]]
"""By rows of a call: the rows in each container."""


def add_call_times(model: Model, batches: Batches | None = None) -> None:
    """Time calls of each batch size of a model, and add the times to its package.

    Does nothing if this machine can't run the package.

    `batches`: the rows; by default, random rows. A recursive model has no default.
    """
    package = model.package
    if not on_gpu(package.target) and missing_features(package.target):
        return
    if batches is None:
        sizes = sorted({kernel.rows for kernel in package.kernels})
        batches = {} if package.recursion is not None else {rows: _rows(model, rows) for rows in sizes}
    call = model.transform if package.transforms else model.predict
    calls = []
    for rows, containers in batches.items():
        times = {kind: _median(call, X) for kind, X in containers.items()}
        known = {kind: seconds for kind, seconds in times.items() if seconds is not None}
        if known:
            calls.append(CallTimes(rows, known))
    model.package = replace(package, calls=tuple(calls))


def _median(call: Callable[[Any], Any], X: Any) -> float | None:
    """Return the median seconds of a call; None if it fails."""
    times: list[float] = []
    try:
        start = time.perf_counter()
        call(X)
        end = time.perf_counter() + _SECONDS
        if end - start > _SLOW:
            return end - start - _SECONDS
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call(X)
            times.append(time.perf_counter() - start)
    except Exception:  # random rows may be refused, and a tuned model must not be lost to that
        return None
    return statistics.median(times)


def _rows(model: Model, rows: int) -> Mapping[str, Any]:
    """Return random rows; none if that fails."""
    try:
        return random_rows(model, rows)
    except Exception:  # as in `_median`
        return {}


def random_rows(model: Model, rows: int, seed: int = 0) -> dict[str, Any]:
    """Return random rows for a model, by container.

    ``"array"``: float64, or object where columns hold text. ``"frame"``: a pandas frame, if pandas is
    installed and the model has column names. ``"dict"``: for one row of such a model. Numbers are between 0
    and 1, categories those of training.
    """
    spec, reader = model.package.input, model.pipeline
    if rows * spec.n_features > _CELLS:
        return {}
    rng = np.random.default_rng(seed)
    known: dict[int, list[Any]] = {i: list(values) for i, values in spec.categories.items() if values}
    texts: set[int] = set()
    if reader is not None:
        texts = set(reader.plan.text_raws)
        for raw, step in steps_of(reader.feeds):
            if isinstance(step, Encode):
                known[raw] = [value for value in step.categories if value is not None and value == value]
            elif isinstance(step, HashText):
                known[raw] = ["red", "green", "blue"]
    # Arrays for LightGBM and XGBoost hold codes.
    coded = reader is None and not spec.numbers_are_categories
    columns: list[np.ndarray] = []
    shown: list[Any] = []
    for i in range(spec.n_features):
        values = known.get(i)
        if i in texts:
            column = np.full(rows, _TEXT, object)
            frame_column: Any = column
        elif values:
            codes = rng.integers(0, len(values), rows)
            kind = None if all(type(value) in (int, float) for value in values) else object
            picked = np.array(values, kind)[codes]
            column = codes.astype(np.float64) if coded else picked
            frame_column = (codes, values) if reader is None else picked
        else:
            column = frame_column = rng.random(rows)
        columns.append(column)
        shown.append(frame_column)
    if spec.rows_are_values:
        return {"array": columns[0]}
    mixed = any(column.dtype == object for column in columns)
    containers: dict[str, Any] = {
        "array": np.stack([column.astype(object if mixed else np.float64) for column in columns], axis=1)
    }
    if spec.feature_names is not None:
        named = dict(zip(spec.feature_names, shown, strict=True))
        frame = _frame(named)
        if frame is not None:
            containers["frame"] = frame
        if rows == 1:
            containers["dict"] = {name: _first(column) for name, column in named.items()}
    return containers


def _frame(columns: Mapping[str, Any]) -> Any:
    """Return a frame of pandas; None without pandas. Codes with their categories become a categorical."""
    try:
        import pandas as pd
    except ImportError:
        return None
    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(*column) if isinstance(column, tuple) else column
            for name, column in columns.items()
        }
    )


def _first(column: Any) -> Any:
    """Return the first value of a column as a Python object."""
    if isinstance(column, tuple):
        codes, values = column
        return values[codes[0]]
    return column[:1].tolist()[0]
