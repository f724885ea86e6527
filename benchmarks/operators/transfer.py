"""What logs of other operators are worth to an operator of their family.

``python -m benchmarks.operators.transfer`` tunes some models of each family with a log, then others of that
family without a log and with it, for batches of one size. A run has arrived when its best time is within 5%
of the best that either run found. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import markdown
from hbtvm.logs.record import Record

ROWS = 1000
"""Rows of the calls that are tuned."""

CLOSE = 1.05
"""Within this factor of the best time, a run has arrived."""

_TRAINED = 2000


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators.transfer", description=__doc__)
    parser.add_argument("--trials", type=int, default=48, help="trials of each run")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for family, (teachers, learners) in families().items():
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.jsonl")
            for make in teachers.values():
                hbtvm.search(make(), batch_sizes=ROWS, threads=1, trials=arguments.trials, log=log)
            taught = log.read_bytes()
            for name, make in learners.items():
                model = make()
                found = [
                    _pair(model, folder, taught, arguments.trials, seed) for seed in range(arguments.seeds)
                ]
                alone, helped = ([one[i] for one in found] for i in range(2))
                ratio = statistics.geometric_mean(a / b for a, b in zip(alone, helped, strict=True))
                rows.append([family, name, _listed(alone), _listed(helped), f"{ratio:.2f}"])
    print(markdown(["family", "operator", "trials, no log", "with the log", "ratio"], rows))
    print(f"\nGeometric mean of the ratios: {statistics.geometric_mean(float(row[-1]) for row in rows):.2f}")
    return 0


def families() -> dict[str, tuple[dict[str, Callable[[], Any]], dict[str, Callable[[], Any]]]]:
    """By family: what the log is made of, and what is tuned with it."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.mixture import GaussianMixture
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, SVR

    def fitted(make: Callable[[], Any], features: int, classes: int = 2) -> Callable[[], Any]:
        def fit() -> Any:
            rng = np.random.default_rng(0)
            X = rng.normal(size=(_TRAINED, features))
            y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=_TRAINED), np.linspace(-1, 1, classes + 1)[1:-1])
            return make().fit(X, y)

        return fit

    return {
        "contract": (
            {
                "layers": fitted(lambda: MLPClassifier((60,), max_iter=5), 12, 3),
                "clusters": fitted(lambda: KMeans(16, n_init=1), 30),
                "logistic": fitted(lambda: LogisticRegression(max_iter=50), 40, 5),
            },
            {
                "MLPClassifier (100)": fitted(lambda: MLPClassifier((100,), max_iter=5), 20),
                "KMeans 64": fitted(lambda: KMeans(64, n_init=1), 20),
                "PCA 10, logistic 8 classes": fitted(
                    lambda: make_pipeline(PCA(10), LogisticRegression(max_iter=50)), 20, 8
                ),
            },
        ),
        "distance": (
            {
                "machine": fitted(lambda: SVR(C=0.1), 10),
                "mixture": fitted(lambda: GaussianMixture(4, covariance_type="diag"), 16),
            },
            {
                "SVC rbf": fitted(SVC, 20),
                "GaussianNB": fitted(GaussianNB, 20, 3),
            },
        ),
    }


def _pair(model: Any, folder: str, taught: bytes, trials: int, seed: int) -> tuple[int, int]:
    """Trials until a run without a log and one with it arrive; one more than there were if it does not."""
    log = Path(folder, f"copy-{seed}.jsonl")
    log.write_bytes(taught)
    options = {"batch_sizes": ROWS, "threads": 1, "trials": trials, "seed": seed}
    alone = hbtvm.search(model, transfer=False, **options).result.history
    helped = hbtvm.search(model, log=log, **options).result.history
    log.unlink()
    goal = CLOSE * min(record.cost for record in (*alone, *helped))
    return _arrived(alone, goal), _arrived(helped, goal)


def _arrived(history: Sequence[Record], goal: float) -> int:
    costs = (record.cost if math.isfinite(record.cost) else math.inf for record in history)
    return next((at for at, cost in enumerate(costs, 1) if cost <= goal), len(history) + 1)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


if __name__ == "__main__":
    sys.exit(main())
