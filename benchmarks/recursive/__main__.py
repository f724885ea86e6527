"""hbtvm against its peers on recursive models: ``python -m benchmarks.recursive``.

Times torch node by node, level by level and through its compiler, its layers and ONNX Runtime for sequences,
DyNet, DGL and hbtvm in turns, each in its own process (see PEERS.md beside this package), after all states
were compared with those computed in float64. ``ablation``, ``unrolling``, ``hidden`` and ``linearise``
measure hbtvm's optimisations step by step, two levels at a time, latency against the hidden size, and
linearisation; ``all`` is everything; ``report`` only writes tables and pictures again. It may be stopped at
any time, and carries on where it was stopped."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.measure import Settings
from benchmarks.peers.processes import PeerError, Process, find_interpreters
from benchmarks.recursive import measure, plot, report
from benchmarks.recursive.cases import MODELS, VOCABULARY, operations, recurrent_bytes
from benchmarks.recursive.jobs import Job
from benchmarks.recursive.limits import bound
from benchmarks.recursive.peers import PEERS
from benchmarks.recursive.results import Cell, Results
from benchmarks.recursive.structures import Linear, batch
from benchmarks.recursive.studies import (
    ABLATION_MODELS,
    HIDDEN,
    HIDDEN_MODELS,
    HIDDEN_PEERS,
    PAPER_LINEARISE,
    STEPS,
    UNROLLING,
    UNROLLING_MODELS,
    WHOLE,
)

RESTRICTIONS = {
    "x86-64-v3": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "x86-64-v4": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
}
"""Environment that restricts torch and its libraries to a CPU's instructions, by ``--mcpu``."""

STUDIES = ("measure", "ablation", "unrolling", "hidden", "linearise")


def main() -> int:
    """Run the comparison; returns the exit status."""
    parser = _parser()
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("quartiles need at least 2 rounds")
    given.output.mkdir(parents=True, exist_ok=True)
    os.environ.update(RESTRICTIONS.get(given.mcpu, {}))
    try:
        results = Results(given.output / "results.json", given.mcpu)
    except ValueError as error:
        parser.error(str(error))
    if given.what != "report":
        # On SIGINT and SIGTERM the peers' processes are ended as well.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            with open(given.output / "peers.log", "a") as log:
                settings = _settings(given, log)
                run = Run(given, results, settings)
                for study in STUDIES if given.what == "all" else (given.what,):
                    getattr(run, study)()
        except KeyboardInterrupt:
            print("\nStopped; the same command carries on.", flush=True)
    text = report.markdown(results)
    (given.output / "recursive.md").write_text(text)
    print(f"\n{text}")
    for picture in plot.plots(results, given.output):
        print(f"Wrote {picture}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recursive", description=__doc__)
    parser.add_argument("what", nargs="?", choices=(*STUDIES, "all", "report"), default="measure")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/recursive"), help="folder of the results"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME",
                        help=", ".join(MODELS))  # fmt: skip
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="NAME",
                        help=", ".join(PEERS))  # fmt: skip
    parser.add_argument(
        "--hidden", nargs="+", type=int, metavar="H", help="hidden sizes, in place of each model's"
    )
    parser.add_argument("--batch", nargs="+", type=int, choices=(1, 10), default=[1, 10], metavar="N",
                        help="structures per call")  # fmt: skip
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument("--trials", type=int, default=0, help="of hbtvm's search for a model; 0: no search")
    parser.add_argument("--mcpu", choices=list(RESTRICTIONS),
                        help="instructions that hbtvm and torch may use; default: all")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure finished cells again")
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"), metavar="FOLDER",
                        help="folder with environments of DyNet, DGL and ONNX Runtime")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=9, help="turns of each peer")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each peer for, in a cell")
    parser.add_argument("--convert-limit", type=float, default=300.0, metavar="S",
                        help="most seconds that a peer may take to compile and to load")  # fmt: skip
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock this file while timing, as flock(1) does"
    )
    return parser


def _settings(given: argparse.Namespace, log: Any) -> Settings:
    """How to measure, with the interpreters of all peers that are installed."""
    environments = sorted({PEERS[name].environment for name in given.peers} - {""})
    found = find_interpreters(environments, {}, given.environments)
    pythons = {name: found.get(PEERS[name].environment, sys.executable) for name in given.peers}

    def settings(pythons: dict[str, str]) -> Settings:
        return Settings(
            pythons, False, None, given.rounds, given.seconds, given.convert_limit, log, given.lock
        )

    versions = measure.versions(settings(pythons))
    missing = [PEERS[name].title for name in given.peers if name not in versions]
    if missing:
        print(f"Not installed, so left out: {', '.join(missing)} (see benchmarks/PEERS.md).", flush=True)
    return settings({name: pythons[name] for name in versions})


class Run:
    """The studies, as the options say.

    Parameters
    ----------
    given
        Options.
    results
        Where finished cells are kept.
    settings
        How to measure.
    """

    def __init__(self, given: argparse.Namespace, results: Results, settings: Settings) -> None:
        self._given, self._results, self._settings = given, results, settings
        results.versions |= measure.versions(settings)
        if given.again:
            results.limits.clear()

    def measure(self) -> None:
        """Each model with all peers."""
        for model in [name for name in self._given.models if MODELS[name].family != "study"]:
            self._compare(model, self._given.hidden or MODELS[model].hidden, list(self._settings.pythons))

    def hidden(self) -> None:
        """Latency against hidden size: some models, peers of interest, one thread."""
        peers = [name for name in HIDDEN_PEERS if name in self._settings.pythons]
        for model in [name for name in HIDDEN_MODELS if name in self._given.models]:
            self._compare(model, self._given.hidden or HIDDEN, peers, threads=(1,))

    def _compare(
        self, model: str, sizes: Sequence[int], peers: Sequence[str], threads: Sequence[int] | None = None
    ) -> None:
        trials = self._given.trials
        for hidden, count in itertools.product(sizes, threads or self._given.threads):
            cells = [Cell(model, hidden, size, count) for size in self._given.batch]
            have = self._results.cells
            open_cells = [
                one
                for one in cells
                if self._given.again
                or one not in have
                or not {*peers} <= {*have[one]["peers"]}
                or ("hbtvm" in peers and have[one]["trials"] != trials)
            ]
            if open_cells:
                made = self._race(open_cells, {name: {"peer": name} for name in peers}, trials)
                for cell, told in made:
                    # It replaces what was there, since only peers measured together compare.
                    self._results.add(have, cell, {**told, "trials": trials})
                    print(report.line(cell, told), flush=True)

    def ablation(self) -> None:
        """hbtvm with one optimisation more from step to step, in turns; one thread."""
        self._study(ABLATION_MODELS, (*STEPS, (WHOLE, {})), self._results.ablation, (1,))

    def unrolling(self) -> None:
        """hbtvm with two levels at a time and with one, in turns."""
        self._study(UNROLLING_MODELS, UNROLLING, self._results.unrolling, self._given.threads)

    def _study(
        self,
        models: Sequence[str],
        configs: Sequence[tuple[str, Mapping[str, Any]]],
        have: dict[Cell, dict[str, Any]],
        threads: Sequence[int],
    ) -> None:
        """hbtvm with schedule choices, by name."""
        steps = {name: {"peer": "hbtvm", "config": config} for name, config in configs}
        if "hbtvm" not in self._settings.pythons:
            return
        for model in [name for name in models if name in self._given.models]:
            for hidden, count in itertools.product(self._given.hidden or MODELS[model].hidden, threads):
                cells = [Cell(model, hidden, size, count) for size in self._given.batch]
                open_cells = [
                    one
                    for one in cells
                    if self._given.again or one not in have or not {*steps} <= {*have[one]["peers"]}
                ]
                for cell, told in self._race(open_cells, steps, 0):
                    self._results.add(have, cell, told)
                    print(report.line(cell, told), flush=True)

    def _race(
        self, cells: Sequence[Cell], entrants: Mapping[str, Mapping[str, Any]], trials: int
    ) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Measure cells of one model, hidden size and number of threads."""
        with tempfile.TemporaryDirectory(prefix="recursive-") as folder:
            made: dict[str, dict[str, Any]] = {}
            for cell in cells:
                jobs = {}
                for number, (name, fields) in enumerate(entrants.items()):
                    package = str(Path(folder, f"{number}.tar")) if fields["peer"] == "hbtvm" else ""
                    jobs[name] = Job(
                        model=cell.model,
                        hidden=cell.hidden,
                        size=cell.size,
                        threads=cell.threads,
                        package=package,
                        trials=trials if package else 0,
                        mcpu=self._given.mcpu,
                        **fields,
                    )
                    if package and name not in made:
                        made[name] = measure.package(jobs[name], self._settings, _say)
                linear = next(iter(jobs.values())).linear
                yield (
                    cell,
                    {
                        "peers": measure.race(jobs, made, self._settings, _say),
                        "bound": bound(cell.model, cell.hidden, linear, self._limits(cell)),
                        "operations": operations(cell.model, cell.hidden, linear),
                        "levels": len(linear.levels),
                    },
                )

    def _limits(self, cell: Cell) -> dict[str, Any]:
        """The machine's limits for a cell; what is missing is measured."""
        known: dict[str, Any] = self._results.limits.setdefault(str(cell.threads), {})
        size = recurrent_bytes(cell.model, cell.hidden)
        if str(size) not in known.get("read", {}):
            every = [recurrent_bytes(name, one) for name, model in MODELS.items() for one in model.hidden]
            sizes = [size] if known else [*every, size]
            # A process of its own, for torch's threads.
            found = self._ask(partial(_limits, threads=cell.threads, sizes=sizes), cell.threads)
            # Of several measurements the faster product holds.
            known["product"] = max(found["product"], known.get("product", 0.0))
            known["read"] = {**known.get("read", {}), **found["read"]}
            self._results.write()
        return known

    def _ask(self, what: Callable[[Process], Any], threads: int = 1) -> Any:
        """Ask a process of this environment."""
        here = Settings({"": sys.executable}, False, None, 1, 1.0, 300.0, self._settings.log)
        with measure.process(here, "", threads) as one:
            return what(one)

    def linearise(self) -> None:
        """The linearizer alone, called from C."""
        for key in PAPER_LINEARISE:
            if key in self._results.linearise and not self._given.again:
                continue
            kind, size = key.split("/")
            model = next(name for name, one in MODELS.items() if one.kind == kind)
            job = {"peer": "hbtvm", "model": model, "hidden": 16, "size": int(size), "threads": 1}
            nodes = Linear(batch(kind, int(size), VOCABULARY)).nodes
            calls = max(10, int(self._given.seconds / 9 / (nodes * 20e-9)))
            try:
                told = self._ask(partial(_linearised, job=job, calls=calls))
            except PeerError as error:
                _say(f"linearise {key}: {error}")
                continue
            self._results.linearise[key] = {**told, "nodes": nodes}
            self._results.write()
            _say(f"linearise {key}: {told['seconds'] * 1e6:.2f} µs")


def _linearised(one: Process, **request: Any) -> Any:
    return one.ask("linearise", 300.0, **request)


def _limits(one: Process, **request: Any) -> Any:
    return one.ask("limits", 300.0, **request)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
