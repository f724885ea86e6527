"""Make the tuning tasks of a model's pieces, and write the files that workers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.compiler.building.cpu import executor
from hbtvm.compiler.candidates import tasks
from hbtvm.compiler.candidates.program import write_study
from hbtvm.compiler.pieces import Piece
from hbtvm.logs.record import canonical
from hbtvm.measuring.archive import MOST_ROWS
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.schedules.workload import Target
from hbtvm.strategies import workload_of
from hbtvm.tuning.task import Task


@dataclass(frozen=True)
class Work:
    """The tuning tasks of one piece."""

    piece: Piece
    folder: Path  # the piece's files for workers
    tasks: list[Task]  # its tasks, by batch size and strategy


@dataclass(frozen=True)
class Prepared:
    """The tuning tasks of a model."""

    works: list[Work]  # pieces with distinct workloads
    same: list[int]  # for each piece, the index of the first piece that runs the same code

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
    """Make the tasks of pieces, and write the files of workers; parameters as of `make_tasks`."""
    # Pieces of the same workload run the same code.
    workloads = [canonical(workload_of(piece.operands[0], 1, threads)) for piece in pieces]
    same = [workloads.index(workload) for workload in workloads]
    works = []
    gpu = on_gpu(target)
    runs = b"" if gpu or fleet else executor(target)
    # This machine's GPU repeats rows (`hbtvm.measuring.device.DeviceCandidate`).
    rows = min(max(batch_sizes), MOST_ROWS) if gpu and not fleet else max(batch_sizes)
    for number, piece in enumerate(pieces):
        if same[number] < number:
            continue
        forest = piece.operands[0]
        for strategy in piece.strategies.values():
            strategy.shared(forest)  # cached by the forest, so that workers do not repeat it
        subfolder = folder / str(number)
        subfolder.mkdir()
        write_study(subfolder, tasks.anchor_of(piece.graph, forest), [forest], rows, executor=runs)
        group = tasks.make_tasks(
            forest, piece.strategies, target, batch_sizes, threads, subfolder, fleet, device, piece.title
        )
        works.append(Work(piece, subfolder, group))
    return Prepared(works, same)
