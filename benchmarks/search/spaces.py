"""Which spaces the bench measures: strategies, models and batch sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightgbm

from benchmarks.common import higgs_like
from hbtvm.api import read_model
from hbtvm.compiler.candidates.program import write_study
from hbtvm.compiler.candidates.tasks import forests_of, make_tasks
from hbtvm.compiler.targets.target import resolve
from hbtvm.strategies import STRATEGIES, Forest
from hbtvm.tuning.task import Task


@dataclass(frozen=True)
class Shape:
    """A model to measure with: small, so that a thousand candidates take minutes."""

    trees: int
    leaves: int
    depth: int
    features: int


SHAPES = {"a": Shape(100, 31, 7, 28), "b": Shape(60, 16, 5, 12)}
ROWS = {
    ("a", "bitvector"): (1, 100, 2000),
    ("a", "perfect_tree_traversal"): (1, 2000),
    ("a", "tree_traversal"): (2000,),
    ("a", "gemm"): (2000,),
    ("b", "bitvector"): (1, 2000),
    ("b", "perfect_tree_traversal"): (2000,),
    ("b", "tree_traversal"): (2000,),
    ("b", "gemm"): (2000,),
}
"""Batch sizes by model and strategy: each strategy has a space on either model."""


@dataclass(frozen=True)
class Spot:
    """One space: a strategy for a model and a batch size, on one thread."""

    shape: str
    strategy: str
    rows: int

    @property
    def name(self) -> str:
        """What its log is called."""
        return f"{self.strategy}-{self.shape}-{self.rows}"


SPOTS = tuple(Spot(shape, strategy, rows) for (shape, strategy), sizes in ROWS.items() for rows in sizes)


@cache
def ensemble(shape: str) -> Any:
    """Train a model of this shape; the same one every time."""
    size = SHAPES[shape]
    X, y = higgs_like(20_000, size.features, 0)
    parameters = {
        "objective": "binary",
        "num_leaves": size.leaves,
        "max_depth": size.depth,
        "verbose": -1,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
    }
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), size.trees)
    return read_model(booster).ensemble


@contextmanager
def task(spot: Spot) -> Iterator[Task]:
    """A task that can be measured, for the length of a ``with`` block."""
    forest = _forest(spot.shape)
    with TemporaryDirectory(prefix="bench-") as folder:
        write_study(Path(folder), ensemble(spot.shape), [forest], spot.rows)
        strategies = {spot.strategy: STRATEGIES[spot.strategy]}
        yield make_tasks(forest, strategies, resolve("cpu"), [spot.rows], 1, Path(folder))[0]


@cache
def _forest(shape: str) -> Forest:
    return forests_of(ensemble(shape), "float32")[0]
