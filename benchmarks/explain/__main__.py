"""Shapley values and leaf ids of compiled models against other libraries: ``python -m benchmarks.explain``.

``prepare`` trains and compiles what is missing, ``measure`` times cells, each peer in its own process and in
turns, and ``report`` writes the tables. Cells are measured by name or by the name of their model, so that a
shared machine can be measured bit by bit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.explain import report
from benchmarks.explain.cases import CASES, Cell, cells
from benchmarks.explain.measure import WORKER, measure
from benchmarks.explain.peers import PEERS
from benchmarks.explain.prepare import packages, prepare
from benchmarks.peers.processes import PeerError, find_interpreters
from benchmarks.peers.results import machine
from benchmarks.pipelines.measure import versions


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted = chosen(options.cells)
    if not wanted:
        parser.error(f"no cell is named {' or '.join(options.cells)}; there are models {', '.join(CASES)}")
    path: Path = options.output / "results.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": {}}
    if options.what != "report":
        for name in dict.fromkeys(cell.case for cell in wanted):
            prepare(CASES[name], options.cache)
    if options.what == "measure":
        _measure(wanted, options, results, path)
    results["bytes"] = {
        name: sizes
        for name, case in CASES.items()
        if all(file.exists() for file in packages(case, options.cache))
        and (sizes := [file.stat().st_size for file in packages(case, options.cache)])
    } or results.get("bytes", {})
    path.write_text(json.dumps(results, indent=1))
    if results["cells"]:
        text = report.markdown(results)
        (options.output / "explain.md").write_text(text)
        print(text)
    return 0


def chosen(names: list[str]) -> list[Cell]:
    """Return the cells whose key is a name or begins with it and a slash; all if there are no names."""
    return [
        cell for cell in cells() if not names or any(f"{cell.key}/".startswith(f"{one}/") for one in names)
    ]


def _measure(wanted: list[Cell], options: argparse.Namespace, results: dict[str, Any], path: Path) -> None:
    with open(options.output / "peers.log", "a") as log:
        pythons = find_interpreters(list(PEERS), dict(options.python), options.environments)
        if "versions" not in results:
            results["versions"] = versions(pythons, WORKER, log)
        results["machine"] = machine()
        installed = {peer: python for peer, python in pythons.items() if results["versions"].get(peer)}
        for cell in wanted:
            if cell.key in results["cells"] and not options.again:
                continue
            try:
                figures = measure(
                    cell,
                    options.cache,
                    installed,
                    log,
                    seconds=options.seconds,
                    most=options.most,
                    cpu=options.cpu_time,
                )
            except PeerError as error:
                print(f"{cell.key}: {error}", file=sys.stderr, flush=True)
                continue
            results["cells"][cell.key] = figures
            results["most"] = options.most
            results["clock"] = "CPU time" if options.cpu_time else "Time"
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(results, indent=1))
            os.replace(unfinished, path)
            print(f"{cell.key}: {report.line(figures)}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("measure", "prepare", "report"), default="measure")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/explain"))
    parser.add_argument("--cells", nargs="+", default=[], metavar="NAME",
                        help="a model, or cells of it such as lightgbm/explain or deep/explain/100; models: "
                        + ", ".join(CASES))  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure finished cells again")
    parser.add_argument("--seconds", type=float, default=1.0, help="to time each way of a peer, in a cell")
    parser.add_argument("--most", type=float, default=3.0, help="longest call; slower peers get fewer rows")
    parser.add_argument("--cpu-time", action="store_true",
                        help="count CPU time: for one thread on a busy machine")  # fmt: skip
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", type=_named,
                        help="interpreter of a peer's environment")  # fmt: skip
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"))
    parser.add_argument("--cache", type=Path, default=Path(".cache/explain"), help="models and packages")
    return parser


def _named(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"expected PEER=PATH with PEER one of {', '.join(PEERS)}")
    return peer, path


if __name__ == "__main__":
    sys.exit(main())
