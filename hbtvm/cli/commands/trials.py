"""``hbtvm tune --export``: build candidates for another machine to measure."""

from __future__ import annotations

import argparse
import sys
import time
from typing import IO, TYPE_CHECKING

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, build_options
from hbtvm.cli.commands.advanced import search_options
from hbtvm.cli.progress.pace import Pace
from hbtvm.cli.show import print_facts, print_line
from hbtvm.cli.signals import StopSignals, lasting
from hbtvm.cli.structures.options import model_of
from hbtvm.words.quantities import clock

if TYPE_CHECKING:
    from hbtvm.compiler.candidates.exporting import Export


def export_trials(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm tune --export``.

    Returns 0, or the status of ``hbtvm tune`` if a signal stopped it before it wrote anything.
    """
    for name in ("out", "rpc_tracker", "rpc_key", "time_budget"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--export writes candidates for hbtvm measure, so it takes no {option}")
    out = files.writable(arguments.export)
    log = files.tuning_log(arguments.log)
    if model_of(arguments, arguments.model) is not None:
        raise UsageError("candidates of recursive models can't be exported; tune them where they run")
    messages = lasting(sys.stderr)
    with StopSignals() as signals:
        print_line(f"building candidates of {arguments.model}", messages)

        from hbtvm import trials

        try:
            done = trials.export(
                arguments.model,
                out,
                log=log,
                progress=signals.checked(_Lines(messages)),
                **build_options(arguments),
                **search_options(arguments),
            )
        except KeyboardInterrupt:
            how = "interrupted" if signals.received is None else f"stopped by {signals.name}"
            print_line(f"hbtvm: {how}, and nothing was written", messages)
            return signals.status
    left_out = [f"{done.twins:,} the same program as another"] if done.twins else []
    left_out += [f"{number:,} {kind} ({done.examples[kind]})" for kind, number in done.failures.items()]
    stopped = f"; stopped by {signals.name}" if done.stopped else ""
    print_facts(
        {
            "archive": f"{out} ({out.stat().st_size / 2**20:.1f} MB)",
            "candidates": f"{done.built:,} of {done.planned:,}{stopped}",
            **({"left out": "; ".join(left_out)} if left_out else {}),
            "next": f"hbtvm measure {out.name}, there",
            "then": f"hbtvm log import {out} {out.name.removesuffix('.tar')}.times.jsonl --log {log}, here",
        }
    )
    return 0


class _Lines:
    """Prints a line whenever `hbtvm.cli.progress.pace.Pace` says so."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._start, self._pace = 0.0, Pace()

    def __call__(self, export: Export) -> None:
        """Print a line if it is due."""
        # Start at the first build: choosing candidates takes a while, too.
        self._start = self._start or time.monotonic()
        elapsed = time.monotonic() - self._start
        if not self._pace.due(export.done / export.planned, elapsed):
            return
        left = elapsed / export.done * (export.planned - export.done)
        more = f", about {clock(left)} left" if left >= 1 else ""
        built = f"{export.done:,} of {export.planned:,} candidates"
        print_line(f"{clock(elapsed):>8}: {built}{more}", self._stream)
        self._stream.flush()
