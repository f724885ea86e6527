"""What ten times the budget would still find.

``python -m benchmarks.budget`` tunes five models of different libraries and shapes for one batch size each,
once with the default's trials for a batch size and once with ten times as many, without a log. The winners of
both runs are timed in turns. Prints a Markdown table; half an hour on two cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import duration, higgs_like, lightgbm_model, markdown, side_by_side

TRIALS = 80
"""A third of the default's 240, which are for three batch sizes."""


def xgboost_model() -> Any:
    """300 trees of depth 6, 50 features."""
    import xgboost

    X, y = higgs_like(20_000, 50, 1)
    parameters = {"objective": "binary:logistic", "max_depth": 6, "seed": 0}
    return xgboost.train(parameters, xgboost.DMatrix(X, y), 300)


def random_forest() -> Any:
    """50 deep trees, 20 features."""
    from sklearn.ensemble import RandomForestClassifier

    X, y = higgs_like(20_000, 20, 2)
    return RandomForestClassifier(50, max_leaf_nodes=500, random_state=0, n_jobs=2).fit(X, y)


def gradient_boosting() -> Any:
    """200 trees of 8 leaves, 100 features."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, y = higgs_like(20_000, 100, 3)
    model = HistGradientBoostingClassifier(
        max_iter=200, max_leaf_nodes=8, early_stopping=False, random_state=0
    )
    return model.fit(X, y)


RUNS: dict[str, tuple[Callable[[], Any], int, int]] = {
    "LightGBM, 500 trees of 31 leaves": (lambda: lightgbm_model(trees=500), 1, 28),
    "LightGBM, 200 trees of 63 leaves": (
        lambda: lightgbm_model(trees=200, leaves=63, features=40),
        10_000,
        40,
    ),
    "XGBoost, 300 trees of depth 6": (xgboost_model, 100, 50),
    "random forest, 50 trees of 500 leaves": (random_forest, 10_000, 20),
    "histogram gradient boosting, 200 trees of 8 leaves": (gradient_boosting, 100, 100),
}
"""By name: what trains a model, the batch size, and the number of features."""


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of the shorter runs")
    parser.add_argument("--factor", type=int, default=10, help="how many times as many the longer runs have")
    arguments = parser.parse_args()
    rows = []
    ratios = []
    for name, (train, size, features) in RUNS.items():
        model = train()
        runs = [
            hbtvm.search(model, batch_sizes=size, trials=trials, seed=0)
            for trials in (arguments.trials, arguments.trials * arguments.factor)
        ]
        batch = np.ascontiguousarray(higgs_like(20_000, features, 9)[0][:size])
        short, long = runs
        times = side_by_side(
            {
                "short": partial(short.model.predict, batch),
                "long": partial(long.model.predict, batch),
            },
            seconds=4.0,
            rounds=31,
        )
        ratios.append(times["short"] / times["long"])
        spent = short.result.seconds
        learning = spent.planning + spent.training
        rows.append(
            [
                name,
                f"{size:,}",
                duration(times["short"]),
                duration(times["long"]),
                f"{ratios[-1]:.3f}",
                f"{spent.total:.0f} s, {long.result.seconds.total:.0f} s",
                f"{learning / spent.total:.1%}",
            ]
        )
        print(rows[-1], file=sys.stderr, flush=True)
    header = [
        "model",
        "rows",
        f"{arguments.trials} trials",
        f"{arguments.trials * arguments.factor} trials",
        "ratio",
        "took",
        "planning and training",
    ]
    print(markdown(header, rows))
    print(f"\nGeometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
