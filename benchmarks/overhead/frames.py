"""Time small frames of pandas, each call alone: ``python -m benchmarks.overhead.frames``.

Prints medians in microseconds: calls one after the other (warm), and calls after 10 ms of other work (cold),
which evicts their code and data from the caches.

- models of the mixed frame `benchmarks.pipelines.data.adult`: slices of a frame, new frames, and dicts;
- the compiled part of a pipeline behind a Python step (``python_steps="keep"``): on the step's results, and
  on arrays of the same numbers.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import markdown
from benchmarks.pipelines import training
from benchmarks.pipelines.data import adult

WARM, COLD = 1500, 120  # calls
BLOCKS = 100  # different blocks of rows
SECONDS = 0.010  # of other work
MODELS = {  # of `adult`; those of trees score single rows only
    "LogisticRegression": training.logistic,
    "LightGBM": training.lightgbm,
    "XGBoost": training.xgboost,
    "RandomForest": training.forest,
}


def main() -> int:
    """Measure and print; returns the exit status."""
    rows = [*of_adult(), *of_steps()]
    print(markdown(["model", "rows", "container", "warm", "cold"], rows))
    return 0


def of_adult() -> Iterator[tuple[str, ...]]:
    """Yield times of pipelines of numbers and texts."""
    import pandas as pd

    frame = adult(BLOCKS * 100)
    for name, last in MODELS.items():
        sizes = [1, 100] if last is training.logistic else [1]
        model = hbtvm.compile(training.on_adult(last), batch_sizes=sizes, threads=1)
        for n in sizes:
            blocks = [frame.iloc[i * n : (i + 1) * n] for i in range(BLOCKS)]
            dicts: list[Any] = [block.to_dict("records") for block in blocks]
            containers: dict[str, Callable[[int], Any]] = {
                "slice of a frame": blocks.__getitem__,
                "new frame": partial(applied, pd.DataFrame, dicts),
                "dicts": dicts.__getitem__,
            }
            for title, rows in containers.items():
                yield f"adult, {name}", str(n), title, *both(model.predict, rows)


def of_steps() -> Iterator[tuple[str, ...]]:
    """Yield times of LogisticRegression behind a function that returns frames, apart from the function's."""
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(BLOCKS * 100, 8)), columns=list("abcdefgh"))
    functions: dict[str, Callable[[Any], Any]] = {
        "assign": lambda X: X.assign(r=X["a"].to_numpy() / 3),
        "new frame": lambda X: pd.DataFrame({"r": X["a"].to_numpy() / 3, "q": X["b"].to_numpy()}),
        "to_numpy": lambda X: X.to_numpy(),
    }
    for title, function in functions.items():
        steps = make_pipeline(FunctionTransformer(function), StandardScaler(), LogisticRegression())
        model = hbtvm.compile(
            steps.fit(frame, frame["a"] > 0), python_steps="keep", batch_sizes=[1, 100], threads=1
        )
        last = model._parts[-1]
        for n in (1, 100):
            blocks = [frame.iloc[i * n : (i + 1) * n] for i in range(BLOCKS)]
            arrays = [np.ascontiguousarray(function(block)) for block in blocks]
            name = f"behind {title}"
            yield name, str(n), "result", *both(last.predict, partial(applied, function, blocks))
            yield name, str(n), "array", *both(last.predict, arrays.__getitem__)


def applied(function: Callable[[Any], Any], blocks: Sequence[Any], i: int) -> Any:
    """Return a function's result for a block."""
    return function(blocks[i])


def both(call: Callable[[Any], Any], rows: Callable[[int], Any]) -> Sequence[str]:
    """Return the medians of warm and cold calls, in words."""
    return [f"{median(call, rows, cold) * 1e6:.1f} µs" for cold in (False, True)]


def median(call: Callable[[Any], Any], rows: Callable[[int], Any], cold: bool) -> float:
    """Return the median of seconds of calls; `rows` returns a block."""
    times = []
    for i in range(COLD if cold else WARM):
        block = rows(i % BLOCKS)
        if cold:
            work()
        start = time.perf_counter()
        call(block)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def work() -> None:
    """Do other work: sort an array that fills the caches, and create objects."""
    end = time.perf_counter() + SECONDS
    values = np.random.default_rng(0).random(300_000)
    while time.perf_counter() < end:
        values.sort()
        values = values[::-1].copy()
        sum(range(2000))
        {str(i): i for i in range(500)}


if __name__ == "__main__":
    sys.exit(main())
