"""``python -m benchmarks.search.regret``: defaults' times over the fastest known, of 24 models and 3 sizes.

It searches each model and batch size once, and measures today's default and the fastest known in turns, by
the processor time of one thread. It can be stopped; started again, it goes on. After a change of schedules or
defaults the same command measures the defaults that changed. ``--target x86-64-v3`` restricts the machine to
AVX2. ``--ship`` packs results and candidates into the folder of the records that ship, and without
measurements of one's own, ``--report`` shows those.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from benchmarks.packed import pack
from benchmarks.search.regret.measure import CELLS, measure, read_cells
from benchmarks.search.regret.models import MODELS, ROWS
from benchmarks.search.regret.report import report
from benchmarks.search.replay import SHIPPED
from hbtvm.compiler.targets.target import resolve
from hbtvm.logs.store import Log

_POLITE = 5  # nice value: others may use the machine


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.regret", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".cache/search"), help="where all is kept")
    parser.add_argument("--target", default="cpu", metavar="CPU", help="LLVM's name of a CPU, or cpu")
    parser.add_argument("--models", default="", metavar="TEXT", help="only those with this in their names")
    parser.add_argument("--rows", type=int, choices=ROWS, action="append", help="only this batch size")
    parser.add_argument("--trials", type=int, default=30, help="of each search")
    parser.add_argument("--report", action="store_true", help="only show what was measured")
    parser.add_argument("--ship", action="store_true", help="pack what was measured")
    arguments = parser.parse_args()
    folder = arguments.folder / f"regret-{arguments.target}"
    shipped = SHIPPED / folder.name
    if arguments.ship:
        shipped.mkdir(parents=True, exist_ok=True)
        logs = [Log(path) for path in sorted(folder.glob("*.jsonl")) if path.name != CELLS]
        pack([record for log in logs for record in log.read().records], shipped / "records.jsonl.xz")
        shutil.copy(folder / CELLS, shipped / CELLS)
    elif not arguments.report:
        os.nice(_POLITE)
        names = [name for name in MODELS if arguments.models in name]
        target = resolve("cpu" if arguments.target == "cpu" else {"kind": "llvm", "mcpu": arguments.target})
        measure(folder, target, names, arguments.rows or ROWS, arguments.trials)
    cells = read_cells(folder) or read_cells(shipped)
    if not cells:
        print(f"nothing was measured in {folder} yet", file=sys.stderr)
        return 1
    print(report(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
