"""hbtvm's kernels against hand-written AVX-512 or AVX2: ``python -m benchmarks.bound --isa avx2``.

Forests of 500 random trees over 28 float32 features, 10,000 random rows a call, one thread: trees of 31
leaves; perfect trees of depth 8, with any thresholds and with 255 of each feature ("bins"); and trees of
unlimited depth ("deep"), grown on 6,800 rows each. gcc compiles several variants of each hand-written kernel,
and clang those of deep trees, too. They are checked against numpy, and the fastest is the bound. It is timed
in turns with hbtvm's, and a Markdown table is printed. hbtvm's time is that of `predict`, its Python call
included; hand-written kernels over ranks get the rows' ranks for nothing. A ratio below 1 says that the
hand-written kernel is not the best possible, not that a limit of the machine was passed.
Ends with status 1 where a ratio is above the goal, and 2 where the machine lacks the instructions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hbtvm
from benchmarks import synthetic
from benchmarks.bound import kernels
from benchmarks.common import markdown, side_by_side
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

GOAL = {"avx512": 1.15, "avx2": 1.2}
"""By instruction set: the most that hbtvm's kernel may take, over the bound."""

DEEP_GOAL = 1.3
"""The same for trees of unlimited depth."""

_TARGETS: dict[str, str | dict[str, Any]] = {"avx512": "cpu", "avx2": {"kind": "llvm", "mcpu": "x86-64-v3"}}

ROWS, TREES = 10_000, 500

_DEEP_LEAVES = 6800

FORESTS: dict[str, Callable[[], Graph]] = {
    f"{kernels.LEAVES} leaves": lambda: _graph(kernels.LEAVES),
    f"depth {kernels.DEPTH}": lambda: _graph(2**kernels.DEPTH, depth=kernels.DEPTH),
    f"depth {kernels.DEPTH}, bins": lambda: _graph(2**kernels.DEPTH, depth=kernels.DEPTH, thresholds=255),
    "deep": lambda: synthetic.grown(trees=TREES, leaves=_DEEP_LEAVES, features=kernels.FEATURES),
}
"""By name: makes a forest."""


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bound", description=__doc__)
    parser.add_argument("--trials", type=int, default=0, help="search this long first; 0: defaults alone")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long to time each")
    parser.add_argument("--isa", choices=tuple(kernels.NEEDED), default="avx512", help="the instruction set")
    parser.add_argument("--cpu-time", action="store_true", help="time the thread, beside other load")
    parser.add_argument("--variants", action="store_true", help="print the time of each variant too")
    parser.add_argument("--forests", nargs="+", choices=tuple(FORESTS), default=list(FORESTS))
    arguments = parser.parse_args()
    missing = kernels.missing_extensions(arguments.isa)
    if missing:
        print(f"The hand-written kernels need {arguments.isa}; this machine lacks {', '.join(missing)}.")
        return 2
    X = np.random.default_rng(1).normal(size=(ROWS, kernels.FEATURES)).astype(np.float32)
    rows, reached = [], True
    for name in arguments.forests:
        times = measure(
            FORESTS[name](), X, name, arguments.isa, arguments.trials, arguments.seconds, arguments.cpu_time
        )
        own = times.pop("hbtvm")
        best = min(times, key=lambda variant: times[variant])
        goal = DEEP_GOAL if name == "deep" else GOAL[arguments.isa]
        reached &= own <= goal * times[best]
        rows.append(
            [
                name,
                f"{times[best] / ROWS * 1e9:,.0f}",
                best,
                f"{own / ROWS * 1e9:,.0f}",
                f"{own / times[best]:.2f}",
            ]
        )
        if arguments.variants:
            for variant, seconds in times.items():
                print(f"{name}: {variant}: {seconds / ROWS * 1e9:,.0f} ns/row")
    print(markdown(["forest", "bound, ns/row", "fastest variant", "hbtvm, ns/row", "ratio"], rows))
    return 0 if reached else 1


def _graph(leaves: int, depth: int | None = None, thresholds: int | None = None) -> Graph:

    features = kernels.FEATURES
    return synthetic.graph(trees=TREES, leaves=leaves, features=features, depth=depth, thresholds=thresholds)


def measure(
    graph: Graph, X: np.ndarray, name: str, isa: str, trials: int, seconds: float, cpu_time: bool = False
) -> dict[str, float]:
    """Check all kernels of a forest, then time them in turns.

    Returns
    -------
    Median seconds per call, by variant; ``hbtvm`` is hbtvm's.

    Raises
    ------
    AssertionError
        If a kernel's sums are not those of numpy.
    """
    ensemble = graph.anchor
    assert isinstance(ensemble, TreeEnsemble)
    forest = forests_of(ensemble, "float32")[0]
    make = kernels.bitvector_kernels if name.endswith("leaves") else kernels.perfect_kernels
    if name == "deep":
        make = kernels.deep_kernels
    calls: dict[str, Callable[[], np.ndarray]] = dict(make(forest, X, isa))
    if trials:
        model = hbtvm.tune(graph, batch_sizes=ROWS, threads=1, target=_TARGETS[isa], trials=trials, log=None)
    else:
        model = hbtvm.compile(graph, batch_sizes=ROWS, threads=1, target=_TARGETS[isa])
    calls["hbtvm"] = lambda: model.predict(X)
    expected = sums(ensemble, X)
    for variant, call in calls.items():
        np.testing.assert_allclose(call(), expected, rtol=1e-5, atol=1e-5, err_msg=variant)
    return side_by_side(calls, seconds=seconds, clock=time.thread_time if cpu_time else time.perf_counter)


def sums(ensemble: TreeEnsemble, X: np.ndarray) -> np.ndarray:
    """Sums over all trees by a plain walk, float64, shape (n,); for rows without missing values."""
    total, row = np.zeros(len(X)), np.arange(len(X))
    for start in ensemble.offset[:-1]:
        node = np.full(len(X), start)
        while (inner := ensemble.left[node] != LEAF).any():
            left = X[row, np.maximum(ensemble.feature[node], 0)] <= ensemble.threshold[node]
            child = start + np.where(left, ensemble.left[node], ensemble.right[node])
            node = np.where(inner, child, node)
        total += ensemble.value[node, 0]
    return total


if __name__ == "__main__":
    sys.exit(main())
