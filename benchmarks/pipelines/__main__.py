"""hbtvm against its peers on whole pipelines: ``python -m benchmarks.pipelines``.

Times scikit-learn, ONNX Runtime, Hummingbird and hbtvm in turns, each in its own process: from a pandas
frame, with arrays ready (ONNX Runtime's feeds, hbtvm's numpy array or Arrow table) and for one row as a dict;
and compares their answers with scikit-learn's. ``generated`` compiles pipelines made at random in the manner
of OpenML-CC18's, and compares answers.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.processes import find_interpreters
from benchmarks.pipelines import generated, measure, report
from benchmarks.pipelines.cases import CASES, Case
from benchmarks.pipelines.peers import PEERS, Job

ROWS = (1, 100, 10_000, 100_000)
WORKER = "benchmarks.pipelines.worker"


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
            results["versions"] |= measure.versions(pythons, WORKER, log)
            for threads in arguments.threads:
                with measure.Workers(pythons, threads, WORKER, log) as workers:
                    for name, case in cases.items():
                        cells = _measure(name, case, workers, threads, arguments)
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


def _measure(
    name: str, case: Case, workers: measure.Workers, threads: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All cells of one pipeline and number of threads, by ``name/threads/rows``."""
    code = [Path(__file__).with_name(f"{one}.py") for one in ("training", "data")]
    model = measure.fitted(name, case.fit, code, arguments.cache)
    cells: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pipelines-") as folder:
        frame, package = Path(folder, "frame.pkl"), Path(folder, "model.tar")
        frame.write_bytes(pickle.dumps(case.rows(max(20_000, *arguments.rows))))
        job = Job("", str(model), str(package), case.method, threads)

        def prepare(peer: str) -> None:
            if peer == "hbtvm":
                measure.compile_package(model, package, threads, arguments.trials)

        race = workers.ready(job, frame, prepare)
        for rows in arguments.rows:
            cell = measure.time_in_turns(race, rows, Path(folder), _agreement, seconds=arguments.seconds)
            cells[f"{name}/{threads}/{rows}"] = cell
            print(f"{name}, {threads} threads, {rows:,} rows: {report.line(cell, rows)}", file=sys.stderr)
    return cells


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
