"""The tuning tasks of a model's pieces, with the files that workers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.compiler.building.cpu import executor
from hbtvm.compiler.candidates import tasks
from hbtvm.compiler.candidates.program import write_study
from hbtvm.compiler.pieces import Piece
from hbtvm.logs.record import canonical
from hbtvm.schedules.workload import Target
from hbtvm.strategies import workload_of
from hbtvm.tuning.task import Task


@dataclass(frozen=True)
class Work:
    """What is tuned of one piece.

    Attributes
    ----------
    piece
        The piece.
    folder
        What workers read of it.
    tasks
        Its tasks, by batch size and strategy.
    """

    piece: Piece
    folder: Path
    tasks: list[Task]


@dataclass(frozen=True)
class Prepared:
    """What is tuned of a model.

    Attributes
    ----------
    works
        Pieces with a workload of their own.
    same
        For each piece, the place of the first one that runs the same code, among all pieces.
    """

    works: list[Work]
    same: list[int]

    @property
    def tasks(self) -> list[Task]:
        """The tasks of all pieces."""
        return [task for work in self.works for task in work.tasks]


def prepare(
    pieces: Sequence[Piece],
    target: Target,
    batch_sizes: Sequence[int],
    threads: int,
    folder: Path,
    *,
    fleet: bool = False,
    device: int = 0,
) -> Prepared:
    """Make the tasks of pieces, and write what workers read into a folder; parameters as of `make_tasks`."""
    # Pieces of the same workload run the same code.
    workloads = [canonical(workload_of(piece.operands[0], 1, threads)) for piece in pieces]
    same = [workloads.index(one) for one in workloads]
    works = []
    runs = executor(target) if target["kind"] != "cuda" and not fleet else b""
    for number, piece in enumerate(pieces):
        if same[number] < number:
            continue
        forest = piece.operands[0]
        for strategy in piece.strategies.values():
            strategy.shared(forest)  # remembered by the forest, so that no worker does it again
        own = folder / str(number)
        own.mkdir()
        write_study(own, tasks.anchor_of(piece.graph, forest), [forest], max(batch_sizes), executor=runs)
        made = tasks.make_tasks(
            forest, piece.strategies, target, batch_sizes, threads, own, fleet, device, piece.title
        )
        works.append(Work(piece, own, made))
    return Prepared(works, same)
