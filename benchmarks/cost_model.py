"""What the TreeGRU takes to score candidates, by PyTorch and by kernels: ``python -m benchmarks.cost_model``.

Candidates are those of `benchmarks.search`'s spaces, of which measured times ship. A TreeGRU is fitted to
some of them and scores the others, on one thread: a thousand at a time, and as few as annealing asks for.
Prints a table of microseconds for a candidate, medians in turns; how far scores are apart, relative to the
largest; how many pairs of candidates both order alike (by Kendall's tau); and how many of the pairs that
measured times tell apart are ordered as they are. Below is told what is done once for each candidate (its
loops are described by lowering it), for each fit, and for each process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks.common import duration, locked, markdown, side_by_side
from benchmarks.search.replay import load
from benchmarks.search.spaces import SPOTS, Spot
from hbtvm.compiler.recursion.tree_gru import make_scorer
from hbtvm.cost_model import pairwise_accuracy
from hbtvm.cost_model.encoding.flat import flat_features
from hbtvm.cost_model.encoding.loop_trees import Scorer, Weights, loop_trees
from hbtvm.cost_model.models.tree_gru import TreeGRU
from hbtvm.tuning.learning.threads import one_thread

SPACES = ("bitvector-a-2000", "gemm-a-2000", "perfect_tree_traversal-g-100", "tree_traversal-c-2000")

FEW = 32
"""Candidates that annealing asks about at a time, of those whose loops it reads."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of a space.

    Attributes
    ----------
    table
        Their features, float32, (n, D).
    costs
        Measured seconds, (n,).
    described, laid_out
        Seconds for one: to describe its loops, and to make features of them.
    """

    table: np.ndarray
    costs: np.ndarray
    described: float
    laid_out: float


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--spaces", nargs="+", choices=[spot.name for spot in SPOTS], default=SPACES,
                        metavar="NAME", help="such as " + ", ".join(SPACES))  # fmt: skip
    parser.add_argument("--candidates", type=int, default=1000, help="of a space")
    parser.add_argument("--fit", type=int, default=200, help="candidates to learn from")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure each figure for")
    parser.add_argument("--lock", type=Path, metavar="FILE",
                        help="lock this file while timing, as flock(1) does")  # fmt: skip
    arguments = parser.parse_args()
    timings = Timings()
    rows: list[list[str]] = []
    ratios: list[tuple[float, float]] = []
    once: list[tuple[float, float]] = []
    for spot in (one for one in SPOTS if one.name in arguments.spaces):
        print(f"{spot.name} ...", file=sys.stderr, flush=True)
        found = candidates(spot, arguments.candidates)
        if found is None:
            print(f"{spot.name}: its records are not understood", file=sys.stderr)
            return 1
        with locked(arguments.lock), one_thread():
            row, ratio = compared(spot.name, found, arguments.fit, arguments.seconds, timings)
        rows.append(row)
        ratios.append(ratio)
        once.append((found.described, found.laid_out))
    header = [
        "space", "candidates", "loops of one", "torch", "kernels", "ratio", f"{FEW} at a time: torch",
        "kernels", "ratio", "apart", "ordered alike", "ordered as measured: torch", "kernels",
    ]  # fmt: skip
    print(markdown(header, rows))
    large, few = np.exp(np.log(ratios).mean(axis=0))
    print(f"\nGeometric means: {large:.1f}× of all at a time, {few:.1f}× of {FEW} at a time.")
    described, laid_out = (float(np.mean(one)) for one in zip(*once, strict=True))
    print(
        f"Once for a candidate: {duration(described)} to describe its loops, {duration(laid_out)} to make "
        f"features of them. Once for a process: {duration(timings.first)} to compile. For each fit: "
        f"{duration(float(np.median(timings.later)))} to fill in its weights."
    )
    return 0


class Timings:
    """Times that making scorers takes."""

    def __init__(self) -> None:
        self.first = 0.0
        self.later: list[float] = []

    def make_scorer(self, weights: Weights) -> Scorer | None:
        start = time.perf_counter()
        made = make_scorer(weights)
        if not self.first:
            self.first, start = time.perf_counter() - start, time.perf_counter()
            made = make_scorer(weights)
        self.later.append(time.perf_counter() - start)
        return made


def candidates(spot: Spot, count: int) -> Candidates | None:
    """Measured candidates of a space, in random order; None if nothing is known of it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        recorded = load(Path(folder), spot)
    if recorded is None:
        return None
    configs = recorded.task.space.sample(np.random.default_rng(0), count)
    start = time.perf_counter()
    nests = [recorded.task.describe(config) for config in configs]
    described = time.perf_counter()
    table = flat_features(nests)
    laid_out = time.perf_counter()
    costs = np.array([recorded.costs[recorded.task.space.encode(config)] for config in configs])
    return Candidates(table, costs, (described - start) / len(nests), (laid_out - described) / len(nests))


def compared(
    name: str, found: Candidates, fit: int, seconds: float, timings: Timings
) -> tuple[list[str], tuple[float, float]]:
    """A row of the table, and the ratios of many and of few at a time.

    Raises
    ------
    RuntimeError
        If kernels can't be compiled.
    """
    known, rest = found.table[:fit], found.table[fit:]
    by_torch, by_kernels = TreeGRU(), TreeGRU(make_scorer=timings.make_scorer)
    for model in (by_torch, by_kernels):
        model.fit(known, found.costs[:fit])
    if not by_kernels.is_compiled:
        raise RuntimeError("the kernels can't be compiled")
    # As many as are told, whatever was learned from.
    many = np.resize(found.table, (1000, found.table.shape[1]))
    times = side_by_side(
        {
            "torch": lambda: by_torch.mean(many),
            "kernels": lambda: by_kernels.mean(many),
            "few, torch": lambda: by_torch.mean(many[:FEW]),
            "few, kernels": lambda: by_kernels.mean(many[:FEW]),
        },
        seconds=seconds,
    )
    each = {key: taken / (FEW if key.startswith("few") else len(many)) for key, taken in times.items()}
    expected, scores = by_torch.mean(rest), by_kernels.mean(rest)
    apart = np.abs(scores - expected).max() / np.abs(expected).max()
    ratios = times["torch"] / times["kernels"], times["few, torch"] / times["few, kernels"]
    trees = loop_trees(found.table)
    row = [
        name, f"{len(found.table):,}", f"{len(trees.contexts) / len(found.table):.1f}",
        duration(each["torch"]), duration(each["kernels"]), f"{ratios[0]:.1f}×",
        duration(each["few, torch"]), duration(each["few, kernels"]), f"{ratios[1]:.1f}×",
        f"{apart:.1e}", f"{(1 + kendalltau(expected, scores).statistic) / 2:.4%}",
        *(f"{pairwise_accuracy(one, found.costs[fit:]):.3f}" for one in (expected, scores)),
    ]  # fmt: skip
    return row, ratios


if __name__ == "__main__":
    sys.exit(main())
