"""CatBoost's models of categories against CatBoost itself, from a pandas frame, in turns.

    python -m benchmarks.categories                    # 1, 100 and 10,000 rows, one thread
    python -m benchmarks.categories --threads 2 --kind object
    python -m benchmarks.categories --small            # a model of few counters

The model reads 8 columns of categories (3 to 2,000 of each) and 8 of numbers: 200 trees of 6 levels over some
340 counters of 250 combinations.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hbtvm
from benchmarks.common import duration, markdown, side_by_side

CATEGORIES = (3, 5, 8, 12, 30, 100, 400, 2000)
NAMES = [f"c{i}" for i in range(len(CATEGORIES))]
KINDS: dict[str, Any] = {"str": "str", "object": object, "category": "category"}


def data(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows, and a number that depends on single categories, on pairs, and on numbers."""
    rng = np.random.default_rng(seed)
    codes = [np.minimum((rng.pareto(1.2, n) * k / 6).astype(int), k - 1) for k in CATEGORIES]
    columns: dict[str, Any] = {
        name: np.array([f"{name}-{code}" for code in range(k)], object)[at]
        for name, k, at in zip(NAMES, CATEGORIES, codes, strict=True)
    }
    x = rng.normal(size=(8, n))
    y = np.sin(3 * codes[0] + codes[1]) + (codes[2] * codes[3] % 5) / 2 + np.cos(codes[5])
    y += 0.3 * np.sin(codes[6] * codes[4]) + 0.3 * np.sin(codes[7]) + x[0] * (codes[1] % 2) + x[1]
    y += 0.3 * rng.normal(size=n)
    return pd.DataFrame(columns | {f"x{i}": x[i] for i in range(8)}), y


def trained(small: bool) -> Any:
    """Return a fitted classifier."""
    import catboost

    X, y = data(20_000, 0)
    options: dict[str, Any] = {"max_ctr_complexity": 1, "depth": 4} if small else {"depth": 6}
    model = catboost.CatBoostClassifier(
        iterations=200, cat_features=NAMES, random_seed=0, verbose=False, allow_writing_files=False, **options
    )
    return model.fit(X, y > np.median(y))


def measured(model: Any, rows: Sequence[int], threads: int, kind: str, seconds: float) -> list[list[str]]:
    """Return a line of times for each number of rows; raise if answers differ."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.cbm")
        model.save_model(str(path))
        package = hbtvm.compile(path, batch_sizes=list(rows), threads=threads)
    X = data(max(rows), 1)[0].astype(dict.fromkeys(NAMES, KINDS[kind]))
    lines = []
    for n in rows:
        part = X.iloc[:n].reset_index(drop=True)
        np.testing.assert_allclose(package.predict_proba(part), model.predict_proba(part), rtol=1e-5)

        def ours(part: pd.DataFrame = part) -> Any:
            return package.predict_proba(part)

        def theirs(part: pd.DataFrame = part) -> Any:
            return model.predict_proba(part, thread_count=threads)

        times = side_by_side({"hbtvm": ours, "CatBoost": theirs}, seconds=seconds)
        ratio = times["CatBoost"] / times["hbtvm"]
        lines.append([f"{n:,}", f"{ratio:.1f}×", duration(times["hbtvm"]), duration(times["CatBoost"])])
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.categories", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, default="str", help="pandas' type of the categories")
    parser.add_argument("--small", action="store_true", help="a model without combinations")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each time")
    given = parser.parse_args(arguments)
    lines = measured(trained(given.small), given.rows, given.threads, given.kind, given.seconds)
    print(markdown(["rows", "CatBoost / hbtvm", "hbtvm", "CatBoost"], lines))


if __name__ == "__main__":
    main()
