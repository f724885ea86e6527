"""Tell whether a kernel is a small share of a call, so that no faster kernel can shorten the call."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.pieces import Piece
from hbtvm.errors import HbtvmError
from hbtvm.graph.graph import Graph
from hbtvm.measuring.calls import add_call_times
from hbtvm.runtime.model import Model
from hbtvm.schedules.workload import Target
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.tuning.result import Entry

LEAST = 0.1
"""Share of a call from which tuning its kernel is worth the time."""

_LONG = 0.02
"""Seconds of kernels from which calls are not timed: reading the rows hardly takes ten times as long."""


@dataclass(frozen=True)
class Overheads:
    """Measures calls with each group's fastest kernel so far (a `hbtvm.tuning.settings.Overheads`)."""

    # `graph`, `pieces`, `target`, `threads`: the model, compiled for a CPU of this machine
    graph: Graph
    pieces: Sequence[Piece]
    target: Target
    threads: int
    groups: Mapping[int, Sequence[str]]  # by rows of a call: the group of each piece

    def __call__(self, fastest: Mapping[str, tuple[Entry, BuiltLibrary]]) -> dict[str, float]:
        """Return the seconds of a call, by group, where the kernels are less than a tenth of it."""
        sizes = [
            rows
            for rows, groups in self.groups.items()
            if all(group in fastest for group in groups) and self._kernels(fastest, rows) < _LONG
        ]
        operands = [piece.operands[:1] for piece in self.pieces]
        if not sizes or not all(getattr(operand, "missing", True) for (operand,) in operands):
            return {}
        kernels = [
            [self._choice(rows, *fastest[self.groups[rows][at]]) for rows in sizes]
            for at in range(len(self.pieces))
        ]
        *stages, last = zip(operands, kernels, strict=True)
        # The package has only the tuned row type, so that nothing is built.
        try:
            model = Model(assemble(self.graph, *last, self.target, {}, stages), self.threads)
        except HbtvmError:  # the package at the end says what is wrong
            return {}
        add_call_times(model)
        overheads: dict[str, float] = {}
        for call in model.package.calls:
            seconds = min(call.seconds.values())
            if self._kernels(fastest, call.rows) < LEAST * seconds:
                overheads |= dict.fromkeys(self.groups[call.rows], seconds)
        return overheads

    def _kernels(self, fastest: Mapping[str, tuple[Entry, BuiltLibrary]], rows: int) -> float:
        """Return the seconds of all pieces' kernels."""
        return sum(fastest[group][0].time for group in self.groups[rows])

    def _choice(self, rows: int, entry: Entry, library: BuiltLibrary) -> KernelChoice:
        path = Path(library.path)
        return KernelChoice(
            rows,
            entry.task.strategy,
            entry.config,
            entry.time,
            self.threads,
            "tuned",
            path.read_bytes(),
            Path(f"{path}{OBJECT}").read_bytes(),
        )


def groups_of(groups: Sequence[str], same: Sequence[int], sizes: Sequence[int]) -> dict[int, list[str]]:
    """Return the group of each piece by rows of a call.

    `groups`: groups of the distinct pieces, by piece and size.
    `same`: as in `hbtvm.compiler.candidates.prepared.Prepared`.
    """
    distinct = sorted(set(same))
    table = dict(zip(itertools.product(distinct, sizes), groups, strict=True))
    return {rows: [table[piece, rows] for piece in same] for rows in sizes}
