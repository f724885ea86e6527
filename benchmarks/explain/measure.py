"""Measures a cell: each peer in its own process, in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.explain.cases import CASES, Cell
from benchmarks.explain.peers import Job
from benchmarks.explain.prepare import packages, rows_of, shared
from benchmarks.peers.processes import PeerError, Process

WORKER = "benchmarks.explain.worker"
TURNS = 7
_MOST_TURNS = 60  # of two threads, until other programs leave them the CPUs for `TURNS`
_OTHERS = 0.08  # most of a CPU that other programs may use meanwhile
_PATIENCE = 120.0


def jobs_of(cell: Cell, folder: Path) -> dict[str, tuple[str, Job]]:
    """Return the peer and job of each process of a cell, by the process's name."""
    case = CASES[cell.case]
    explained, plain = map(str, packages(case, folder))
    model = str(folder / case.file)
    if cell.kind == "threads":
        files = {1: explained, 2: str(shared(case, folder))}
        return {f"hbtvm, {n} threads": ("hbtvm", Job(model, file, "kernel", n)) for n, file in files.items()}
    if cell.kind == "predict":
        both = {"with reasons": explained, "without": plain}
        return {name: ("hbtvm", Job(model, package, "predict")) for name, package in both.items()}
    method = "sums" if case.peers == ("steps",) else case.method
    return {peer: (peer, Job(model, explained, method)) for peer in ("hbtvm", *case.peers)}


def measure(
    cell: Cell,
    folder: Path,
    pythons: Mapping[str, str],
    log: TextIO,
    *,
    seconds: float,
    most: float,
    cpu: bool = False,
) -> dict[str, Any]:
    """Measure one cell.

    Parameters
    ----------
    cell
        What to time.
    folder
        Where `prepare` left the files.
    pythons
        Interpreter of each peer; those without are left out.
    log
        Gets what peers print.
    seconds
        About how long to time each way of a peer.
    most
        Longest call, in seconds: slower peers get fewer rows.
    cpu
        Whether to count CPU time, for one thread on a busy machine; cells of two threads have wall time.

    Returns
    -------
    By process and way: ``rows`` and median ``seconds`` of a call, and the ``difference`` of the first way's
    answers from its own (see `compare`; of treelite, which numbers nodes, see `leaves_apart`); or why the
    process ``failed``.

    Raises
    ------
    PeerError
        If two threads are timed and other programs never leave the CPUs to them.
    """
    figures: dict[str, Any] = {}
    answers: dict[tuple[str, str], np.ndarray] = {}
    calls: dict[tuple[str, str], int] = {}
    with contextlib.ExitStack() as stack:
        to = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="explain-")), "answers.npy")
        processes: dict[str, Process] = {}
        for name, (peer, job) in jobs_of(cell, folder).items():
            if peer not in pythons:
                continue
            process = Process(pythons[peer], job.threads, log, WORKER)
            stack.callback(process.close)
            given = {
                **dataclasses.asdict(job),
                "model": os.path.abspath(job.model),
                "package": os.path.abspath(job.package),
            }
            rows = str(rows_of(CASES[cell.case], folder).absolute())
            try:
                ways = process.ask("load", _PATIENCE, peer=peer, job=given, rows=rows)
                figures[name] = {}
                for way in ways:
                    if way == "dict" and cell.rows > 1:
                        continue
                    found = process.ask("calibrate", _PATIENCE, way=way, rows=cell.rows, most=most)
                    process.ask("outputs", _PATIENCE, way=way, to=str(to))
                    answers[name, way] = np.load(to)
                    figures[name][way] = {"rows": found["rows"]}
                    calls[name, way] = max(1, round(seconds / TURNS / found["seconds"]))
                processes[name] = process
            except PeerError as error:
                figures[name] = {"failed": str(error)}
                calls = {key: count for key, count in calls.items() if key[0] != name}
        alone = cell.kind == "threads"
        turns = _turns(processes, calls, seconds, cpu and not alone, alone)
        for (name, way), seconds_of in turns.items():
            figures[name][way]["seconds"] = statistics.median(seconds_of)
    for key in calls:
        first = next(iter(calls))
        if key != first:
            apart = leaves_apart if key[0] == "treelite" else compare
            figures[key[0]][key[1]]["difference"] = apart(answers[first], answers[key])
    return figures


def _turns(
    processes: Mapping[str, Process],
    calls: Mapping[tuple[str, str], int],
    seconds: float,
    cpu: bool,
    alone: bool,
) -> dict[tuple[str, str], list[float]]:
    """Return the seconds of a call, of each turn.

    `alone`: count turns of all processes while other programs leave the CPUs to them.
    Raises `PeerError` if there are none.
    """
    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for _ in range(_MOST_TURNS if alone else TURNS):
        turn: dict[tuple[str, str], float] = {}
        busy, own, start = _busy(), 0.0, time.perf_counter()
        for (name, way), count in calls.items():
            # Three turns of calls that are long.
            if not alone and len(times[name, way]) >= 3 and sum(times[name, way]) > seconds:
                continue
            time.sleep(0.01)
            before = processes[name].cpu_seconds()
            turn[name, way] = processes[name].ask("time", _PATIENCE, way=way, calls=count, cpu=cpu)
            own += processes[name].cpu_seconds() - before
        others = (_busy() - busy - own) / (time.perf_counter() - start)
        if not alone or others < _OTHERS:
            for key, took in turn.items():
                times[key].append(took)
        if min(map(len, times.values()), default=TURNS) >= TURNS:
            break
    if alone and not all(times.values()):
        raise PeerError("other programs kept the CPUs busy")
    return times


def _busy() -> float:
    """Return the seconds that all CPUs have worked since the machine started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def compare(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest absolute expected value.

    Parameters
    ----------
    got, expected
        Shape (rows, columns); of the rows that both have. Answers of other shapes, or not finite, are
        infinitely different.
    """
    rows = min(len(got), len(expected))
    got, expected = got[:rows], expected[:rows]
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-300))


def leaves_apart(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of trees whose leaf ids are not each other's by renaming, shape (rows, trees)."""
    rows = min(len(got), len(expected))
    apart = 0
    for a, b in zip(got[:rows].T, expected[:rows].T, strict=True):
        pairs = len(set(zip(a, b, strict=True)))
        apart += not pairs == len(set(a)) == len(set(b))
    return apart / got.shape[1]
