"""``python -m benchmarks.tensor_programs``: search the paper's programs, and compare with other systems.

``search`` and ``metaschedule`` search schedules, ``compare`` times the best ones and PyTorch in turns, and
``transfer`` counts trials with and without records of C1 to C6, which it searches first; ``report`` prints
the tables. All keep their results in a folder, and go on where they stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hbtvm.tuning.measuring.start import start_without_torch

start_without_torch()  # before the first import of TVM

from benchmarks.tensor_programs.transfer import FIRST  # noqa: E402
from benchmarks.tensor_programs.workloads import WORKLOADS  # noqa: E402


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tensor_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("search", "metaschedule", "compare", "transfer", "report"))
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="names, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--first", choices=FIRST, default=FIRST[0], help="first candidates of the searches of transfer"
    )
    parser.add_argument("--folder", type=Path, default=Path(".cache/tensor_programs"))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.workloads.split(",") if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload {unknown[0]!r}; expected some of {', '.join(WORKLOADS)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.what == "report":
        return _report(arguments.folder)
    if arguments.what == "transfer":
        return _transfer(arguments)
    return int(any(_interrupted(arguments, name) for name in arguments.workloads.split(",")))


def _interrupted(arguments: argparse.Namespace, name: str) -> bool:
    """Search or compare one workload; return whether Ctrl-C came."""
    from benchmarks.tensor_programs.compare import compare, target_fields, task_of
    from hbtvm import tuning

    workload, threads, folder = WORKLOADS[name], arguments.threads, arguments.folder
    log, database = folder / f"{name}-{threads}.jsonl", folder / f"metaschedule-{name}-{threads}"
    if arguments.what == "search":
        best = tuning.search(
            task_of(workload, threads), trials=arguments.trials, log=log, seed=arguments.seed, transfer=False
        )
        print(f"{name}: {best.seconds * 1e3:.3f} ms {best.strategy} {best.config}", flush=True)
        return best.result is not None and best.result.interrupted
    if arguments.what == "metaschedule":
        from benchmarks.tensor_programs import metaschedule

        database.mkdir(exist_ok=True)
        target = target_fields(task_of(workload, threads))
        metaschedule.search(workload, target, threads, arguments.trials, database, arguments.seed + 1)
    else:
        times = compare(workload, threads, log, database)
        _append(folder / "compare.jsonl", times.__dict__)
        print(json.dumps(times.__dict__), flush=True)
    return False


def _transfer(arguments: argparse.Namespace) -> int:
    from benchmarks.tensor_programs import transfer

    for goal in transfer.goals():
        if goal.name in arguments.workloads.split(","):
            row = transfer.study(
                goal,
                arguments.folder,
                arguments.threads,
                arguments.trials,
                arguments.seed,
                arguments.first,
            )
            _append(arguments.folder / "transfer.jsonl", row)
            print(json.dumps(row), flush=True)
    return 0


def _append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _report(folder: Path) -> int:
    from benchmarks.tensor_programs.report import table, transfer_table

    compared, transferred = _rows(folder / "compare.jsonl"), _rows(folder / "transfer.jsonl")
    if not compared and not transferred:
        print(f"nothing was compared in {folder} yet", file=sys.stderr)
        return 1
    if compared:
        print(table(compared))
    if transferred:
        print(transfer_table(transferred))
    return 0


if __name__ == "__main__":
    sys.exit(main())
