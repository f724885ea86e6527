"""Which spaces the bench measures: strategies, models, batch sizes and threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common import higgs_like
from hbtvm.compiler.candidates.program import write_study
from hbtvm.compiler.candidates.tasks import forests_of, make_tasks
from hbtvm.compiler.targets.target import resolve
from hbtvm.run import read_model
from hbtvm.strategies import STRATEGIES, Forest
from hbtvm.tuning.task import Task


@dataclass(frozen=True)
class Shape:
    """A model to measure with: small, so that a thousand candidates take minutes.

    Attributes
    ----------
    library
        Who trains it: ``"lightgbm"``, ``"xgboost"`` (grown by depth) or ``"sklearn"`` (a random forest).
    trees, leaves, depth
        Of all classes; most leaves and levels of each. XGBoost's trees are bounded by their depth alone.
    features, classes
        Of the data.
    """

    trees: int
    leaves: int
    depth: int
    features: int
    classes: int = 2
    library: str = "lightgbm"


SHAPES = {
    "a": Shape(100, 31, 7, 28),
    "b": Shape(60, 16, 5, 12),
    "c": Shape(60, 31, 8, 20, classes=5),
    "d": Shape(30, 400, 13, 28, library="sklearn"),
    "e": Shape(60, 31, 7, 300),
    "f": Shape(150, 8, 3, 40, library="xgboost"),
    "g": Shape(60, 63, 9, 100, classes=10),
    "h": Shape(20, 1000, 16, 60, classes=3, library="sklearn"),
}


@dataclass(frozen=True)
class Spot:
    """One space: a strategy for a model, a batch size and a number of threads."""

    shape: str
    strategy: str
    rows: int
    threads: int = 1

    @property
    def name(self) -> str:
        """What its log is called."""
        threads = "" if self.threads == 1 else f"-{self.threads}threads"
        return f"{self.strategy}-{self.shape}-{self.rows}{threads}"


def _spots(shape: str, **sizes: tuple[int, ...]) -> tuple[Spot, ...]:
    return tuple(Spot(shape, strategy, rows) for strategy, own in sizes.items() for rows in own)


FIRST = (
    *_spots(
        "a",
        bitvector=(1, 100, 2000),
        perfect_tree_traversal=(1, 2000),
        tree_traversal=(2000,),
        gemm=(2000,),
    ),
    *_spots("b", bitvector=(1, 2000), perfect_tree_traversal=(2000,), tree_traversal=(2000,), gemm=(2000,)),
)
"""Spaces of two small models on one thread, each strategy on either: the bench's first."""

MORE = (
    *_spots("c", bitvector=(2000,), tree_traversal=(2000,)),
    *_spots("d", tree_traversal=(100,)),
    *_spots("e", bitvector=(2000,), gemm=(100,)),
    Spot("a", "ranked_traversal", 2000),
    Spot("a", "perfect_tree_traversal", 2000, threads=2),
)
"""Several classes, deep trees, many features, two threads."""

UNSEEN = (
    *_spots("f", bitvector=(100,), perfect_tree_traversal=(2000,), ranked_traversal=(100,), gemm=(2000,)),
    *_spots("g", tree_traversal=(2000,), perfect_tree_traversal=(100,)),
    Spot("g", "bitvector", 2000, threads=2),
    *_spots("h", tree_traversal=(2000,)),
)
"""Spaces of other models. Defaults of searches must not be chosen by them: they tell whether a choice made on
the others holds elsewhere."""

SETS = {"first": FIRST, "more": MORE, "unseen": UNSEEN}
SPOTS = (*FIRST, *MORE, *UNSEEN)


@cache
def ensemble(shape: str) -> Any:
    """Train a model of this shape; the same one every time."""
    size = SHAPES[shape]
    X, y = _data(size)
    if size.library == "sklearn":
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            size.trees, max_depth=size.depth, max_leaf_nodes=size.leaves, random_state=0, n_jobs=1
        )
        return read_model(forest.fit(X, y)).anchor
    many = {} if size.classes == 2 else {"num_class": size.classes}
    rounds = size.trees // many.get("num_class", 1)
    if size.library == "xgboost":
        import xgboost

        parameters = {"objective": "binary:logistic", "max_depth": size.depth, "nthread": 1, "seed": 0}
        return read_model(xgboost.train(parameters, xgboost.DMatrix(X, y), rounds)).anchor
    import lightgbm

    parameters = {
        "objective": "multiclass" if many else "binary",
        "num_leaves": size.leaves,
        "max_depth": size.depth,
        "verbose": -1,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        **many,
    }
    return read_model(lightgbm.train(parameters, lightgbm.Dataset(X, y), rounds)).anchor


def _data(size: Shape) -> tuple[np.ndarray, np.ndarray]:
    """20,000 rows, and labels: of several classes, by the sum of a row's first features."""
    X, y = higgs_like(20_000, size.features, 0)
    if size.classes == 2:
        return X, y
    level = X[:, :6].sum(axis=1) + 2 * X[:, 0] * X[:, 1]
    bounds = np.quantile(level, np.linspace(0, 1, size.classes + 1)[1:-1])
    return X, np.searchsorted(bounds, level)


@contextmanager
def task(spot: Spot) -> Iterator[Task]:
    """A task that can be measured, for the length of a ``with`` block."""
    forest = _forest(spot.shape)
    with TemporaryDirectory(prefix="bench-") as folder:
        write_study(Path(folder), ensemble(spot.shape), [forest], spot.rows)
        strategies = {spot.strategy: STRATEGIES[spot.strategy]}
        yield make_tasks(forest, strategies, resolve("cpu"), [spot.rows], spot.threads, Path(folder))[0]


@cache
def _forest(shape: str) -> Forest:
    return forests_of(ensemble(shape), "float32")[0]
