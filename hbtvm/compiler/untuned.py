"""Compile a model with its default schedules, for a comparison with a tuned one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.pieces import Piece
from hbtvm.graph.graph import Graph
from hbtvm.runtime.model import Model
from hbtvm.schedules.workload import Target


def untuned(
    graph: Graph,
    pieces: Sequence[Piece],
    defaults: Sequence[KernelChoice | None],
    tuned: Sequence[KernelChoice],
    target: Target,
    threads: int,
) -> Callable[[], Model] | None:
    """Return a function that compiles a model with its default schedules; None if the tuned are the same.

    The model predicts rows of the tuned type only, unless kernels for that take no missing values.

    `defaults`, `tuned`: kernels by piece and batch size; a default is None where it is the tuned one.
    """
    if not any(defaults):
        return None
    kernels = [
        kernel if default is None else default for default, kernel in zip(defaults, tuned, strict=True)
    ]

    def compiled() -> Model:
        count = len(kernels) // len(pieces)
        parts = []
        for i, piece in enumerate(pieces):
            alone = getattr(piece.operands[0], "missing", True)
            operands = piece.operands[:1] if alone else piece.operands
            parts.append((operands, kernels[i * count : (i + 1) * count]))
        *stages, last = parts
        return Model.from_package(assemble(graph, *last, target, {}, stages), threads)

    return compiled
