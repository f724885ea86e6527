"""Measures cells: each peer in a process of its own, checked against float64 first, then timed in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import locked
from benchmarks.peers.measure import UNFIT, Say, Settings, take_turns
from benchmarks.peers.processes import PeerError, Process
from benchmarks.recursive import reference
from benchmarks.recursive.jobs import Job
from benchmarks.recursive.peers import PEERS

WORKER = "benchmarks.recursive.worker"


@contextlib.contextmanager
def process(settings: Settings, peer: str, threads: int = 1) -> Iterator[Process]:
    """A peer's process."""
    made = Process(settings.pythons[peer], threads, settings.log, WORKER)
    try:
        yield made
    finally:
        made.close()


def versions(settings: Settings) -> dict[str, dict[str, str]]:
    """Versions of the packages of each peer that is installed."""
    found = {}
    for peer in settings.pythons:
        with process(settings, peer) as one, contextlib.suppress(PeerError):
            told = one.ask("versions", peer=peer)
            if told is not None:
                found[peer] = told
    return found


def package(job: Job, settings: Settings, say: Say) -> dict[str, Any]:
    """Let hbtvm compile; returns ``convert_seconds`` and ``configs``, or ``failed``."""
    with process(settings, "hbtvm", job.threads) as one:
        try:
            # A trial takes a second or so.
            limit = settings.convert_limit + 5.0 * job.trials
            told = one.ask("convert", limit, job=dataclasses.asdict(job))
        except PeerError as error:
            say(f"  hbtvm: {error}")
            return {"failed": str(error)}
    return {"convert_seconds": told["seconds"], "configs": told["configs"]}


def race(
    jobs: Mapping[str, Job], made: Mapping[str, dict[str, Any]], settings: Settings, say: Say
) -> dict[str, Any]:
    """Measure one cell.

    Parameters
    ----------
    jobs
        The same model and batch, by name: of the peers, or of what else is compared.
    made
        Figures of packages by the same names, see `package`; those that failed are not tried.
    settings, say
        As in `benchmarks.peers.measure`.

    Returns
    -------
    Figures by name: ``failed``, a text; or ``seconds`` of a call (median) and its ``quartiles``,
    ``difference`` of all states (see `reference.difference`), ``ready_seconds`` until the first call was
    done, and ``memory``, bytes."""
    job = next(iter(jobs.values()))
    expected = reference.states(job.model, job.hidden, job.linear)
    figures: dict[str, Any] = {name: dict(made.get(name, {})) for name in jobs}
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory(prefix="recursive-") as folder:
        workers: dict[str, Process] = {}
        for name, one in jobs.items():
            if one.model not in PEERS[one.peer].models:
                figures[name]["failed"] = UNFIT
            if "failed" in figures[name]:
                continue
            worker = Process(settings.pythons[one.peer], one.threads, settings.log, WORKER)
            stack.callback(worker.close)
            try:
                figures[name] |= _checked(worker, one, expected, Path(folder, "states.npy"), settings)
                workers[name] = worker
            except PeerError as error:
                figures[name]["failed"] = str(error)
                say(f"  {name}: {error}")
        with locked(settings.lock):
            timed = take_turns(job.size, workers, settings, Path(folder))
        for name in workers:
            figures[name] |= {key: value for key, value in timed[name].items() if key != "way"}
    return figures


def _checked(
    worker: Process, job: Job, expected: np.ndarray, saved: Path, settings: Settings
) -> dict[str, float]:
    """Load a model, and compare all states.

    Raises
    ------
    PeerError
        If it fails, or its states are others.
    """
    # What is derived from the fields is derived again there.
    took = worker.ask("load", settings.convert_limit, job=dataclasses.asdict(job))
    # Before the check, which keeps more than a call does.
    memory = worker.ask("memory")
    worker.ask("states", settings.convert_limit, to=str(saved))
    apart = reference.difference(np.load(saved), expected)
    if apart > reference.AGREES:
        raise PeerError(f"its states are {apart:.1e} off")
    return {"difference": apart, "ready_seconds": took["seconds"], "memory": memory}
