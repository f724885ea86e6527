"""Give hbtvm thousands of damaged and hostile files, and report what it does not refuse in a sentence.

    python -m benchmarks.mutants                              # 10,000 of each kind
    python -m benchmarks.mutants packages --count 500 --seed 3 --jobs 1
    python -m benchmarks.mutants packages --only 417          # one mutant again, with its traceback

A child process tries a batch of mutants under limits of time and memory. A fault is a signal, a hang, memory
beyond the limit, a traceback, any error but hbtvm's own, or a file of the user's that is gone.

Machine code is not mutated: a package is code, and code may do anything. Headers, tables and lengths are.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.mutants.runner import run

KINDS = ("packages", "objects", "caches", "logs")


def main(given: list[str] | None = None) -> int:
    """Return 1 if there were faults."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument(
        "--count", type=int, default=10_000, metavar="N", help="mutants (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all choices (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--only", type=int, metavar="N", help="try the mutant of this number in this process")
    arguments = parser.parse_args(given)
    for kind in arguments.kinds:
        if kind not in KINDS:
            parser.error(f"there is no kind {kind!r}")
    faults = 0
    for kind in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="hbtvm-mutants-") as folder:
            module = importlib.import_module(f"benchmarks.mutants.{kind}")
            module.prepare(Path(folder))
            if arguments.only is not None:
                print(module.trials(Path(folder))(arguments.only, arguments.seed))
                continue
            report = run(module.__name__, Path(folder), arguments.count, arguments.seed, arguments.jobs)
        ends = ", ".join(f"{count:,} {word}" for word, count in sorted(report.ends.items()))
        print(f"{kind}: {arguments.count:,} mutants of seed {arguments.seed}: {ends}")
        for fault in report.faults:
            print(f"  {fault}")
        faults += len(report.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
