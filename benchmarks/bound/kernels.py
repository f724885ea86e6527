"""The hand-written kernels: compiled when they are needed, and the tables that they read."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.runtime.memory import aligned, empty
from hbtvm.strategies import STRATEGIES
from hbtvm.strategies.intrinsics.subtree import LEVELS
from hbtvm.strategies.trees.bitvector import tree_tables
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels, split_table
from hbtvm.strategies.trees.ranked_rows import leaves_of_tests, row_tables
from hbtvm.strategies.trees.ranks import node_ranks
from hbtvm.strategies.trees.traversal import packed

NEEDED = {
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512vbmi", "avx512_vpopcntdq"),
    "avx2": ("avx2", "bmi2", "fma"),
}
"""By instruction set: extensions that the kernels use, as /proc/cpuinfo names them."""

MARCH = {"avx512": "native", "avx2": "x86-64-v3"}
"""By instruction set: what gcc compiles for."""

FEATURES, LEAVES, DEPTH = 28, 31, 8
"""The shapes for which the kernels are written."""

_VECTORS = (1, 2, 4)


def missing_extensions(isa: str) -> list[str]:
    """Return the extensions of an instruction set that this machine lacks; all where that cannot be told."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return list(NEEDED[isa])
    has = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return [name for name in NEEDED[isa] if name not in has]


def bitvector_kernels(forest: Forest, X: np.ndarray, isa: str) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel of `LEAVES` leaves, by name, each of which scores all rows.

    Parameters
    ----------
    X
        float32, shape (n, `FEATURES`).
    isa
        ``"avx512"`` or ``"avx2"``.

    Returns
    -------
    Calls that return float64 sums, shape (n,).
    """
    tables = tree_tables(forest, "int32", LEAVES + 1)
    ordered = [tables[name] for name in ("column", "threshold", "mask", "value")]
    if isa == "avx2":
        return {
            f"{vectors} vectors, {unroll} nodes unrolled, {how}": _bound(
                "bitvector256.c",
                {"V": vectors, "UNROLL": unroll, "GATHER": gather},
                X,
                ordered,
                8 * vectors,
                isa,
            )
            for (gather, how), vectors, unroll in itertools.product(
                enumerate(("permutes", "gathers")), (*_VECTORS, 8), (1, 5)
            )
        }
    return {
        f"{vectors} vectors, {unroll} nodes unrolled": _bound(
            "bitvector.c", {"V": vectors, "UNROLL": unroll}, X, ordered, 16 * vectors, isa
        )
        for vectors, unroll in itertools.product((*_VECTORS, 8), (1, 5))
    }


def perfect_kernels(forest: Forest, X: np.ndarray, isa: str) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel of perfect trees of depth `DEPTH`; see `bitvector_kernels`.

    Kernels over ranks, which are found beforehand, are among them: of one byte where no column has more than
    255 thresholds, else, for AVX2 alone, of two bytes.
    """
    levels = perfect_levels(forest)
    column = split_table(forest, levels, forest.column.astype(np.uint8), 2**DEPTH)
    threshold = split_table(forest, levels, forest.threshold.astype(np.float32), 2**DEPTH)
    value = forest.value[levels[-1]].astype(np.float32)
    ordered = [column, threshold, value]
    narrow = forest.rank_bits <= 8
    calls = _ranked_kernels(forest, X, isa, column, value, narrow) if narrow or isa == "avx2" else {}
    if isa == "avx2":
        return calls | {
            f"{top} levels by masks of {vectors} vectors, {walks} walks": _bound(
                "perfect256.c", {"V": vectors, "TOP": top, "WALKS": walks}, X, ordered, 8 * vectors, isa
            )
            for top, vectors, walks in itertools.product((3, 4, 5), (4, 16), (4, 8))
        }
    return calls | {
        f"{vectors} vectors, {top} levels by masks, permutes to level {permuted}, {how}": _bound(
            "perfect.c",
            {"V": vectors, "TOP": top, "PERMUTED": permuted, "SCALAR": scalar},
            X,
            ordered,
            16 * vectors,
            isa,
        )
        for (scalar, how), vectors, top, permuted in itertools.product(
            enumerate(("gathers", "scalar loads")), (*_VECTORS, 8), (3, 4), (7, 8)
        )
    }


def deep_kernels(forest: Forest, X: np.ndarray, isa: str) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel of trees of unlimited depth; see `bitvector_kernels`.

    They walk over the slots of strategy ``tree_traversal``. gcc compiles each variant, and clang if it is
    installed: they differ in what they keep in registers.
    """
    slots, packing = packed(forest)
    stride, tile = 32, 2000
    assert slots.bits == 8 and slots.linked and forest.n_columns == FEATURES
    rows = np.full((len(X), stride), -np.inf, np.float32)
    rows[:, :FEATURES] = X[:, forest.column_feature]
    node = STRATEGIES["tree_traversal"].shared(forest)["node"]
    ordered = [np.append(packing.root, packing.size), node]
    variants = [(16, (0, 12, 2), 1), (16, (1, 14, 3), 1), (16, (1, 16, 3), 1), (16, (1, 18, 3), 1)]
    variants += [(8, (1, 14, 3), 1), (16, (1, 16, 3), 0)]
    return {
        f"{walks} walks, {first} levels, then {'queues' if queue else 'until all arrive'}"
        f"{'' if prefetch else ', no prefetch'}, {compiler}": _bound(
            "deep.c",
            {
                "WALKS": walks,
                "TILE": tile,
                "FIRST": first,
                "QUEUE": queue,
                "PASS": levels,
                "PREFETCH": prefetch,
            },
            rows,
            ordered,
            tile,
            isa,
            len(packing.root),
            compiler,
        )
        for walks, (queue, first, levels), prefetch in variants
        for compiler in compilers()
    }


def _ranked_kernels(
    forest: Forest, X: np.ndarray, isa: str, column: np.ndarray, value: np.ndarray, narrow: bool
) -> dict[str, Callable[[], np.ndarray]]:
    """Return variants of the kernel over ranks of one byte (`narrow`) or two."""
    top = DEPTH - LEVELS
    dtype = np.dtype(np.int8 if narrow else np.int16)
    lowest = int(np.iinfo(dtype).min)
    own = (node_ranks(forest) + lowest).astype(dtype)
    rank = split_table(forest, perfect_levels(forest), own, 2**DEPTH)
    records = row_tables(forest, {"tree_tile": 1, "byte_levels": 0})["record"].reshape(
        len(column), 2**top, -1
    )
    # The strategy's records end with room for whole registers.
    records = np.ascontiguousarray(records[:, :, : (3 if narrow else 5) * 8])
    ranks = np.zeros((len(X), 32), dtype)
    for at, (feature, thresholds) in enumerate(zip(forest.column_feature, forest.thresholds, strict=True)):
        ranks[:, at] = np.searchsorted(thresholds, X[:, feature]) + lowest
    ordered = [column, rank, records, value, leaves_of_tests()]
    if not narrow:
        return {
            f"ranks of two bytes, {vectors} vectors of 16 rows, {unroll} share nodes": _bound(
                "words256.c", {"V": vectors, "UNROLL": unroll, "WALKS": 8}, ranks, ordered, 16 * vectors, isa
            )
            for vectors, unroll in itertools.product((8, 16, 64), (2, 4))
        }
    return {
        f"ranks, {vectors} vectors of 32 rows, {unroll} share nodes, {walks} rows unrolled": _bound(
            "ranked256.c", {"V": vectors, "UNROLL": unroll, "WALKS": walks}, ranks, ordered, 32 * vectors, isa
        )
        for vectors, unroll, walks in itertools.product((2, 4, 8), (2, 4), (2, 8))
    }


def _bound(
    source: str,
    macros: dict[str, int],
    X: np.ndarray,
    tables: Sequence[np.ndarray],
    block: int,
    isa: str,
    trees: int | None = None,
    compiler: str = "gcc",
) -> Callable[[], np.ndarray]:
    """Compile one variant and bind its arguments; the last rows, short of a block, are padded.

    `trees`: the number of trees; by default, the length of the first table.
    """
    function = _compiled(source, macros, isa, compiler)
    rows = -(-len(X) // block) * block
    padded = aligned(np.concatenate([X, np.zeros((rows - len(X), X.shape[1]), X.dtype)]))
    kept = [aligned(np.ascontiguousarray(table)) for table in tables]
    sums = empty((rows,), np.float64)
    pointers = [ctypes.c_void_p(table.ctypes.data) for table in kept]
    arguments = (
        ctypes.c_void_p(padded.ctypes.data),
        ctypes.c_long(rows),
        ctypes.c_long(len(kept[0]) if trees is None else trees),
        *pointers,
        ctypes.c_void_p(sums.ctypes.data),
    )

    def call(keep: Any = (padded, kept)) -> np.ndarray:
        function(*arguments)
        return sums[: len(X)]

    return call


def compilers() -> list[str]:
    """Return gcc, and the newest clang on the search path if there is one."""
    names = ("clang", *(f"clang-{version}" for version in range(25, 15, -1)))
    clang = next((name for name in names if shutil.which(name)), None)
    return ["gcc", *([clang] if clang else [])]


def _compiled(source: str, macros: dict[str, int], isa: str, compiler: str) -> Any:
    """Compile a kernel and return its function.

    Raises
    ------
    RuntimeError
        If the compiler refuses.
    """
    with tempfile.TemporaryDirectory(prefix="bound-") as folder:
        library = Path(folder, "kernel.so")
        command = [
            compiler,
            "-std=gnu11",
            "-O3",
            f"-march={MARCH[isa]}",
            "-ffp-contract=off",
            "-fPIC",
            "-shared",
        ]
        command += [f"-D{name}={value}" for name, value in macros.items()]
        command += ["-o", str(library), str(Path(__file__).with_name(source))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{compiler}: {done.stderr.strip()}")
        function = ctypes.CDLL(str(library)).score
    function.restype = None
    return function
