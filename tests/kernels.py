"""Kernels built and run as the product does, for tests of strategies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from hbtvm.compiler.building.cpu import build_kernel
from hbtvm.compiler.candidates.program import make_executor
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload
from hbtvm.strategies import STRATEGIES, Forest, Strategy, workload_of

CPU = resolve("cpu")
UNCHECKED = {"tirx.disable_assert": True}
"""TVM's options for kernels that do not check their arguments, which is up to half of the time of a build."""


def build_unchecked(
    strategy: Strategy, workload: Workload, config: Config, target: Target, path: str
) -> None:
    """Build a CPU kernel that does not check its arguments."""
    with tvm.transform.PassContext(config=UNCHECKED):
        build_kernel(strategy, workload, config, target, path)


def raw_scores(
    strategy: str,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
    rows: int,
    threads: int = 1,
    target: dict[str, Any] = CPU,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a kernel built for calls of `rows` rows."""
    chosen = STRATEGIES[strategy]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        workload = workload_of(forest, rows, threads)
        build_unchecked(chosen, workload, config, target, path)
        function = tvm_ffi.load_module(path)["main"]
        run = make_executor(function, forest, chosen, workload, config, threads).run
        sums = run(np.ascontiguousarray(X))
    return sums / ensemble.divisor + ensemble.base_score


def tolerance(ensemble: TreeEnsemble, value_dtype: str) -> float:
    """Return the absolute error that rounding may cause in a sum of this forest's leaf values."""
    largest = np.maximum.reduceat(np.abs(ensemble.value).max(axis=1), ensemble.offset[:-1])
    scale = float(largest.sum()) / ensemble.divisor + float(np.abs(ensemble.base_score).max())
    return (1e-6 if value_dtype == "float32" else 1e-13) * scale
