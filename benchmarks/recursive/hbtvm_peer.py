"""hbtvm: models built by `hbtvm.recursive`, compiled or tuned, then timed from structures to results."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

import hbtvm
from benchmarks.recursive.cases import MODELS
from benchmarks.recursive.jobs import Job, Ready
from benchmarks.recursive.timing import library as timing
from hbtvm.recursive.cell import Readout, RecursiveModel
from hbtvm.runtime.recursive.structures import Structures

SIZES = (1, 10)
"""Structures of a call that packages are compiled for."""


def _module(name: str) -> Any:
    return importlib.import_module(f"hbtvm.{name}")


def model(job: Job, over: Literal["roots", "nodes"] = "roots") -> RecursiveModel:
    """The job's model; inner nodes of parse trees have no words, so nothing is computed of them there."""
    case = MODELS[job.model]
    places = {"chain": 1, "parse": 2, "perfect": 2, "grid": 2}[case.kind]
    # Where leaves may be computed as other nodes are, the cell says nothing of its own about them.
    special = job.model in _LEAVES and not job.config
    extra = {"inner_words": False} if special else {}
    made = _module("recursive.known").CELLS[case.cell](job.hidden, places, **extra)
    if special:
        made.leaf(_LEAVES[job.model])
    return RecursiveModel(made.bind(job.weights), Readout(case.states[0], over))


def _gru_leaf(node: Any, w: Any) -> dict[str, Any]:
    rec = _module("recursive.expressions")
    _, z, new = rec.split(w.Wx @ node.word + w.b, 3)
    return {"h": (1.0 - rec.sigmoid(z)) * rec.tanh(new)}


def _lstm_leaf(node: Any, w: Any) -> dict[str, Any]:
    rec = _module("recursive.expressions")
    i, o, u, _ = rec.split(w.Wx @ node.word + w.b, 4)
    c = rec.sigmoid(i) * rec.tanh(u)
    return {"h": rec.sigmoid(o) * rec.tanh(c), "c": c}


_LEAVES = {"treegru": _gru_leaf, "treelstm": _lstm_leaf}
"""Leaves of the models whose inner nodes have no words: without gates for what is not there, as peers do."""


def structures(job: Job) -> Structures:
    """The job's batch as hbtvm takes it: nodes as they were drawn, level by level is its own matter."""
    every, base, counts = [], 0, []
    for child in job.batch.structures:
        there = child >= 0
        every.append((child + base)[there])
        counts.append(there.sum(1))
        base += len(child)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in counts])])
    first = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    words = job.batch.words
    if job.model in ("treefc", "treegru", "treelstm", "treernn"):
        words = np.where(np.diff(first) == 0, words, -1)
    numbers = {"word": np.ascontiguousarray(words, np.int32)}
    if job.model == "mvrnn":
        numbers["matrix"] = numbers["word"]
    return Structures(
        starts.astype(np.int64), first.astype(np.int32), np.concatenate(every).astype(np.int32), numbers
    )


def convert(job: Job) -> list[dict[str, Any]]:
    """Compile the model for calls of `SIZES` structures, after a search if there are trials.

    Writes the package, and beside it one with the same kernels that returns the states of all nodes.

    Returns
    -------
    The configurations of its kernels, with ``rows`` and ``share``.
    """
    path = Path(job.package)
    log = path.with_suffix(".jsonl")
    options: dict[str, Any] = {"batch_sizes": SIZES, "threads": job.threads}
    if job.mcpu is not None:
        options["target"] = {"kind": "llvm", "mcpu": job.mcpu}
    with _forced(job.config):
        if job.trials:
            made = hbtvm.tune(model(job), trials=job.trials, log=log, **options)
        else:
            made = hbtvm.compile(model(job), **options)
        made.save(path)
        # What was measured is in the log, so the same kernels are chosen again.
        kept: dict[str, Any] = {"log": log} if job.trials else {}
        hbtvm.compile(model(job, "nodes"), **options, **kept).save(_all_nodes(path))
    package: Any = made.package
    return [{"rows": one.rows, "share": one.share, **one.config} for one in package.recursion.kernels]


def _all_nodes(path: Path) -> Path:
    return path.with_name(f"{path.stem}-nodes.tar")


@contextlib.contextmanager
def _forced(config: dict[str, Any]) -> Iterator[None]:
    """Let `compile` take these schedule choices, where the model has them and nothing was measured.

    Raises
    ------
    ValueError
        If they do not go together.
    """
    if not config:
        yield
        return
    strategy = _module("strategies.recursive.levels").Levels
    own = strategy.default

    def default(self: Any, workload: Any, target: Any) -> Any:
        space = self.space(workload, target)
        choices = {knob.name: knob.choices for knob in space.knobs}
        # A model without products of leaf states, say, has no choice about them.
        taken = {name: value for name, value in config.items() if value in choices.get(name, ())}
        made = {**own(self, workload, target), **taken}
        if not space.contains(made):
            raise ValueError(f"the space has no configuration {made}")
        return made

    with mock.patch.object(strategy, "default", default):
        yield


def ready(job: Job) -> Ready:
    """The package, loaded; a call is the whole of ``predict``, linearisation included."""
    of, given = hbtvm.load(job.package, threads=job.threads), structures(job)

    def states() -> np.ndarray:
        every = hbtvm.load(_all_nodes(Path(job.package)), threads=job.threads)
        return np.asarray(every.predict(given))[job.linear.order]

    return Ready(lambda: of.predict(given), states)


def linearise(job: Job, calls: int) -> float:
    """Seconds in which the executor finds levels and rows of a batch: the median of 9 loops of calls in C.

    It looks at structures only, so this needs no kernels.
    """
    from hbtvm.runtime.native.description import Kept
    from hbtvm.runtime.native.library import load_library
    from hbtvm.runtime.native.objects.build import c_compiler, executor_library
    from hbtvm.runtime.recursive.entry import Program, RecursionEntry, RecursionKernels

    binding = _module("runtime.recursive.binding")
    model_of = _module("runtime.recursive.description").model_of
    library: Any = binding.bind(load_library(executor_library(c_compiler())))
    nothing = Program(())
    kernels = RecursionKernels(1, 1, None, "", {}, "none", b"", nothing, nothing, ())
    places = job.linear.child.shape[1]
    entry = RecursionEntry("", places, 16, 0, (16,), "roots", (), (kernels,))
    kept = Kept()
    described = model_of(kept, entry, [{}])
    handle = library.recursive_open(ctypes.addressof(described), 1)
    given = structures(job)
    nodes = len(given.first) - 1
    row, start = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32)
    addresses = (one.ctypes.data for one in (given.starts, given.first, given.child))
    batch = binding.Batch(len(given), nodes, len(given.child), *addresses, None)
    place = binding.Place()
    try:
        found = [
            timing().levels_seconds(
                ctypes.cast(library.recursive_levels, ctypes.c_void_p),
                ctypes.c_void_p(handle),
                ctypes.byref(batch),
                ctypes.c_void_p(row.ctypes.data),
                ctypes.c_void_p(start.ctypes.data),
                ctypes.byref(place),
                calls,
            )
            for _ in range(9)
        ]
    finally:
        library.recursive_close(handle)
    if not all(map(math.isfinite, found)):
        raise ValueError("the structures were refused")
    return float(np.median(found))
