"""``hbtvm log``: query, merge and prune tuning logs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, examples, paragraphs, whole
from hbtvm.cli.commands.log_import import add_import
from hbtvm.cli.show import print_facts, print_json, print_line, print_table
from hbtvm.words.names import ALL_STRATEGIES, CONTAINERS
from hbtvm.words.quantities import config, count, duration, model_shape, unit

if TYPE_CHECKING:
    from hbtvm.logs.record import Record

_DESCRIPTION = """
Query, merge and prune tuning logs. A log is a text file with a JSON record per line, to which `hbtvm tune`
appends; several runs may share a log.
"""


def add_parser(commands: Any) -> None:
    """Add the command and its actions to the main parser's subparsers."""
    parser = commands.add_parser(
        "log",
        help="query, merge and prune tuning logs",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm log stats hbtvm-tuning.jsonl", "records, failures, machines"),
            ("hbtvm log best hbtvm-tuning.jsonl", "the fastest schedule for each model and batch size"),
            ("hbtvm log merge a.jsonl b.jsonl -o team.jsonl", "join logs"),
            ("hbtvm log prune team.jsonl --keep 16", "keep the useful records"),
            ("hbtvm log import trials.tar times.jsonl", "add what another machine measured"),
        ),
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_best(actions)
    _add_stats(actions)
    _add_merge(actions)
    _add_prune(actions)
    add_import(actions)


def _add_best(actions: Any) -> None:
    parser = actions.add_parser(
        "best",
        help="the fastest schedule for each model shape, batch size and machine",
        epilog=examples(
            ("hbtvm log best tuning.jsonl", "all"),
            (
                "hbtvm log best tuning.jsonl --target cpu --rows 1",
                "one row at a time, on a machine like this one",
            ),
            ("hbtvm log best tuning.jsonl --json", "whole records, for another program"),
        ),
    )
    parser.add_argument("log", metavar="LOG", help="tuning log")
    parser.add_argument(
        "--target",
        help="only this target: cpu for machines like this one, or a TVM target as JSON (default: all)",
    )
    parser.add_argument(
        "--strategy",
        choices=ALL_STRATEGIES,
        metavar="NAME",
        help=f"only this strategy, one of {', '.join(ALL_STRATEGIES)} (default: the fastest)",
    )
    parser.add_argument(
        "--rows", type=whole(1), metavar="N", help="only calls of this many rows (or structures)"
    )
    parser.add_argument("--json", action="store_true", help="write the records as JSON")
    parser.set_defaults(run=run_best)


def _add_stats(actions: Any) -> None:
    parser = actions.add_parser(
        "stats",
        help="what a log holds",
        epilog=examples(("hbtvm log stats tuning.jsonl", "records, failures, machines, dates")),
    )
    parser.add_argument("log", metavar="LOG", help="tuning log")
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.set_defaults(run=run_stats)


def _add_merge(actions: Any) -> None:
    parser = actions.add_parser(
        "merge",
        help="join logs into one",
        description="Join logs into one, oldest record first, identical records once.",
        epilog=examples(
            ("hbtvm log merge a.jsonl b.jsonl -o team.jsonl", "a new log"),
            ("hbtvm log merge team.jsonl mine.jsonl -o team.jsonl", "add to one that exists"),
        ),
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="tuning logs")
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        required=True,
        help="log to write: a new file, or one of the LOGs",
    )
    parser.set_defaults(run=run_merge)


def _add_prune(actions: Any) -> None:
    parser = actions.add_parser(
        "prune",
        help="make a log smaller, in place",
        description="Make a log smaller, in place. Numbers apply to each model shape, batch size, machine "
        "and strategy.",
        epilog=examples(
            ("hbtvm log prune tuning.jsonl", "with the defaults"),
            ("hbtvm log prune tuning.jsonl --keep 1 --others 0 --errors 0", "only the best"),
        ),
    )
    parser.add_argument("log", metavar="LOG", help="tuning log")
    for name, default, what in (
        ("keep", 32, "fastest records to keep"),
        ("others", 128, "slower records to keep, evenly spread: cost models learn from slow candidates, too"),
        ("errors", 32, "newest failures to keep"),
    ):
        parser.add_argument(
            f"--{name}", type=whole(0), default=default, metavar="N", help=f"{what} (default: %(default)s)"
        )
    parser.set_defaults(run=run_prune)


def run_best(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm log best``."""
    from hbtvm.logs import best

    records = files.read_log(arguments.log).records
    machine = None if arguments.target is None else _machine(arguments.target)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        rows = record.workload.get("rows")
        if (machine is None or _same_machine(record.target, machine)) and arguments.rows in (None, rows):
            groups.setdefault((record.workload_key, record.target_key), []).append(record)
    bests = (best(group, strategy=arguments.strategy) for group in groups.values())
    matches = [record for record in bests if record is not None]
    if arguments.json:
        print_json([json.loads(record.to_line()) for record in matches])
        return 0
    if not matches:
        print_line("no successful record matches")
        return 0
    matches.sort(
        key=lambda record: (record.target_key, model_shape(record.workload), record.workload.get("rows", 0))
    )
    machines = list(dict.fromkeys(record.target_key for record in matches))
    units = sorted({unit(record.workload) for record in matches})
    rows, each = " or ".join(f"{name}s" for name in units), f"per {' or '.join(units)}"
    timed = {kind for record in matches for kind in record.extra.get("calls", {})}
    calls = {kind: head for kind, head in CONTAINERS.items() if kind in timed}
    numbers = ("machine", "threads", rows, "kernel", each, *calls.values())
    print_table(
        ("model", "type", *numbers, "strategy", "schedule"),
        [_best_row(record, machines, calls) for record in matches],
        numbers=numbers,
    )
    print_line()
    for number, key in enumerate(machines, 1):
        print_line(f"machine {number}: {_machine_name(key)}", indent="  ")
    return 0


def run_stats(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm log stats``."""
    from hbtvm.logs import stats

    path, read = Path(arguments.log), files.read_log(arguments.log)
    summary = stats(read.records, read.skipped)
    if arguments.json:
        print_json(
            {
                "records": summary.records,
                "failed": summary.failed,
                "skipped_lines": summary.skipped,
                "workloads": len(summary.workloads),
                "strategies": dict(summary.strategies),
                "targets": dict(summary.targets),
                "failures": dict(summary.failures),
                "first": summary.first,
                "last": summary.last,
            }
        )
        return 0
    facts = {
        "records": f"{summary.records:,} ({path.stat().st_size / 2**20:.1f} MB)",
        "failed": f"{summary.failed:,}{_by_kind(summary.failures)}",
        "workloads": f"{len(summary.workloads):,} (model shapes times batch sizes)",
        "strategies": _by_kind(summary.strategies).strip(" ()") or "none",
        "dates": f"{summary.first} to {summary.last}" if summary.first else "none",
    }
    if summary.skipped:
        facts["unreadable"] = f"{count(summary.skipped, 'line')}, which prune drops"
    facts.update(
        {
            f"machine {i}": f"{count(n, 'record')}; {_machine_name(key)}"
            for i, (key, n) in enumerate(summary.targets.items(), 1)
        }
    )
    print_facts(facts)
    return 0


def run_merge(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm log merge``."""
    from hbtvm.logs import merge

    sources = [files.readable_log(path) for path in arguments.logs]
    out = files.writable(arguments.out)
    if out.exists():
        files.tuning_log(arguments.out)
    if out.exists() and out.resolve() not in {source.resolve() for source in sources}:
        raise UsageError(f"{out}: this exists; to keep its records, name it among the logs too")
    done = merge(sources, out)
    files.print_notes(*done.notes)
    dropped = f"{count(done.duplicates, 'duplicate')} dropped{_skipped(done.skipped)}"
    print_line(f"{out}: {count(done.written, 'record')}, {dropped}")
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm log prune``."""
    from hbtvm.logs import prune

    path = files.tuning_log(str(files.readable_log(arguments.log)))
    done = prune(path, keep=arguments.keep, others=arguments.others, errors=arguments.errors)
    dropped = f"{count(done.dropped, 'record')} dropped{_skipped(done.skipped)}"
    print_line(f"{path}: {count(done.kept, 'record')} kept, {dropped}")
    return 0


def _machine(target: str) -> Mapping[str, Any]:
    from hbtvm.compiler.targets.target import resolve

    return resolve(target)


def _machine_name(key: str) -> str:
    """Describe a target key: ``llvm, 2 cores, with avx2 fma``."""
    known = json.loads(key)
    cores = known.get("cores")
    parts = [known["kind"] or "unknown kind", known.get("arch"), f"{cores} cores" if cores else None]
    features = " ".join(known["features"])
    return ", ".join(filter(None, [*parts, f"with {features}" if features else None]))


def _same_machine(target: Mapping[str, Any], machine: Mapping[str, Any]) -> bool:
    """Whether a record's target is the machine, with any number of cores."""
    from hbtvm.logs import target_key

    def key(of: Mapping[str, Any]) -> str:
        return target_key({name: value for name, value in of.items() if name not in ("cores", "num-cores")})

    return key(target) == key(machine)


def _best_row(record: Record, machines: list[str], calls: Iterable[str]) -> tuple[str, ...]:
    rows = record.workload.get("rows")
    each = duration(record.cost / rows) if isinstance(rows, int) and rows > 0 else "-"
    return (
        model_shape(record.workload),
        str(record.workload.get("dtype", "-")),
        str(machines.index(record.target_key) + 1),
        str(record.workload.get("threads", "-")),
        f"{rows:,}" if isinstance(rows, int) else "-",
        duration(record.cost),
        each,
        *(duration(record.extra.get("calls", {}).get(kind)) for kind in calls),
        record.strategy,
        config(record.config),
    )


def _by_kind(counts: Mapping[str, int]) -> str:
    ordered: Iterable[tuple[str, int]] = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{number:,} {name}" for name, number in ordered)
    return f" ({text})" if text else ""


def _skipped(lines: int) -> str:
    return f", {count(lines, 'unreadable line')} dropped" if lines else ""
