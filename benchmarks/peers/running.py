"""Runs a comparison of hbtvm with its peers: options, models, results, report.

A comparison may be stopped at any time, and carries on where it was stopped: finished cells are skipped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import plot, report
from benchmarks.peers.artifacts import Artifacts
from benchmarks.peers.cells import DATA, GRID, LIBRARIES, MODELS, PAIRS, QUICK, ROWS, THREADS, Cell, grid
from benchmarks.peers.libraries import LIBRARIES as PEERS
from benchmarks.peers.measure import Say, Settings
from benchmarks.peers.processes import PeerError, Process, find_interpreters
from benchmarks.peers.report import Goals
from benchmarks.peers.results import Results

Measure = Callable[[dict[str, Any], Sequence[Cell], Settings, Say], Iterator[tuple[Cell, dict[str, Any]]]]


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how it is told.

    Attributes
    ----------
    name
        What is typed to run it, and the folder of its results.
    about
        What it says of itself.
    peers
        Names, of those in `libraries.LIBRARIES`.
    measure
        Measures the cells of a model, see `measure.measure`.
    title, goals
        Of the report.
    """

    name: str
    about: str | None
    peers: Sequence[str]
    measure: Measure
    title: str = "hbtvm and its peers"
    goals: Goals = field(default_factory=Goals)


def run(comparison: Comparison) -> int:
    """Run a comparison, as the options say; returns the exit status."""
    parser = _parser(comparison)
    arguments = parser.parse_args()
    if arguments.draw is not None:
        drawn = plot.redraw(arguments.draw)
        if drawn is not None:
            print(f"Wrote {drawn}.")
        return 0
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    try:
        results = Results(folder / "results.json")
    except ValueError as error:
        parser.error(str(error))
    if not arguments.report:
        # On SIGINT and SIGTERM the peers' processes are ended as well.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            _measure(comparison, arguments, results, folder)
        except KeyboardInterrupt:
            print("\nStopped; the same command carries on.", flush=True)
    if not results.cells:
        print("Nothing was measured.")
        return 1
    text = report.markdown(results, comparison.title, comparison.goals)
    (folder / "results.md").write_text(text)
    print(f"\n{text}")
    for picture in plot.plots(results, folder):
        print(f"Wrote {picture}.")
    print(f"Wrote {folder / 'results.md'} and {folder / 'results.json'}.")
    return 0


def _parser(comparison: Comparison) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{comparison.name}", description=comparison.about
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build", comparison.name), help="folder of the results"
    )
    choices = (("models", MODELS, GRID), ("data", DATA, DATA), ("peers", comparison.peers, comparison.peers))
    for name, known, default in choices:
        parser.add_argument(f"--{name}", nargs="+", choices=list(known), default=list(default),
                            metavar="NAME", help=", ".join(known))  # fmt: skip
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), metavar="N", help="rows per call")
    parser.add_argument("--threads", nargs="+", type=int, default=list(THREADS), metavar="N")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="type of the rows")
    parser.add_argument("--quick", action="store_true", help="six representative models")
    parser.add_argument(
        "--no-search", action="store_true", help="hbtvm compiles with defaults, and does not tune"
    )
    parser.add_argument("--time-budget", type=float, metavar="S", help="seconds that hbtvm may search")
    parser.add_argument("--cpu-time", action="store_true",
                        help="count CPU time: for one thread on a busy machine, from Python")  # fmt: skip
    parser.add_argument("--mcpu", metavar="NAME",
                        help="CPU that hbtvm compiles for, such as x86-64-v3; default: this")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure finished cells again")
    parser.add_argument("--report", action="store_true", help="measure nothing, only write the report")
    parser.add_argument("--draw", type=Path, metavar="REPORT.md",
                        help="measure nothing, draw the ratios of a report anew beside it")  # fmt: skip
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", type=_named,
                        help="interpreter of a peer's environment")  # fmt: skip
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"), metavar="FOLDER",
                        help="folder with an environment per peer, by its name")  # fmt: skip
    parser.add_argument("--cache", type=Path, default=Path(".cache/peers"), help="folder of trained models")
    parser.add_argument("--artifacts", type=Path, metavar="FOLDER",
                        help="keep here what peers compile or convert, and take it from here")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=9, help="turns of each peer")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure each peer for, in a cell")
    parser.add_argument("--convert-limit", type=float, default=300.0, metavar="S",
                        help="most seconds that a peer may take to compile or convert")  # fmt: skip
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock this file while timing, as flock(1) does"
    )
    return parser


def _named(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in PEERS or not path:
        raise argparse.ArgumentTypeError(
            f"expected PEER=PATH with PEER one of {', '.join(PEERS)}, got {text!r}"
        )
    return peer, path


def _measure(comparison: Comparison, arguments: argparse.Namespace, results: Results, folder: Path) -> None:
    known = QUICK if arguments.quick else PAIRS
    pairs = [(m, d) for m, d in known if m in arguments.models and d in arguments.data]
    search = not arguments.no_search
    with open(folder / "peers.log", "a") as log:
        pythons = find_interpreters(arguments.peers, dict(arguments.python), arguments.environments)
        settings = Settings(
            pythons,
            search,
            arguments.time_budget,
            arguments.rounds,
            arguments.seconds,
            arguments.convert_limit,
            log,
            arguments.lock,
        )
        versions = _versions(settings, sorted({LIBRARIES[model] for model, _ in pairs}))
        missing = [peer for peer in arguments.peers if peer not in versions]
        if missing:
            print(f"Not installed, so left out: {', '.join(missing)} (see benchmarks/PEERS.md).", flush=True)
        settings = dataclasses.replace(
            settings,
            pythons={peer: pythons[peer] for peer in versions},
            artifacts=Artifacts(arguments.artifacts, versions) if arguments.artifacts else None,
            mcpu=arguments.mcpu,
            cpu_time=arguments.cpu_time,
        )
        for (model, data), cells in grid(pairs, arguments.rows, arguments.threads, arguments.dtype).items():
            open_cells = [
                cell
                for cell in cells
                if arguments.again or not results.has(cell, list(versions), search, arguments.mcpu)
            ]
            if not open_cells:
                print(f"{cells[0].title}: finished before.", flush=True)
                continue
            print(f"{cells[0].title}:", flush=True)
            about = _train(model, data, arguments.cache)
            native = {LIBRARIES[model]: versions.get("native", {}).get(LIBRARIES[model], "unknown")}
            used = {**versions, "native": native}
            measured = comparison.measure(about, open_cells, settings, lambda line: print(line, flush=True))
            for cell, figures in measured:
                results.add(cell, figures, search=search, mcpu=arguments.mcpu, versions=used, model=about)
                print(f"  {_line(cell, figures)}", flush=True)


def _versions(settings: Settings, libraries: list[str]) -> dict[str, dict[str, str]]:
    """Versions of the packages of each peer that is installed; `libraries` trained the models."""
    found = {}
    for peer, python in settings.pythons.items():
        packages = libraries if peer == "native" else []
        process = Process(python, 1, settings.log)
        try:
            answer = process.ask("versions", peer=peer, packages=packages)
        except PeerError:
            answer = None
        finally:
            process.close()
        if answer is not None:
            found[peer] = answer
    return found


def _train(model: str, data: str, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.peers.train", model, data, str(cache.absolute())]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    about: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return about


def _line(cell: Cell, figures: dict[str, Any]) -> str:
    """A cell in a line, fastest first."""
    done: Sequence[tuple[float, str]] = sorted(
        (figure["seconds"], peer) for peer, figure in figures.items() if "seconds" in figure
    )
    times = ", ".join(f"{peer} {report.per_row(seconds, cell.rows)}" for seconds, peer in done)
    return f"{cell.rows:>6,} rows, {cell.threads} threads: {times}"
