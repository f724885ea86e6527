"""The hand-written kernels: compiled when they are needed, and the tables that they read."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.runtime.memory import aligned, empty
from hbtvm.strategies.trees.bitvector import tree_tables
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels

NEEDED = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512vbmi", "avx512_vpopcntdq")
"""Extensions that the kernels use, as /proc/cpuinfo names them."""

FEATURES, LEAVES, DEPTH = 28, 31, 8
"""The shapes for which the kernels are written."""

_VECTORS = (1, 2, 4)


def missing_extensions() -> list[str]:
    """Return the extensions that this machine lacks; all of them where that cannot be told."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return list(NEEDED)
    has = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return [name for name in NEEDED if name not in has]


def bitvector_kernels(forest: Forest, X: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel of `LEAVES` leaves, by name, each of which scores all rows.

    Parameters
    ----------
    X
        float32, shape (n, `FEATURES`), n a multiple of 16.

    Returns
    -------
    Calls that return float64 sums, shape (n,).
    """
    tables = tree_tables(forest, "int32", LEAVES + 1)
    ordered = [tables[name] for name in ("column", "threshold", "mask", "value")]
    return {
        f"{vectors} vectors, {unroll} nodes unrolled": _bound(
            "bitvector.c", {"V": vectors, "UNROLL": unroll}, X, ordered, vectors
        )
        for vectors, unroll in itertools.product((*_VECTORS, 8), (1, 5))
    }


def perfect_kernels(forest: Forest, X: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel of perfect trees of depth `DEPTH`; see `bitvector_kernels`."""
    levels = perfect_levels(forest)
    trees = len(levels[0])
    column = np.zeros((trees, 2**DEPTH), np.uint8)
    threshold = np.zeros((trees, 2**DEPTH), np.float32)
    for level, node in enumerate(levels[:-1]):
        column[:, 2**level : 2 ** (level + 1)] = forest.column[node]
        threshold[:, 2**level : 2 ** (level + 1)] = forest.threshold[node]
    ordered = [column, threshold, forest.value[levels[-1]].astype(np.float32)]
    return {
        f"{vectors} vectors, {top} levels by masks, permutes to level {permuted}, {how}": _bound(
            "perfect.c",
            {"V": vectors, "TOP": top, "PERMUTED": permuted, "SCALAR": scalar},
            X,
            ordered,
            vectors,
        )
        for (scalar, how), vectors, top, permuted in itertools.product(
            enumerate(("gathers", "scalar loads")), (*_VECTORS, 8), (3, 4), (7, 8)
        )
    }


def _bound(
    source: str, macros: dict[str, int], X: np.ndarray, tables: Sequence[np.ndarray], vectors: int
) -> Callable[[], np.ndarray]:
    """Compile one variant and bind its arguments; the last rows, short of a block, are padded."""
    function = _compiled(source, macros)
    block = 16 * vectors
    rows = -(-len(X) // block) * block
    padded = aligned(np.concatenate([X, np.zeros((rows - len(X), X.shape[1]), np.float32)]))
    kept = [aligned(np.ascontiguousarray(table)) for table in tables]
    sums = empty((rows,), np.float64)
    pointers = [ctypes.c_void_p(table.ctypes.data) for table in kept]
    arguments = (
        ctypes.c_void_p(padded.ctypes.data),
        ctypes.c_long(rows),
        ctypes.c_long(len(kept[0])),
        *pointers,
        ctypes.c_void_p(sums.ctypes.data),
    )

    def call(keep: Any = (padded, kept)) -> np.ndarray:
        function(*arguments)
        return sums[: len(X)]

    return call


def _compiled(source: str, macros: dict[str, int]) -> Any:
    """Compile a kernel and return its function.

    Raises
    ------
    RuntimeError
        If the compiler refuses.
    """
    with tempfile.TemporaryDirectory(prefix="bound-") as folder:
        library = Path(folder, "kernel.so")
        command = ["gcc", "-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"]
        command += [f"-D{name}={value}" for name, value in macros.items()]
        command += ["-o", str(library), str(Path(__file__).with_name(source))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"gcc: {done.stderr.strip()}")
        function = ctypes.CDLL(str(library)).score
    function.restype = None
    return function
