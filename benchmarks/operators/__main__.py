"""hbtvm against its peers on single operators: ``python -m benchmarks.operators``.

Times scikit-learn, ONNX Runtime, Hummingbird, scikit-learn-intelex (oneDAL) and hbtvm in turns, each in its
own process, with rows ready as arrays, and compares answers with scikit-learn's. Finished cells are kept in
the output folder, so a run may be stopped and carried on; ``report`` only writes tables and picture again.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.operators import plot, report
from benchmarks.operators.cases import Case, cases
from benchmarks.operators.peers import PEERS
from benchmarks.peers.processes import find_interpreters
from benchmarks.pipelines import measure
from benchmarks.pipelines.peers import Job

ROWS = (1, 100, 10_000, 100_000, 1_000_000)
WORKER = "benchmarks.operators.worker"


def main() -> int:
    """Run the comparison; returns the exit status."""
    arguments = _parser().parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": {}, "versions": {}}
    chosen = {name: one for name, one in cases().items() if re.search(arguments.only, name)}
    if arguments.what == "measure":
        with open(arguments.output / "peers.log", "a") as log:
            pythons = find_interpreters(arguments.peers, {}, arguments.environments)
            told = measure.versions(pythons, WORKER, log)
            pythons = {peer: python for peer, python in pythons.items() if told.get(peer)}
            results["versions"] |= {peer: told[peer] for peer in pythons}
            for threads in arguments.threads:
                with measure.Workers(pythons, threads, WORKER, log) as workers:
                    for name, case in chosen.items():
                        _measure(name, case, workers, threads, arguments, results["cells"])
                        path.write_text(json.dumps(results, indent=1))
    text = report.markdown(results)
    (arguments.output / "operators.md").write_text(text)
    print(text)
    drawn = plot.draw(results, arguments.output / "operators.svg")
    if drawn is not None:
        print(f"Wrote {drawn}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("measure", "report"), default="measure")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/operators"))
    parser.add_argument("--only", default="", metavar="REGEX", help="operators whose title has it")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="NAME")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="of the rows")
    parser.add_argument("--seconds", type=float, default=0.5, help="to time each peer, in a cell")
    parser.add_argument("--most", type=float, default=4.0, help="longest call that is timed, in seconds")
    parser.add_argument("--trials", type=int, default=0, help="of hbtvm's search; 0: no search")
    parser.add_argument(
        "--mcpu", metavar="NAME", help="LLVM name of the CPU whose instructions hbtvm may use"
    )
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time instead of wall time")
    parser.add_argument("--again", action="store_true", help="measure finished cells again")
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"))
    parser.add_argument("--cache", type=Path, default=Path(".cache/operators"), help="folder of models")
    return parser


def _measure(
    name: str,
    case: Case,
    workers: measure.Workers,
    threads: int,
    arguments: argparse.Namespace,
    cells: dict[str, Any],
) -> None:
    """Add the cells of one operator and number of threads, by ``name/dtype/threads/rows``."""
    dtype: str = arguments.dtype
    sizes = sorted(rows for rows in arguments.rows if rows <= case.most)
    keys = {rows: f"{name}/{dtype}/{threads}/{rows}" for rows in sizes}
    if not sizes or (not arguments.again and all(key in cells for key in keys.values())):
        return
    code = [Path(__file__).with_name(f"{one}.py") for one in ("cases", "data")]
    model = measure.fitted(f"{name} {dtype}", lambda: case.fit(dtype), code, arguments.cache)
    with tempfile.TemporaryDirectory(prefix="operators-") as folder:
        made, package = Path(folder, "rows.pkl"), Path(folder, "model.tar")
        made.write_bytes(pickle.dumps(case.rows(max(20_000, sizes[-1]), dtype), protocol=5))
        job = Job("", str(model), str(package), case.method, threads, name, dtype)

        def prepare(peer: str) -> None:
            if peer == "hbtvm":
                target = {"kind": "llvm", "mcpu": arguments.mcpu}
                more = ["--target", json.dumps(target)] if arguments.mcpu else []
                measure.compile_package(model, package, threads, arguments.trials, dtype, *more)

        race = workers.ready(job, made, prepare)
        before = None
        for rows in sizes:
            cell = measure.time_in_turns(
                race,
                rows,
                Path(folder),
                compare,
                seconds=arguments.seconds,
                most=arguments.most,
                before=before,
                cpu_time=arguments.cpu_time,
            )
            before = rows, cell
            cells[keys[rows]] = cell
            told = report.line(cell, rows)
            print(f"{name}, {dtype}, {threads} threads, {rows:,} rows: {told}", file=sys.stderr)


def compare(got: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    """How far answers are from those that are expected, shape (n, columns) of both.

    Returns
    -------
    ``difference``: the largest, relative to the number or to a hundredth of the largest one if it is smaller;
    of what is no number 0 or 1. ``off``, ``far``: the shares of rows with a difference of more than
    `report.OFF` and `report.FAR`.
    """
    if got.shape != expected.shape:
        return {"difference": float("inf"), "off": 1.0, "far": 1.0}
    if not all(one.dtype.kind in "fiub" for one in (got, expected)):
        apart = (got.astype(str) != expected.astype(str)).astype(float)
    else:
        a, b = got.astype(float), expected.astype(float)
        scale = max(1e-2 * float(np.nanmax(np.abs(b), initial=0.0)), 1e-300)
        missing = np.isnan(a) | np.isnan(b)
        apart = np.abs(a - b) / np.maximum(np.abs(b), scale)
        apart[missing] = (np.isnan(a) != np.isnan(b))[missing]
    off, far = (float((apart > most).any(1).mean()) for most in (report.OFF, report.FAR))
    return {"difference": float(apart.max()), "off": off, "far": far}


if __name__ == "__main__":
    sys.exit(main())
