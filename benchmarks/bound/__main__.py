"""See `benchmarks.bound`."""

from __future__ import annotations

import argparse
import ctypes
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.synthetic import graph
from hbtvm.graph.ensemble import TreeEnsemble
from hbtvm.graph.reference import margins
from hbtvm.runtime.cpu import host_features

TREES, COLUMNS = 500, 28
SUMMED = 8
"""Trees whose leaf values are added up in float32."""

Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Features and thresholds of nodes, masks, leaf values."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bound", description=__doc__)
    parser.add_argument("--rows", type=int, default=9984, help="a multiple of 64")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    options = parser.parse_args()
    if "avx512f" not in (host_features() or ()):
        print("This machine has no AVX-512, which the forests written by hand need.", file=sys.stderr)
        return 1
    rows = np.random.default_rng(1).normal(size=(options.rows, COLUMNS)).astype(np.float32)
    print("| forest | by hand, ns per row | hbtvm, ns per row | hbtvm over by hand |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        code = compiled(Path(folder))
        for name, shape in SHAPES.items():
            by_hand, ours = race(code, shape, rows, options.rounds, options.seconds)
            print(
                f"| {TREES} trees, {name} | {by_hand:.0f} | {ours:.0f} | {ours / by_hand:.2f}x |", flush=True
            )
    return 0


def compiled(folder: Path) -> ctypes.CDLL:
    """The C of this folder."""
    library = folder / "bound.so"
    source = Path(__file__).with_name("bound.c")
    options = ["-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def race(code: ctypes.CDLL, shape: Any, rows: np.ndarray, rounds: int, seconds: float) -> tuple[float, float]:
    """Nanoseconds per row by hand, and by the kernel that a compilation without a search makes."""
    names, leaves, depth, tables_of = shape
    model = graph(trees=TREES, leaves=leaves, features=COLUMNS, depth=depth)
    ensemble: Any = model.anchor
    scores = np.zeros(len(rows))
    tables = tables_of(ensemble)
    addresses = [ctypes.c_void_p(one.ctypes.data) for one in (*tables, scores)]
    counts = (ctypes.c_int64(len(rows)), ctypes.c_int64(TREES))
    arguments = (ctypes.c_void_p(rows.ctypes.data), *counts, *addresses, ctypes.c_int64(SUMMED))
    own = hbtvm.compile(model, batch_sizes=[len(rows)], threads=1)
    want = margins(ensemble, rows)[:, 0]
    np.testing.assert_allclose(own.predict(rows), want, rtol=1e-4, atol=1e-4)
    runs: list[Callable[[], Any]] = [lambda: own.predict(rows)]
    for name in names:
        runs.append(functools.partial(getattr(code, name), *arguments))
        runs[-1]()
        np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-4)
    times = [[turn(run, seconds) / len(rows) * 1e9 for run in runs] for _ in range(rounds)]
    ours, *by_hand = (statistics.median(one[i] for one in times) for i in range(len(runs)))
    return min(by_hand), ours


def turn(run: Callable[[], Any], seconds: float) -> float:
    """Seconds per call, of calls for so many seconds."""
    run()
    calls, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        run()
        calls += 1
    return spent / calls


def words(ensemble: TreeEnsemble) -> Tables:
    """Nodes in any order, each with a word of the leaves that are left where it is false."""
    tables = (
        np.zeros((TREES, 30), np.int32),
        np.zeros((TREES, 30), np.float32),
        np.zeros((TREES, 30), np.uint32),
    )
    value = np.zeros((TREES, 32), np.float32)
    for t in range(TREES):
        _visit(ensemble, int(ensemble.offset[t]), 0, [one[t] for one in tables], value[t], [0, 0])
    feature, threshold, mask = tables
    return feature, threshold, mask.view(np.int32), value


def _visit(
    ensemble: TreeEnsemble, first: int, node: int, tables: Any, value: np.ndarray, done: list[int]
) -> None:
    """Lay out a node and what is below it; `done` counts nodes and leaves."""
    at = first + node
    if ensemble.left[at] < 0:
        value[done[1]] = ensemble.value[at, 0]
        done[1] += 1
        return
    feature, threshold, mask = tables
    place, start = done
    done[0] += 1
    feature[place], threshold[place] = ensemble.feature[at], ensemble.threshold[at]
    _visit(ensemble, first, int(ensemble.left[at]), tables, value, done)
    mask[place] = 0xFFFFFFFF ^ (((1 << (done[1] - start)) - 1) << start)
    _visit(ensemble, first, int(ensemble.right[at]), tables, value, done)


def levels(ensemble: TreeEnsemble) -> Tables:
    """Nodes of perfect trees, level by level."""
    feature = np.zeros((TREES, 255), np.int32)
    threshold = np.zeros((TREES, 255), np.float32)
    value = np.zeros((TREES, 256), np.float32)
    for t in range(TREES):
        first = int(ensemble.offset[t])
        nodes = [0]
        for level in range(8):
            at = first + np.array(nodes)
            here = slice(2**level - 1, 2 ** (level + 1) - 1)
            feature[t, here], threshold[t, here] = ensemble.feature[at], ensemble.threshold[at]
            nodes = [int(child) for one in at for child in (ensemble.left[one], ensemble.right[one])]
        value[t] = ensemble.value[first + np.array(nodes), 0]
    return feature, threshold, np.zeros(1, np.int32), value


SHAPES: dict[str, Any] = {
    "31 leaves": (("leaves31",), 31, None, words),
    "perfect, depth 8": (("depth8", "depth8_loads"), 256, 8, levels),
}
"""By name: functions of the C, the fastest of which counts; leaves, depth, and what lays out tables."""


if __name__ == "__main__":
    sys.exit(main())
