"""Peers in processes of their own, timed in turns: shared by the comparisons of pipelines and operators."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.peers.processes import PeerError, Process
from benchmarks.pipelines.peers import Job

TURNS = 7
"""Times that each way of each peer is timed in a cell; the median counts."""

_LOADING, _PATIENCE = 120.0, 240.0
"""Seconds that a peer may take to load or convert a model, and for anything else."""

_PROPORTIONAL = 100
"""Rows from which the time of a call says something about calls of more rows."""

Compare = Callable[[np.ndarray, np.ndarray], dict[str, Any]]
"""Compares answers with those that are expected; what it returns is kept with the figure."""


def versions(pythons: dict[str, str], worker: str, log: TextIO) -> dict[str, Any]:
    """Versions of each peer's packages, by its interpreter."""
    found = {}
    for peer, python in pythons.items():
        process = Process(python, 1, log, worker)
        with contextlib.suppress(PeerError):
            found[peer] = process.ask("versions", peer=peer)
        process.close()
    return found


def fitted(name: str, fit: Callable[[], Any], code: Sequence[Path], cache: Path) -> Path:
    """The file of a fitted model; it is fitted once for each state of the code that does."""
    state = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()[:8]
    safe = "".join(letter if letter.isalnum() else "-" for letter in name)
    path = cache / f"{safe}-{state}.pkl"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(fit()))
    return path


def compile_package(
    model: Path, package: Path, threads: int, trials: int, dtype: str = "float32", *more: str
) -> None:
    """Compile a model in a process of its own, with further options; with trials, after a search.

    Raises
    ------
    PeerError
        With what hbtvm says, if it refuses.
    """
    verb = ["tune", "--trials", str(trials)] if trials else ["compile"]
    options = ["-o", str(package), "--threads", str(threads), "--dtype", dtype, *more]
    command = [sys.executable, "-m", "hbtvm", *verb, str(model), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["failed"]
        sentence = told[-1].removeprefix("hbtvm: error: ").removeprefix(f"{model}: ")
        raise PeerError(sentence.replace(str(package), "the package"))


@dataclasses.dataclass
class Race:
    """Peers that are ready to predict with one model.

    Attributes
    ----------
    workers
        By name; the first one's answers are what the others are compared with.
    ways
        Of each, in which it can be called.
    failed
        Why the others are not ready.
    """

    workers: dict[str, Process]
    ways: dict[str, list[str]]
    failed: dict[str, str]


class Workers:
    """Processes of peers, started when they are first needed and again where they ended.

    Parameters
    ----------
    pythons
        Interpreters by peer.
    threads
        That each may use.
    worker
        The module that runs in them.
    log
        Gets what peers print.
    """

    def __init__(self, pythons: dict[str, str], threads: int, worker: str, log: TextIO) -> None:
        self._pythons, self._threads, self._worker, self._log = pythons, threads, worker, log
        self._processes: dict[str, Process] = {}

    def ready(self, job: Job, rows: Path, prepare: Callable[[str], None]) -> Race:
        """Load a model in all of them.

        Parameters
        ----------
        job
            What each gets, but for the peer's name.
        rows
            A pickle of the rows to predict.
        prepare
            Called with a peer's name before it loads.
        """
        race = Race({}, {}, {})
        for peer in self._pythons:
            try:
                prepare(peer)
                process = self._process(peer)
                given = dataclasses.asdict(dataclasses.replace(job, peer=peer))
                race.ways[peer] = process.ask("load", _LOADING, job=given, rows=str(rows))
                race.workers[peer] = process
            except PeerError as error:
                race.failed[peer] = str(error)
        return race

    def _process(self, peer: str) -> Process:
        process = self._processes.get(peer)
        if process is None or not process.alive:
            if process is not None:
                process.close()
            process = Process(self._pythons[peer], self._threads, self._log, self._worker)
            self._processes[peer] = process
        return process

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.close()


def time_in_turns(
    race: Race,
    rows: int,
    folder: Path,
    compare: Compare,
    *,
    seconds: float,
    most: float = float("inf"),
    before: tuple[int, dict[str, Any]] | None = None,
    cpu_time: bool = False,
) -> dict[str, Any]:
    """Time all ways of all peers in turns, and compare answers with the first peer's first way.

    Parameters
    ----------
    race
        The peers.
    rows
        Of a call.
    folder
        For answers.
    compare
        Compares them.
    seconds
        About how long to time each way.
    most
        Longest call, in seconds; ways that would take longer by what they took `before` are left out.
    before
        Fewer rows, and their cell.
    cpu_time
        Whether to count the CPU time of each process instead of wall time.

    Returns
    -------
    By peer and way: ``seconds`` of a call and whether it ``agrees``; or why it ``failed``, or that it was
    ``skipped``: seconds that a call would take.
    """
    cell: dict[str, Any] = {peer: {"failed": why[:400]} for peer, why in race.failed.items()}
    calls: dict[tuple[str, str], int] = {}
    expected = None
    for peer, process in race.workers.items():
        figures: dict[str, Any] = {}
        cell[peer] = figures
        for way in race.ways[peer]:
            if way == "dict" and rows > 1:
                continue
            longer = _expected(before, peer, way, rows)
            if longer > most:
                figures[way] = {"skipped": longer}
                continue
            try:
                took = process.ask("calibrate", _PATIENCE, way=way, rows=rows)
                to = folder / "outputs.npy"
                process.ask("outputs", _PATIENCE, way=way, rows=rows, to=str(to))
            except PeerError as error:
                figures[way] = {"failed": str(error)[:400]}
                continue
            got = np.load(to, allow_pickle=True)
            if expected is None and peer == next(iter(race.workers)):
                expected = got
            figures[way] = {"agrees": None if expected is None else compare(got, expected)}
            calls[peer, way] = max(1, round(seconds / TURNS / took))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    clock = {"cpu": True} if cpu_time else {}
    for _ in range(TURNS):
        for (peer, way), count in calls.items():
            if count == 1 and len(times[peer, way]) >= 3:
                continue
            time.sleep(0.01)
            times[peer, way].append(
                race.workers[peer].ask("time", _PATIENCE, way=way, rows=rows, calls=count, **clock)
            )
    for (peer, way), found in times.items():
        cell[peer][way]["seconds"] = statistics.median(found)
    return cell


def _expected(before: tuple[int, dict[str, Any]] | None, peer: str, way: str, rows: int) -> float:
    """Seconds that a call would take in proportion to one of fewer rows; 0 where nothing is known."""
    if before is None or before[0] < _PROPORTIONAL:
        return 0.0
    figure = before[1].get(peer, {}).get(way)
    known = figure.get("seconds", figure.get("skipped", 0.0)) if isinstance(figure, dict) else 0.0
    return float(known) * rows / before[0]
