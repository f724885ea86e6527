"""Measures the cells of one model: each library in a program of its own, measurements interleaved."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import locked
from benchmarks.native.interfaces import INTERFACES, Order
from benchmarks.native.programs import Program
from benchmarks.peers.cells import Cell
from benchmarks.peers.libraries import LIBRARIES, Job
from benchmarks.peers.measure import UNFIT, Say, Settings, artifact_name, convert, take_turns
from benchmarks.peers.processes import PeerError, Process


def measure(
    about: dict[str, Any], cells: Sequence[Cell], settings: Settings, say: Say
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Measure cells that share a model; as `benchmarks.peers.measure.measure`, by calls from C."""
    batches = tuple(sorted({cell.rows for cell in cells}))
    with tempfile.TemporaryDirectory(prefix="native-") as name:
        folder = Path(name)
        rows = folder / "rows.bin"
        np.load(about["rows"]).tofile(rows)
        converted: dict[str, Any] = {}
        expected: dict[int, np.ndarray] = {}
        for threads in sorted({cell.threads for cell in cells}):
            jobs = {
                peer: Job(
                    peer=peer,
                    model=cells[0].model,
                    path=about["path"],
                    task=about["task"],
                    features=about["features"],
                    artifact=str(folder / artifact_name(peer, threads)),
                    threads=threads,
                    batches=batches,
                    search=settings.search,
                    time_budget=settings.time_budget,
                    mcpu=settings.mcpu,
                )
                for peer in settings.pythons
            }
            for peer, job in jobs.items():
                again = LIBRARIES[peer].for_threads and "failed" not in converted.get(peer, {})
                if peer not in converted or again:
                    converted[peer] = _convert(job, settings, say)
            expected = expected or _expected(about, jobs, settings, folder)
            with contextlib.ExitStack() as stack:
                programs, failed = {}, {p: f for p, f in converted.items() if "failed" in f}
                for peer in [peer for peer in jobs if peer not in failed]:
                    order = Order(jobs[peer], about["classes"], settings.pythons[peer], folder)
                    try:
                        programs[peer] = _started(order, rows, settings, stack, converted[peer])
                    except PeerError as error:
                        say(f"  {peer}: {error}")
                        failed[peer] = converted[peer] = {"failed": str(error)}
                for cell in [cell for cell in cells if cell.threads == threads]:
                    with locked(settings.lock):
                        figures = take_turns(cell.rows, programs, settings, folder, expected[cell.rows])
                    for peer, program in list(programs.items()):
                        if "failed" in figures[peer]:
                            del programs[peer]
                            failed[peer] = figures[peer]
                        else:
                            figures[peer].update(converted[peer], memory=program.ask("memory"))
                    yield cell, {**figures, **failed}


def _convert(job: Job, settings: Settings, say: Say) -> dict[str, Any]:
    interface = INTERFACES[job.peer]
    if job.model not in interface.models:
        return {"failed": UNFIT}
    return convert(job, settings, say) if interface.converts else {}


def _started(
    order: Order, rows: Path, settings: Settings, stack: contextlib.ExitStack, figures: dict[str, Any]
) -> Program:
    """A program that has loaded its model."""
    job = order.job
    program, arguments = INTERFACES[job.peer].make(order)
    arguments = {**arguments, "rows": rows, "features": job.features, "threads": job.threads}
    process = Program(program, arguments, job.threads, settings.log)
    stack.callback(process.close)
    took = process.ask("open", settings.convert_limit)
    figures.setdefault("convert_seconds", took["seconds"])
    return process


def _expected(
    about: dict[str, Any], jobs: dict[str, Job], settings: Settings, folder: Path
) -> dict[int, np.ndarray]:
    """What the library that trained the model gives, by rows per call."""
    job = dataclasses.replace(next(iter(jobs.values())), peer="native", threads=1)
    process = Process(settings.pythons.get("native", sys.executable), 1, settings.log)
    try:
        process.ask("load", settings.convert_limit, job=dataclasses.asdict(job), rows=about["rows"])
        found = {}
        for n in job.batches:
            process.ask("calibrate", settings.convert_limit, rows=n)
            process.ask("outputs", settings.convert_limit, rows=n, to=str(folder / "expected.npy"))
            found[n] = np.load(folder / "expected.npy")
        return found
    finally:
        process.close()
