"""hbtvm against its peers on whole pipelines: ``python -m benchmarks.pipelines``.

Times scikit-learn, ONNX Runtime, Hummingbird and hbtvm in turns, each in its own process: from a pandas
frame, with arrays ready (ONNX Runtime's feeds, hbtvm's numpy array or Arrow table) and for one row as a dict;
and compares their answers with scikit-learn's. ``generated`` compiles pipelines made at random in the manner
of OpenML-CC18's, and compares answers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.processes import PeerError, Process, find_interpreters
from benchmarks.pipelines import generated, report
from benchmarks.pipelines.cases import CASES, Case
from benchmarks.pipelines.peers import PEERS, Job

ROWS = (1, 100, 10_000, 100_000)
WORKER = "benchmarks.pipelines.worker"
_TURNS = 7


def main() -> int:
    """Run the comparison; returns the exit status."""
    arguments = _parser().parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.what == "generated":
        return generated.main(arguments.output, arguments.count, arguments.seed)
    path = arguments.output / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": {}, "versions": {}}
    cases = {name: case for name, case in CASES.items() if not arguments.cases or name in arguments.cases}
    if arguments.what == "measure":
        with open(arguments.output / "peers.log", "a") as log:
            pythons = find_interpreters(arguments.peers, {}, arguments.environments)
            results["versions"] |= _versions(pythons, log)
            for threads in arguments.threads:
                for name, case in cases.items():
                    cells = _measure(name, case, pythons, threads, arguments, log)
                    results["cells"].update(cells)
                    path.write_text(json.dumps(results, indent=1))
    text = report.markdown(results)
    (arguments.output / "pipelines.md").write_text(text)
    print(text)
    drawn = report.plot(results, arguments.output / "pipelines.svg")
    if drawn is not None:
        print(f"Wrote {drawn}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("measure", "report", "generated"), default="measure")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/pipelines"))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="NAME")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.7, help="to time each way of a peer, in a cell")
    parser.add_argument("--trials", type=int, default=0, help="of hbtvm's search; 0: no search")
    parser.add_argument("--count", type=int, default=200, help="pipelines to generate")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"))
    parser.add_argument(
        "--cache", type=Path, default=Path(".cache/pipelines"), help="folder of fitted pipelines"
    )
    return parser


def _versions(pythons: dict[str, str], log: Any) -> dict[str, Any]:
    found = {}
    for peer, python in pythons.items():
        process = Process(python, 1, log, WORKER)
        with contextlib.suppress(PeerError):
            found[peer] = process.ask("versions", peer=peer)
        process.close()
    return found


def _fitted(name: str, case: Case, cache: Path) -> Path:
    """The file of a fitted pipeline; it is fitted once for each state of the cases' code."""
    code = b"".join(Path(__file__).with_name(f"{one}.py").read_bytes() for one in ("cases", "data"))
    path = cache / f"{name}-{hashlib.sha256(code).hexdigest()[:8]}.pkl"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(case.fit()))
    return path


def _compile(model: Path, package: Path, threads: int, trials: int) -> None:
    """Compile a pipeline in a process of its own."""
    verb = ["tune", "--trials", str(trials)] if trials else ["compile"]
    command = [
        sys.executable,
        "-m",
        "hbtvm",
        *verb,
        str(model),
        "-o",
        str(package),
        "--threads",
        str(threads),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed")


def _measure(
    name: str, case: Case, pythons: dict[str, str], threads: int, arguments: argparse.Namespace, log: Any
) -> dict[str, Any]:
    """All cells of one pipeline and number of threads, by ``name/threads/rows``."""
    model = _fitted(name, case, arguments.cache)
    cells: dict[str, Any] = {f"{name}/{threads}/{rows}": {} for rows in arguments.rows}
    with tempfile.TemporaryDirectory(prefix="pipelines-") as folder, contextlib.ExitStack() as stack:
        frame = Path(folder, "frame.pkl")
        frame.write_bytes(pickle.dumps(case.rows(max(20_000, *arguments.rows))))
        job = Job("", str(model), str(Path(folder, "model.tar")), case.method, threads)
        workers, ways = {}, {}
        for peer, python in pythons.items():
            try:
                if peer == "hbtvm":
                    _compile(model, Path(job.package), threads, arguments.trials)
                process = Process(python, threads, log, WORKER)
                stack.callback(process.close)
                given = dataclasses.asdict(dataclasses.replace(job, peer=peer))
                ways[peer] = process.ask("load", 240.0, job=given, frame=str(frame))
                workers[peer] = process
            except PeerError as error:
                for cell in cells.values():
                    cell[peer] = {"failed": str(error)[:200]}
        for rows in arguments.rows:
            cell = cells[f"{name}/{threads}/{rows}"]
            _cell(cell, rows, workers, ways, arguments.seconds, Path(folder))
            print(f"{name}, {threads} threads, {rows:,} rows: {report.line(cell, rows)}", file=sys.stderr)
    return cells


def _cell(
    cell: dict[str, Any],
    rows: int,
    workers: dict[str, Process],
    ways: dict[str, list[str]],
    seconds: float,
    folder: Path,
) -> None:
    """Time all ways of all peers in turns; compare answers with scikit-learn's from the frame."""
    calls: dict[tuple[str, str], int] = {}
    expected = None
    for peer, process in workers.items():
        figures: dict[str, Any] = {}
        cell[peer] = figures
        for way in ways[peer]:
            if way == "dict" and rows > 1:
                continue
            try:
                took = process.ask("calibrate", 240.0, way=way, rows=rows)
                to = folder / "outputs.npy"
                process.ask("outputs", 240.0, way=way, rows=rows, to=str(to))
            except PeerError as error:
                figures[way] = {"failed": str(error)[:200]}
                continue
            got = np.load(to, allow_pickle=True)
            if peer == "sklearn":
                expected = got
            figures[way] = {"agrees": None if expected is None else _agreement(got, expected)}
            calls[peer, way] = max(1, round(seconds / _TURNS / took))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for _ in range(_TURNS):
        for (peer, way), count in calls.items():
            if count == 1 and len(times[peer, way]) >= 3:
                continue
            time.sleep(0.01)
            times[peer, way].append(workers[peer].ask("time", 240.0, way=way, rows=rows, calls=count))
    for (peer, way), found in times.items():
        cell[peer][way]["seconds"] = statistics.median(found)


def _agreement(got: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    """Largest relative difference, and the share of rows with another label."""
    if got.shape[1] == 1 and expected.shape[1] == 2:
        got = np.hstack([1 - got, got])
    if got.shape != expected.shape or got.dtype == object:
        return {"difference": float("inf"), "labels_off": 1.0}
    off = np.abs(got - expected) / np.maximum(np.abs(expected), 1e-3)
    labels = got.argmax(1) != expected.argmax(1)
    return {"difference": float(off.max()), "labels_off": float(labels.mean())}


if __name__ == "__main__":
    sys.exit(main())
