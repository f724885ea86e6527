"""Measures the cells of one model: each peer in its own process, measurements interleaved."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.common import locked
from benchmarks.peers.artifacts import Artifacts
from benchmarks.peers.cells import Cell
from benchmarks.peers.libraries import LIBRARIES, Job
from benchmarks.peers.processes import PeerError, Process

AGREES = 1e-4
"""Outputs of peers with float32 arithmetic are about 1e-6 off; beyond this, rows end in other leaves."""

UNFIT = "takes no such models"
"""What is said to have failed where a peer does not take a kind of model, or of rows; no failure."""

_PAUSE = 0.02
"""Seconds between turns, in which threads that the last peer left spinning go to sleep."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes
    ----------
    pythons
        The interpreter of each peer.
    search, time_budget
        Whether hbtvm searches, and for how many seconds; None for its default.
    rounds
        Turns of each peer.
    seconds
        About how long each peer is timed for in a cell, in all its turns.
    convert_limit
        Most seconds that a peer may take to compile or convert.
    log
        Gets what the peers print.
    lock
        A file that is locked while times are taken, as by flock(1), so that several measurements
        on a machine do not disturb each other.
    artifacts
        What peers other than hbtvm compiled or converted in earlier runs; None to keep nothing.
    mcpu
        CPU that hbtvm compiles for; None for this machine's.
    cpu_time
        Whether to count CPU time instead of wall time; for one thread on a busy machine.
    """

    pythons: dict[str, str]
    search: bool
    time_budget: float | None
    rounds: int
    seconds: float
    convert_limit: float
    log: TextIO
    lock: Path | None = None
    artifacts: Artifacts | None = None
    mcpu: str | None = None
    cpu_time: bool = False


def measure(
    about: dict[str, Any], cells: Sequence[Cell], settings: Settings, say: Say
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Measure cells that share a model.

    Parameters
    ----------
    about
        The model, as `train.trained` tells.
    cells
        What to measure.
    settings
        How.
    say
        Called with a line for the user now and then.

    Yields
    ------
    A cell and its figures by peer: either ``failed``, a text; or ``seconds`` per call (median), its
    ``quartiles``, the ``way`` to predict, ``difference`` and ``rows_off`` (see `compare`),
    ``convert_seconds``, ``convert_memory`` (where it has a process of its own) and ``memory``.
    """
    batches = tuple(sorted({cell.rows for cell in cells}))
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        converted: dict[str, Any] = {}
        for threads in sorted({cell.threads for cell in cells}):
            jobs = {
                peer: Job(
                    peer,
                    cells[0].model,
                    about["path"],
                    about["task"],
                    about["features"],
                    str(Path(folder, artifact_name(peer, threads))),
                    threads,
                    batches,
                    settings.search,
                    settings.time_budget,
                    cells[0].dtype,
                    settings.mcpu,
                )
                for peer in settings.pythons
            }
            for peer, job in jobs.items():
                # A peer that failed with one number of threads is not tried with another.
                if peer not in converted or (LIBRARIES[peer].for_threads and "failed" not in converted[peer]):
                    converted[peer] = convert(job, settings, say)
            with contextlib.ExitStack() as stack:
                workers, failed = _start(jobs, converted, about["rows"], settings, stack, say)
                for cell in cells:
                    if cell.threads == threads:
                        with locked(settings.lock):
                            figures = take_turns(cell.rows, workers, settings, Path(folder))
                        for peer, process in workers.items():
                            if "failed" not in figures[peer]:
                                figures[peer].update(converted[peer], memory=process.ask("memory"))
                        for peer in [peer for peer in workers if "failed" in figures[peer]]:
                            del workers[peer]
                        yield cell, {**figures, **failed}
                        failed.update({p: f for p, f in figures.items() if "failed" in f})


def artifact_name(peer: str, threads: int) -> str:
    """The name of the file that a peer makes of a model."""
    # Loaders choose the format by the file's suffix.
    ending = {"hbtvm": ".tar", "tl2cgen": ".so", "onnx": ".onnx"}.get(peer, ".bin")
    return f"{peer}-{threads}{ending}" if LIBRARIES[peer].for_threads else f"{peer}{ending}"


def convert(job: Job, settings: Settings, say: Say) -> dict[str, Any]:
    """Let a peer compile its artifact; returns time and memory, or ``failed``."""
    library = LIBRARIES[job.peer]
    if job.model not in library.models or job.dtype not in library.dtypes:
        return {"failed": UNFIT}
    if library.convert is None:
        return {}
    artifacts = settings.artifacts if job.peer != "hbtvm" else None
    kept = artifacts.find(job, settings.convert_limit) if artifacts else None
    if kept is not None:
        return kept
    say(f"  {job.peer}: {'compiling' if job.peer != 'onnx' else 'converting'} ...")
    # A search may take its time budget beside the limit.
    budget = (settings.time_budget or 100.0) if job.peer == "hbtvm" and settings.search else 0.0
    process = Process(settings.pythons[job.peer], job.threads, settings.log)
    try:
        took = process.ask("convert", settings.convert_limit + budget, job=dataclasses.asdict(job))
    except PeerError as error:
        say(f"  {job.peer}: {error}")
        figures = {"failed": str(error)}
    else:
        figures = {"convert_seconds": took["seconds"], "convert_memory": took["peak_memory"]}
    finally:
        process.close()
    if artifacts:
        artifacts.keep(job, figures, settings.convert_limit)
    return figures


def _start(
    jobs: dict[str, Job],
    converted: dict[str, Any],
    rows: str,
    settings: Settings,
    stack: contextlib.ExitStack,
    say: Say,
) -> tuple[dict[str, Process], dict[str, Any]]:
    """Start and load all peers; those that run, and those that failed."""
    workers: dict[str, Process] = {}
    failed: dict[str, Any] = {}
    for peer, job in jobs.items():
        if "failed" in converted[peer]:
            failed[peer] = converted[peer]
            continue
        process = Process(settings.pythons[peer], job.threads, settings.log)
        stack.callback(process.close)
        try:
            took = process.ask("load", settings.convert_limit, job=dataclasses.asdict(job), rows=rows)
        except PeerError as error:
            say(f"  {peer}: {error}")
            failed[peer] = converted[peer] = {"failed": str(error)}
            continue
        if LIBRARIES[peer].convert is None:
            converted[peer] = {"convert_seconds": took["seconds"]}
        workers[peer] = process
    return workers, failed


def take_turns(
    rows: int,
    workers: Mapping[str, Process],
    settings: Settings,
    folder: Path,
    expected: np.ndarray | None = None,
) -> dict[str, Any]:
    """Measure one cell: processes that have loaded a model, in turns.

    Parameters
    ----------
    rows
        Rows per call.
    folder
        Where outputs may be left.
    expected
        Right outputs; if not given, those of the process named "native", which is not compared then.

    Returns
    -------
    Figures by peer, see `measure`.
    """
    figures: dict[str, Any] = {}
    calls: dict[str, int] = {}
    turns: dict[str, int] = {}
    saved: dict[str, Path] = {}
    for peer, process in workers.items():
        try:
            found = process.ask("calibrate", settings.convert_limit, rows=rows)
            saved[peer] = folder / f"{peer}.npy"
            process.ask("outputs", settings.convert_limit, rows=rows, to=str(saved[peer]))
        except PeerError as error:
            figures[peer] = {"failed": str(error)}
            continue
        figures[peer] = {"way": found["way"]}
        turn = settings.seconds / settings.rounds
        calls[peer] = max(1, round(turn / found["seconds"]))
        # Three turns at least, however slow; all of them where a call fits into a turn.
        turns[peer] = min(settings.rounds, max(3, round(settings.seconds / found["seconds"])))
    times: dict[str, list[float]] = {peer: [] for peer in calls}
    for turn_number in range(settings.rounds):
        for peer in calls:
            if turn_number < turns[peer] and "failed" not in figures[peer]:
                time.sleep(_PAUSE)
                try:
                    clock = {"cpu": True} if settings.cpu_time else {}
                    times[peer].append(workers[peer].ask("time", rows=rows, calls=calls[peer], **clock))
                except PeerError as error:
                    figures[peer] = {"failed": str(error)}
    right = {"native"} if expected is None else set[str]()
    if expected is None and "native" in saved:
        expected = np.load(saved["native"])
    for peer, values in times.items():
        if "failed" in figures[peer]:
            continue
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        figures[peer].update(seconds=middle, quartiles=[low, high])
        if expected is not None and peer not in right:
            figures[peer].update(compare(np.load(saved[peer]), expected))
    return figures


def compare(got: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """How far outputs are from the native library's.

    Parameters
    ----------
    got, expected
        Shape (rows, outputs). Of two classes, the second's probability alone is one output.

    Returns
    -------
    ``difference``, the largest relative one, and ``rows_off``, the share of rows with one beyond
    `AGREES`. Differences are relative to the output, but to no less than a millionth of the
    largest one, for an output may be zero.
    """
    if got.shape[1] == 2 and expected.shape[1] == 1:
        got = got[:, 1:]
    if got.shape[1] == 1 and expected.shape[1] == 2:
        expected = expected[:, 1:]
    if got.shape != expected.shape:
        return {"difference": float("inf"), "rows_off": 1.0}
    least = 1e-6 * np.max(np.abs(expected))
    difference = np.abs(got - expected) / np.maximum(np.abs(expected), least)
    difference = np.where(np.isnan(difference), np.inf, difference)
    return {"difference": float(difference.max()), "rows_off": float(np.mean(difference.max(1) > AGREES))}
