"""What the benchmarks share: models, fair timing, tables."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import re
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


@functools.cache
def higgs_like(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, float32, and 0/1 targets that depend on many of their features, with products and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)).astype(np.float32)
    weights = rng.normal(size=features)
    signal = X @ weights + 2 * X[:, 0] * X[:, 1] + 2 * np.sin(3 * X[:, 2]) * X[:, 3]
    return X, (signal + rng.normal(size=rows) > 0).astype(np.int32)


def lightgbm_model(
    *, trees: int = 500, leaves: int = 31, features: int = 28, seed: int = 0, depth: int = -1
) -> Any:
    """Train a LightGBM booster on 50,000 rows of `higgs_like`."""
    import lightgbm

    X, y = higgs_like(50_000, features, seed)
    parameters = {
        "objective": "binary",
        "num_leaves": leaves,
        "max_depth": depth,
        "learning_rate": 0.1,
        "verbose": -1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(X, y), trees)


def catboost_model(*, trees: int = 500, depth: int = 6, features: int = 28, seed: int = 0) -> Any:
    """Train a CatBoost classifier on 50,000 rows of `higgs_like`."""
    import catboost

    X, y = higgs_like(50_000, features, seed)
    model = catboost.CatBoostClassifier(
        iterations=trees, depth=depth, learning_rate=0.1, random_seed=seed, verbose=False,
        allow_writing_files=False,
    )  # fmt: skip
    return model.fit(X, y)


@contextlib.contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold a file's lock, as flock(1) does, for a machine on which others measure too; None: no lock."""
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def side_by_side(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 2.0,
    rounds: int = 11,
    clock: Callable[[], float] = time.perf_counter,
    rest: float = 0.0,
) -> dict[str, float]:
    """Time alternatives interleaved, so that other load on the machine affects all of them alike.

    Parameters
    ----------
    calls
        What to time, by name.
    seconds
        About how long to take for each.
    rounds
        Turns of each.
    clock
        Returns seconds; `time.thread_time` leaves out other load on the machine.
    rest
        Seconds to wait before each turn, and an unmeasured turn before it: the threads of the alternative
        before may spin on, and those of this may have to wake.

    Returns
    -------
    Median seconds per call of each.
    """
    numbers = {}
    for name, call in calls.items():
        time.sleep(rest)
        call()
        start = clock()
        call()
        numbers[name] = max(1, round(seconds / rounds / max(clock() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if rest:
                time.sleep(rest)
                for _ in range(numbers[name]):
                    call()
            start = clock()
            for _ in range(numbers[name]):
                call()
            times[name].append((clock() - start) / numbers[name])
    return {name: statistics.median(values) for name, values in times.items()}


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], second: Collection[str] = ()) -> str:
    """Return a Markdown table with aligned columns; a `|` within a cell is escaped.

    `second`: columns to put behind the first, such as ratios: phones show the first two or three.
    """
    order = sorted(range(len(header)), key=lambda i: 0 if i == 0 else 1 if header[i] in second else 2)
    cells = [[line[i].replace("|", r"\|") for i in order] for line in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return "\n".join(
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def tables(text: str) -> dict[str, list[dict[str, str]]]:
    """Return the first table below each heading of a Markdown page: its rows, by the names of the columns."""
    found: dict[str, list[dict[str, str]]] = {}
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE):
        heading, _, below = section.partition("\n")
        block = re.search(r"(?:^\|.*\n?)+", below, re.MULTILINE)
        if block is not None:
            header, _, *rows = [
                [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
                for line in block[0].splitlines()
            ]
            found[heading] = [dict(zip(header, row, strict=True)) for row in rows]
    return found
