"""Estimated cycles on 64-bit Arm CPUs: ``python -m benchmarks.arm``.

Nothing is timed, so no such machine is needed. LightGBM forests are compiled by hbtvm, lleaves and treelite
(tl2cgen) for one CPU. QEMU runs the programs and counts how often each basic block runs; results are
compared. A block's cycles are those of LLVM's model of the CPU (llvm-mca), without cache misses.
Branches that go the rarer of their two ways are added, with the penalty of a misprediction. Code that exceeds
the caches for instructions, as trees compiled to branches do, is estimated too fast.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.arm import estimate, programs, trace
from benchmarks.common import higgs_like, lightgbm_model, markdown

CPUS = ("neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1")
FORESTS = {"31 leaves": {"leaves": 31}, "depth 8": {"leaves": 256, "depth": 8}}
FEATURES = 28

_COUNTED = 512
"""Rows over which blocks are counted. Over few, most branches of large trees run once, so none seems rare."""

Figure = tuple[float, float]
"""Cycles of a row, and those of them that are mispredictions'."""


def main() -> None:
    """Print a table of estimates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arm", description=__doc__)
    parser.add_argument("--cpus", nargs="+", default=list(CPUS), metavar="NAME")
    parser.add_argument("--mcpu", default=CPUS[0], metavar="NAME", help="CPU that code is compiled for")
    parser.add_argument("--strategies", nargs="+", metavar="NAME", help="of hbtvm; default: its choice")
    parser.add_argument("--forests", nargs="+", choices=list(FORESTS), default=list(FORESTS))
    parser.add_argument(
        "--libraries", nargs="+", choices=programs.LIBRARIES, default=list(programs.LIBRARIES)
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 128], metavar="N", help="rows of a call")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--penalty", type=float, default=11.0, help="cycles of a misprediction")
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"), metavar="FOLDER")
    parser.add_argument(
        "--llvm", type=Path, default=Path("/usr/lib/llvm-22/bin"), help="folder of LLVM's tools"
    )
    parser.add_argument("--blocks", action="store_true", help="print the blocks that take most cycles too")
    arguments = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X = higgs_like(2 * max(_COUNTED, *arguments.rows), FEATURES, 1)[0]
        X.tofile(folder / "rows")
        for forest in arguments.forests:
            model = lightgbm_model(trees=arguments.trees, features=FEATURES, **FORESTS[forest])
            path = folder / "model.txt"
            model.save_model(path)
            found = {
                library: _library(library, path, folder / library, arguments, model.predict(X))
                for library in arguments.libraries
            }
            for cpu, rows in itertools.product(arguments.cpus, arguments.rows):
                figures = {library: found[library][cpu, rows] for library in found}
                over, *cycles = _line(figures)
                table.append([forest, over, str(rows), cpu, *cycles])
    names = [f"{library}, cycles (mispredicted)" for library in arguments.libraries]
    print(markdown(["forest", "over the best peer", "rows per call", "CPU", *names], table))


def _library(
    library: str, model: Path, folder: Path, arguments: argparse.Namespace, expected: np.ndarray
) -> dict[tuple[str, int], Figure]:
    """Return the figures of a library by CPU and rows per call."""
    environment = "tl2cgen" if library == "treelite" else library
    order = programs.Order(
        model,
        folder,
        arguments.mcpu,
        tuple(arguments.rows),
        str(arguments.environments / environment / "bin" / "python"),
        arguments.strategies,
    )
    program = programs.program(library, order)
    code = trace.Code(program, str(arguments.llvm / "llvm-objdump"))
    found = {}
    for rows in arguments.rows:
        blocks = max(1, _COUNTED // rows)
        runs = []
        for count in (blocks, 2 * blocks):
            given = {"rows": folder.parent / "rows", "features": FEATURES, "n": rows, "blocks": count}
            given |= {"outputs": 1, "threads": 1}
            steps, printed = trace.steps([str(program), *(f"{key}={value}" for key, value in given.items())])
            results = np.array(printed.split(), np.float64)
            np.testing.assert_allclose(results, expected[(count - 1) * rows : count * rows], rtol=1e-5)
            runs.append(steps)
        counts, rare = trace.by_block(trace.difference(runs[1], runs[0]), code)
        each = {start: n / (blocks * rows) for start, n in counts.items() if n > 0 and code.block(start)}
        missed = arguments.penalty * rare / (blocks * rows)
        for cpu in arguments.cpus:
            found[cpu, rows] = _cycles(each, code, cpu, arguments) + missed, missed
            print(f"{library}, {cpu}, {rows} rows: {found[cpu, rows][0]:,.0f} cycles a row", flush=True)
    return found


def _cycles(times: dict[int, float], code: trace.Code, cpu: str, arguments: argparse.Namespace) -> float:
    """Return the cycles of blocks that run so often."""
    blocks = [(code.block(start), code.loops(start, code.block(start))) for start in times]
    each = estimate.cycles(blocks, cpu, str(arguments.llvm / "llvm-mca"))
    total = {start: n * one for (start, n), one in zip(times.items(), each, strict=True)}
    if arguments.blocks:
        for start in sorted(total, key=lambda place: -total[place])[:6]:
            lines = code.block(start)
            print(f"{start:#x}: {times[start]:.1f} times a row, {total[start]:.0f} cycles:")
            print("    " + "\n    ".join([*lines[:100], f"({len(lines)} instructions)"]))
    return sum(total.values())


def _line(figures: dict[str, Figure]) -> list[str]:
    peers = [cycles for library, (cycles, _) in figures.items() if library != "hbtvm"]
    over = f"{min(peers) / figures['hbtvm'][0]:.1f}×" if peers and "hbtvm" in figures else "–"
    return [over, *(f"{cycles:,.0f} ({missed:,.0f})" for cycles, missed in figures.values())]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
