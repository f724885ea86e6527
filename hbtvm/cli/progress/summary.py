"""The summary of a search, as text and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from hbtvm.cli.show import print_facts, print_line, print_table
from hbtvm.runtime.cuda.timing import Copies
from hbtvm.runtime.package.calls import CallTimes, call_cells, call_heads
from hbtvm.tuning.choices import ENOUGH
from hbtvm.tuning.result import GroupResult, Result, WallClock
from hbtvm.words.names import REASONS_TITLE
from hbtvm.words.quantities import clock, count, duration

_WIDTH = 200  # characters of a failure's line

_STOPPED = {
    "trials": "all trials are done",
    "time": "the time budget is spent",
    "exhausted": "there is nothing left to try",
    "overhead": "tuning can't help here",
    "settled": "the model expects little more",
    "interrupted": "stopped by {by}; this is the best so far",
    "devices": "no device is left to measure on; this is the best so far",
    "log": "the tuning log could not be written; this is the best so far",
}

_SAMPLE_HINT = "; --sample measures on your own"  # suffix of the description of random structures
_TELLING_SHARE = 0.05  # share of the trials from which a kind of failure is shown with an example


def print_report(
    result: Result,
    package: Path,
    log: Path,
    copies: Mapping[int, Copies] = MappingProxyType({}),
    stopped_by: str = "Ctrl-C",
    sample: str = "",
    data: str = "DATA.csv",
    calls: Sequence[CallTimes] = (),
) -> None:
    """Print the results, failures, time spent, and the next command.

    `copies`: times of copies to and from a GPU, by batch size; the result's times leave them out.
    `stopped_by`: name of the signal that interrupted the search.
    `sample`: description of the structures that a recursive model was measured on; else empty.
    `data`: example name of a file to predict.
    `calls`: times of whole calls.
    """
    noun = "structure" if sample else "row"
    apart = ("copies there", "and back") if copies else ()
    times = ("default", "kernel", "gain", f"per {noun}", *apart, *call_heads(calls).values())
    print_table(
        (f"{noun}s in a call", "strategy", *times, "trials", "failed"),
        [_row(name, group, copies, calls) for name, group in result.groups.items()],
        numbers=(*times, "trials", "failed"),
    )
    print_line()
    for line in (*_overheads(result), *_settled(result), *_failures(result)):
        print_line(line, indent="    ")
    for warning in result.warnings:
        print_line(f"warning: {warning}", indent="  ")
    resumed = f", {result.resumed:,} of them found in the log" if result.resumed else ""
    stopped = _STOPPED.get(result.stopped, result.stopped).format(by=stopped_by)
    facts = {
        "search": f"{count(result.trials, 'trial')}{resumed}; {stopped}",
        "time": _time(result.seconds),
        "log": f"{log}: the same command carries on from here, and other models learn from it",
        **({"measured on": f"{sample}{_SAMPLE_HINT if 'random' in sample else ''}"} if sample else {}),
        "package": f"{package} ({package.stat().st_size / 2**20:.1f} MB)",
        "next": f"hbtvm predict {package} {data} -o OUT.csv",
    }
    if result.log_error is not None:
        facts["log"] = f"incomplete, {result.log_error}"
    print_facts(facts)


def _row(
    name: str, group: GroupResult, copies: Mapping[int, Copies], calls: Sequence[CallTimes]
) -> tuple[str, ...]:
    failed = sum(group.failures.values())
    best, rows = group.best, group.rows
    apart: tuple[str, ...] = ()
    if copies:
        here = None if rows is None else copies.get(rows)
        apart = (duration(here.there), duration(here.back)) if here else ("-", "-")
    # Times of calls are of predictions.
    timed = None if name.startswith(REASONS_TITLE) else rows
    tail = (*apart, *call_cells(calls, timed), f"{group.trials:,}", f"{failed:,}")
    if best is None:
        why = "none worked" if group.trials else "not reached"
        return (name, f"{why}; default used", *["-"] * 4, *tail)
    each = duration(best.time / rows) if rows else "-"
    default = duration(None if group.default is None else group.default.time)
    gain = "-" if group.gain is None else f"{group.gain:.2f}×"
    return (name, best.task.strategy, default, duration(best.time), gain, each, *tail)


def _overheads(result: Result) -> list[str]:
    """Say which batch sizes were not searched, and why; empty if all were."""
    shares = [
        f"{duration(kernel)} of {duration(call)} ({name})"
        for name, (kernel, call) in result.overheads.items()
    ]
    if not shares:
        return []
    return [
        "tuning can't help where the kernel takes less than a tenth of a call: "
        f"{', '.join(shares)}; the search left these sizes, and --trials N searches them all the same"
    ]


def _settled(result: Result) -> list[str]:
    """Say which batch sizes were left early, and why; empty if none were."""
    sizes = [
        f"{name} (after {count(result.groups[name].trials, 'trial')}, {gain:.1%} expected)"
        for name, gain in result.settled.items()
    ]
    if not sizes:
        return []
    return [
        f"the model expects less than {ENOUGH:.0%} more of further trials: {', '.join(sizes)}; the search "
        "left these sizes, and --trials N goes on"
    ]


def _failures(result: Result) -> list[str]:
    """List the kinds of failure, with an example of each frequent kind."""
    kinds: dict[str, int] = {}
    examples: dict[str, str] = {}
    for group in result.groups.values():
        for kind, number in group.failures.items():
            kinds[kind] = kinds.get(kind, 0) + number
        examples.update(group.example)
    if not kinds:
        return []
    trials = max(sum(group.trials for group in result.groups.values()), 1)
    lines = [f"failed trials by kind: {_listed(kinds)}"]
    for kind, number in kinds.items():
        if number >= _TELLING_SHARE * trials and kind in examples:
            lines.append(f"  {kind}, for example: {_first_line(examples[kind])}")
    return lines


def _listed(kinds: Mapping[str, int]) -> str:
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    return ", ".join(f"{number:,} {kind}" for kind, number in ordered)


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), text).strip()
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _time(spent: WallClock) -> str:
    parts = {
        "planning": spent.planning,
        "training the cost model": spent.training,
        "building": spent.building,
        "measuring": spent.measuring,
    }
    parts["the rest"] = max(spent.total - sum(parts.values()), 0.0)
    return f"{_clock(spent.total)}: " + ", ".join(f"{_clock(s)} {what}" for what, s in parts.items())


def _clock(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else clock(seconds)
