"""Bounds of CUDA kernels from their machine code: ``python -m benchmarks.gpu.bounds``.

Needs nvcc and nvdisasm (pip install nvidia-cuda-nvdisasm), and no GPU. Prints a table; cycles are those of a
multiprocessor for a tree and 32 rows, and what takes most is the bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.bounds import models, nvforest
from benchmarks.gpu.bounds.bound import Bound, bound
from benchmarks.gpu.bounds.kernels import TARGET, own_kernel
from benchmarks.gpu.bounds.lanes import Unknown
from benchmarks.gpu.bounds.report import Line, table
from benchmarks.gpu.bounds.sass import HINT, nvdisasm
from hbtvm.errors import BuildError
from hbtvm.schedules.space import Config
from hbtvm.strategies import strategies_on, workload_of

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
    parser.add_argument("--out", type=Path, help="a file for all figures, as JSON")
    return parser


def main() -> int:
    given = arguments().parse_args()
    if nvdisasm() is None:
        print(f"benchmarks.gpu.bounds: {HINT}")
        return 2
    lines: list[Line] = []
    for name in given.models:
        model = models.get(name, given.cache)
        for rows in given.rows:
            for line in own_lines(model, rows, given):
                lines.append(line)
                print(_told(line), file=sys.stderr, flush=True)
            if given.nvforest:
                for line in others(model, rows, given.nvforest):
                    lines.append(line)
                    print(_told(line), file=sys.stderr, flush=True)
    print(table(lines))
    if given.out:
        given.out.write_text(json.dumps([_plain(line) for line in lines], indent=1))
    return 0


def own_lines(model: models.Trained, rows: int, given: argparse.Namespace) -> Iterator[Line]:
    """Return the bounds of this project's kernels: of defaults, and of the best of drawn configurations."""
    workload = workload_of(model.forest, rows)
    for name, strategy in strategies_on(TARGET).items():
        if (given.strategies and name not in given.strategies) or strategy.refuse(workload):
            continue
        space, rng = strategy.space(workload, TARGET), np.random.default_rng(0)
        default = strategy.default(workload, TARGET)
        changed = json.loads(given.config) if given.config else {}
        wanted: Config = {**default, **changed}
        yield measured(model, strategy, name, wanted, rows)
        best: Line | None = None
        for config in space.sample(rng, given.search) if given.search else ():
            line = measured(model, strategy, f"{name}, best found", config, rows)
            if line.bound and (best is None or best.bound is None or line.bound.total < best.bound.total):
                best = line
        if best is not None:
            yield best


def others(model: models.Trained, rows: int, folder: Path) -> Iterator[Line]:
    """Return the bounds of nvForest's kernels, all layouts and sizes of chunks."""
    try:
        for name, kernel in nvforest.launches(folder, model.ensemble, model.X, rows):
            try:
                yield Line(model.title, name, rows, bound(kernel, model.trees, rows, model.check))
            except Unknown as error:
                yield Line(model.title, name, rows, None, f"unknown instruction {str(error)[:200]}")
    except BuildError as error:
        yield Line(model.title, "nvForest", rows, None, str(error)[:200])


def measured(model: models.Trained, strategy: Any, name: str, config: Config, rows: int) -> Line:
    """Return a configuration's bound, checked against the model's scores."""
    try:
        kernel = own_kernel(strategy, model.forest, config, model.X, rows)
        found: Bound | None = bound(kernel, model.trees, rows, model.check)
        return Line(model.title, name, rows, found, json.dumps(config))
    except (BuildError, Unknown) as error:
        return Line(model.title, name, rows, None, f"{type(error).__name__}: {str(error)[:200]}")


def _told(line: Line) -> str:
    if line.bound is None:
        return f"{line.model}: {line.kernel}, {line.rows:,} rows: {line.why}"
    cycles = ", ".join(f"{name} {value:.0f}" for name, value in line.bound.cycles.items())
    time = f"{1e3 * line.bound.total:.3g} ms ({cycles})"
    return f"{line.model}: {line.kernel}, {line.rows:,} rows: {time} {line.why}"


def _plain(line: Line) -> dict[str, Any]:
    found = line.bound
    numbers = (
        {}
        if found is None
        else {
            "seconds": found.seconds,
            "cycles": found.cycles,
            "warps": found.warps,
            "resident": found.resident,
            "spilled": found.spilled,
            "limit": found.limit,
        }
    )
    return {"model": line.model, "kernel": line.kernel, "rows": line.rows, "about": line.why, **numbers}


if __name__ == "__main__":
    raise SystemExit(main())
