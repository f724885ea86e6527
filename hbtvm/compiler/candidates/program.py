"""The program by which the tuner's workers build, check and time kernels of a model.

Its interface is `hbtvm.tuning.measuring.program.Program`.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import build_kernel, link_library
from hbtvm.compiler.building.cuda import code_of, source_and_launch, write_code
from hbtvm.compiler.building.cuda_stubs import compile_with_stubs
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.lowering.score_epilogue import with_epilogue
from hbtvm.graph.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.reference import margins
from hbtvm.runtime.executor import Executor
from hbtvm.runtime.parallelism import timed
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload
from hbtvm.strategies import Forest, Strategy, strategies_on
from hbtvm.tuning.measuring.program import InvalidConfigError, fingerprint

CHECKED_ROWS = 509
"""Rows whose scores are compared with the reference's: a prime, so that the last tile is always partial."""

FORESTS, SAMPLE = "forests.pickle", "rows-{dtype}.npy"


@dataclass(frozen=True)
class Study:
    """The data of a model that workers need, written once into a folder that they share.

    Attributes
    ----------
    forests
        By dtype of the input: the forest that kernels are built for.
    expected
        By dtype: float64, shape (`CHECKED_ROWS`, O), plain sums over the trees for the first rows
        of the sample.
    scale
        Sum over the trees of their largest absolute leaf value; rounding errors are relative to it.
    """

    forests: dict[str, Forest]
    expected: dict[str, np.ndarray]
    scale: float


def write_study(
    folder: Path, ensemble: TreeEnsemble, forests: list[Forest], rows: int, seed: int = 0
) -> None:
    """Write the files that `TreeProgram` reads into a folder.

    Parameters
    ----------
    folder
        An existing, private folder.
    ensemble, forests
        The model, and its forest for each dtype to be tuned.
    rows
        The largest batch size.
    """
    expected: dict[str, np.ndarray] = {}
    for forest in forests:
        X = sample_rows(ensemble, rows, forest.dtype, seed)
        if not forest.missing:
            X[np.isnan(X)] = 0
        np.save(folder / SAMPLE.format(dtype=forest.dtype), X)
        raw = margins(ensemble, X[:CHECKED_ROWS])
        expected[forest.dtype] = (raw - ensemble.base_score) * ensemble.divisor
    largest = np.maximum.reduceat(np.abs(ensemble.value).max(axis=1), ensemble.offset[:-1])
    study = Study({forest.dtype: forest for forest in forests}, expected, float(largest.sum()))
    (folder / FORESTS).write_bytes(pickle.dumps(study))


def sample_rows(ensemble: TreeEnsemble, rows: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return random rows that spread over a model's leaves.

    Each feature's values are drawn from around its thresholds, so that rows take about as many
    different paths as real data does; a few are missing or infinite, and category codes
    are drawn from the range that the model's sets cover.

    Returns
    -------
    `dtype`, shape (rows, n_features).
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, ensemble.n_features)).astype(dtype)
    split = ensemble.left != LEAF
    order = np.argsort(ensemble.feature[split], kind="stable")
    nodes = np.flatnonzero(split)[order]
    bounds = np.searchsorted(ensemble.feature[nodes], np.arange(ensemble.n_features + 1))
    for feature, (start, stop) in enumerate(itertools.pairwise(bounds)):
        own = nodes[start:stop]
        if not len(own):
            continue
        sets = ensemble.category_set[own]
        if np.any(sets >= 0):
            size = max(len(ensemble.category_sets[i].member) for i in np.unique(sets[sets >= 0]))
            X[:, feature] = rng.integers(-1, size + 1, rows)
            continue
        thresholds = np.sort(ensemble.threshold[own])
        position = rng.random(rows) * (len(thresholds) + 1) - 1
        below = np.clip(np.floor(position), 0, len(thresholds) - 1).astype(np.int64)
        above = np.minimum(below + 1, len(thresholds) - 1)
        share = np.clip(position - below, 0, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            X[:, feature] = thresholds[below] * (1 - share) + thresholds[above] * share
        X[position < 0, feature] = -np.inf
    special = rng.random((min(rows, CHECKED_ROWS), ensemble.n_features))
    X[: len(special)][special < 0.02] = np.nan
    X[: len(special)][(special > 0.02) & (special < 0.03)] = 0
    X[: len(special)][special > 0.99] = np.inf
    return X


class TreeProgram:
    """One strategy for one workload of one model.

    Parameters
    ----------
    payload
        ``folder`` (see `write_study`), ``strategy``, ``workload``, ``target``, ``threads``, ``fleet``:
        whether candidates are measured on devices elsewhere, and ``device``: which GPU they run on here.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        folder = Path(payload["folder"])
        self._workload: Workload = payload["workload"]
        self._target: Target = payload["target"]
        self._strategy: Strategy = strategies_on(self._target)[payload["strategy"]]
        self._threads: int = payload["threads"]
        self._fleet = bool(payload.get("fleet"))
        self._device = int(payload.get("device", 0))
        self._study: Study = pickle.loads((folder / FORESTS).read_bytes())
        dtype = self._workload["dtype"]
        # Memory-mapped: builders read no rows, and all workers share the pages.
        self._sample = np.load(folder / SAMPLE.format(dtype=dtype), mmap_mode="r")

    def build(self, config: Config, library_path: str) -> str:
        """Compile a candidate; see `hbtvm.tuning.measuring.program.Program.build`."""
        if not self._strategy.space(self._workload, self._target).contains(config):
            raise InvalidConfigError(f"not a configuration of {self._strategy.name}: {config}")
        if self._target["kind"] == "cuda":
            return self._build_cuda(config, library_path)
        build_kernel(self._strategy, self._workload, config, self._target, library_path)
        return fingerprint(
            library_path, parallel=config.get("parallel", "none"), grain=config.get("grain", 1)
        )

    def _build_cuda(self, config: Config, library_path: str) -> str:
        """Compile a candidate for a GPU (for a fleet, as a library of TVM's); return its fingerprint."""
        module = self._strategy.module(self._workload, config)
        signature = self._strategy.signature(self._workload, config)
        source, launch = source_and_launch(module, self._target, signature.parts)
        if self._fleet:
            if signature.needs_epilogue:
                module = with_epilogue(module, signature.groups, signature.parts)
            link_library(compile_with_stubs(module, self._target), library_path)
        else:
            write_code(library_path, code_of(source, self._target), launch)
        # The source's hash, since the output of CUDA compilers is not reproducible.
        return hashlib.sha256(f"{source}{launch}".encode()).hexdigest()

    def load(self, config: Config, library_path: str) -> TreeRunnable:
        """Load a candidate and its tables."""
        import tvm_ffi

        forest = self._study.forests[self._workload["dtype"]]
        if self._target["kind"] == "cuda":
            from hbtvm.compiler.candidates.device import DeviceCandidate

            kernel = DeviceCandidate(
                library_path, forest, self._strategy, self._workload, config, self._device
            )
            return TreeRunnable(kernel.run, *self._check_data(forest), clock=kernel.seconds)
        function = tvm_ffi.load_module(library_path)["main"]
        executor = make_executor(function, forest, self._strategy, self._workload, config, self._threads)
        return TreeRunnable(executor.run, *self._check_data(forest))

    def load_remote(self, config: Config, library_path: str, session: Any) -> TreeRunnable:
        """As `load`, on a device at the other end of a `tvm.rpc.RPCSession`."""
        from hbtvm.compiler.candidates.fleet import RemoteCandidate

        forest = self._study.forests[self._workload["dtype"]]
        entry = entry_of(forest, self._strategy, self._workload, config)
        on_gpu = self._target["kind"] == "cuda"
        kernel = RemoteCandidate.of(session, library_path, entry.signature, entry.tables, on_gpu)
        return TreeRunnable(kernel.run, *self._check_data(forest), clock=kernel.seconds)

    def _check_data(self, forest: Forest) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Return rows to time, rows to check, the expected scores of those, and the absolute tolerance."""
        rows = np.ascontiguousarray(self._sample[: self._workload["rows"]])
        checked = np.ascontiguousarray(self._sample[:CHECKED_ROWS])
        tolerance = (1e-6 if forest.value_dtype == "float32" else 1e-13) * self._study.scale
        return rows, checked, self._study.expected[forest.dtype], tolerance


class TreeRunnable:
    """A loaded kernel with rows to run on.

    Parameters
    ----------
    scores
        Sums the trees' values: rows in, float64 (N, O) out.
    rows, checked, expected, tolerance
        Rows to time; rows to check, their scores, and by how much they may be off.
    clock
        Seconds that a number of runs on some rows take; by default, those of calling `scores`,
        the Python call included.
    """

    def __init__(
        self,
        scores: Callable[[np.ndarray], np.ndarray],
        rows: np.ndarray,
        checked: np.ndarray,
        expected: np.ndarray,
        tolerance: float,
        clock: Callable[[np.ndarray, int], float] | None = None,
    ) -> None:
        self._scores, self._rows, self._clock = scores, rows, clock
        self._checked, self._expected, self._tolerance = checked, expected, tolerance

    def check(self) -> str | None:
        """Compare scores with the reference's; return what differs in a sentence, or None."""
        # Once in one call, once in the batch's own size: the two may take different code paths.
        for rows in (self._checked, self._checked[: len(self._rows)]):
            off = np.abs(self._scores(rows) - self._expected[: len(rows)])
            # Written so that a NaN fails.
            wrong = ~(off <= self._tolerance)
            if wrong.any():
                worst = float(np.nanmax(off, initial=0))
                return f"{int(wrong.any(axis=1).sum())} of {len(rows)} rows differ, by up to {worst:.3g}"
        return None

    def run(self, number: int) -> float:
        """Return the seconds that `number` calls on the batch take."""
        if self._clock is not None:
            return self._clock(self._rows, number)
        run, rows = self._scores, self._rows
        start = time.perf_counter()
        for _ in range(number):
            run(rows)
        return time.perf_counter() - start


def make_executor(
    function: Any, forest: Forest, strategy: Strategy, workload: Workload, config: Config, threads: int
) -> Executor:
    """Bind a kernel to a forest's tables, as it runs in a package for as many rows as the workload has."""
    entry = entry_of(forest, strategy, workload, config)
    return Executor(function, entry.signature, entry.tables, timed(entry.parallel, threads, entry.grain))
