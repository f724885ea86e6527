"""Bounds of CUDA kernels from their machine code: ``python -m benchmarks.gpu.bounds``.

Needs nvcc and nvdisasm (pip install 'hbtvm[bounds,nvcc]'), and no GPU. Prints a table; cycles are those of a
multiprocessor for a tree and 32 rows, and what takes most is the bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.gpu.bounds import models, nvforest, pipes
from benchmarks.gpu.bounds.bound import NoRoom, bound
from benchmarks.gpu.bounds.kernels import TARGET, Launched, own_kernel
from benchmarks.gpu.bounds.lanes import Unknown
from benchmarks.gpu.bounds.report import Line, goals, table
from benchmarks.gpu.bounds.sass import HINT, nvdisasm
from hbtvm.errors import BuildError
from hbtvm.schedules.space import Config
from hbtvm.strategies import Strategy, strategies_on, workload_of

ROWS = (1_000, 10_000, 100_000, 1_000_000)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.bounds", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=models.MODELS, default=list(models.MODELS))
    parser.add_argument("--strategies", nargs="+", help="default: all that hold a model")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--config", help="knobs, as JSON, that replace those of default configurations")
    parser.add_argument("--search", type=int, default=0, metavar="N", help="configurations to draw, too")
    parser.add_argument("--nvforest", type=Path, metavar="FOLDER", help="a checkout of rapidsai/nvforest")
    parser.add_argument("--cache", type=Path, default=Path(".cache/peers"), help="where trained models are")
    parser.add_argument("--loops", action="store_true", help="print default kernels' innermost loops, too")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="print tables of such files")
    parser.add_argument("--out", type=Path, help="a file for all figures, as JSON")
    return parser


def main() -> int:
    given = arguments().parse_args()
    if given.read:
        lines = [Line(**one) for path in given.read for one in json.loads(path.read_text())]
        print(whole(lines))
        return 0
    if nvdisasm() is None:
        print(f"benchmarks.gpu.bounds: {HINT}")
        return 2
    lines = []
    for name in given.models:
        model = models.get(name, given.cache)
        for rows in given.rows:
            for line in (*own_lines(model, rows, given), *others(model, rows, given.nvforest)):
                lines.append(line)
                print(_told(line), file=sys.stderr, flush=True)
    print(whole(lines))
    if given.out:
        given.out.write_text(json.dumps([line.to_json() for line in lines], indent=1))
    return 0


def whole(lines: list[Line]) -> str:
    """Return all tables."""
    order = {name: number for number, name in enumerate(models.MODELS)}
    lines = sorted(lines, key=lambda line: (order[line.model], -line.rows))
    return "\n\n".join(part for part in (goals(lines), table(lines)) if part)


def own_lines(model: models.Trained, rows: int, given: argparse.Namespace) -> Iterator[Line]:
    """Return the bounds of this project's kernels: of defaults, and of the best of drawn configurations."""
    workload = workload_of(model.forest, rows)
    for name, strategy in strategies_on(TARGET).items():
        if (given.strategies and name not in given.strategies) or strategy.refuse(workload):
            continue
        default = strategy.default(workload, TARGET)
        changed = json.loads(given.config) if given.config else {}
        yield measured(model, strategy, name, {**default, **changed}, rows, given.loops)
        if not given.search:
            continue
        drawn = strategy.space(workload, TARGET).sample(np.random.default_rng(0), given.search)
        found = [
            measured(model, strategy, f"{name}, best of {given.search}", config, rows) for config in drawn
        ]
        valid = [line for line in found if line.milliseconds and not line.spilled]
        if valid:
            yield min(valid, key=lambda line: line.total)


def others(model: models.Trained, rows: int, folder: Path | None) -> Iterator[Line]:
    """Return the bounds of nvForest's kernels, all layouts and sizes of chunks."""
    if folder is None:
        return
    try:
        for name, kernel in nvforest.launches(folder, model.ensemble, model.X, rows):
            yield _measured(model, kernel, name, rows, "")
    except BuildError as error:
        yield Line(model.name, "nvForest", rows, why=str(error)[:200])


def measured(
    model: models.Trained, strategy: Strategy, name: str, config: Config, rows: int, loops: bool = False
) -> Line:
    """Return a configuration's bound, checked against the model's scores."""
    try:
        kernel = own_kernel(strategy, model.forest, config, model.X, rows)
    except BuildError as error:
        return Line(model.name, name, rows, why=str(error)[:200])
    for first, last, count in pipes.loops(kernel.code) if loops else ():
        own = ", ".join(f"{number} {pipe}" for pipe, number in count.most_common())
        print(f"{name}, loop at {first:#x} to {last:#x}: {own}", file=sys.stderr)
    return _measured(model, kernel, name, rows, json.dumps(config))


def _measured(model: models.Trained, kernel: Launched, name: str, rows: int, why: str) -> Line:
    try:
        return Line.of(model.name, name, rows, bound(kernel, model.trees, rows, model.check), why)
    except Unknown as error:
        return Line(model.name, name, rows, why=f"unknown instruction {str(error)[:100]}")
    except NoRoom as error:
        return Line(model.name, name, rows, why=str(error))


def _told(line: Line) -> str:
    start = f"{line.model}: {line.kernel}, {line.rows:,} rows: "
    if not line.milliseconds:
        return start + line.why
    cycles = ", ".join(f"{name} {value:.0f}" for name, value in line.cycles.items())
    return f"{start}{line.total:.3g} ms, {line.limit} ({cycles}), {line.warps:.1f} warps {line.why}"


if __name__ == "__main__":
    raise SystemExit(main())
