"""``python -m hbtvm.gpucheck bundle.tar --out OUT``: check and time a bundle's kernels on this machine's GPU.

Each step runs in a process of its own, so that a fault costs that step only. Each result is on disk before
the next step begins; the same command resumes. Ends with status 0 if all steps passed or were left out, 1 if
a step failed, 3 if the deadline came before the last step.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hbtvm.errors import HbtvmError
from hbtvm.gpucheck import bundle as bundles
from hbtvm.gpucheck.report import report
from hbtvm.gpucheck.run import RESULTS, Results, run


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hbtvm.gpucheck",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "bundle", type=Path, metavar="BUNDLE.tar", help="what python -m benchmarks.gpu.bundle wrote"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpucheck"), help="folder of results (default: gpucheck)"
    )
    parser.add_argument(
        "--deadline", type=float, default=3600.0, help="seconds for all steps (default: 3600)"
    )
    parser.add_argument("--only", metavar="PATTERN", action="append", help="steps, such as 'trials*'")
    parser.add_argument(
        "--jobs", type=int, default=min(6, os.cpu_count() or 1), help="checks at once (default: 6)"
    )
    parser.add_argument("--list", action="store_true", help="list the steps, and run nothing")
    options = parser.parse_args(given)
    until = time.monotonic() + options.deadline
    with tempfile.TemporaryDirectory(prefix="hbtvm-gpucheck-") as folder:
        try:
            bundle = bundles.unpack(options.bundle, Path(folder))
            steps = [
                step
                for step in bundle.steps
                if not options.only or any(fnmatch.fnmatch(step.name, pattern) for pattern in options.only)
            ]
            if options.list:
                print("\n".join(step.name for step in steps))
                return 0
            options.out.mkdir(parents=True, exist_ok=True)
            results = Results(options.out / RESULTS, bundle.digest)
        except (HbtvmError, OSError) as error:
            print(f"gpucheck: {error}", file=sys.stderr)
            return 2
        try:
            run(bundle, results, steps, until, options.jobs, _tell)
        finally:
            results.close()
            text = report([step.name for step in steps], results.known)
            (options.out / "report.md").write_text(text)
    print("\n" + text)
    states = [results.known.get(step.name, {}).get("status") for step in steps]
    return 1 if "failed" in states else 3 if None in states else 0


def _tell(result: dict[str, Any]) -> None:
    print(
        f"{result['status']:<8} {result['step']} ({result['seconds']:.1f} s): {result['said'][:300]}",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
