"""The pieces of a model, one per kernel: its stages (`hbtvm.graph.stages`), then the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.compiler.candidates.tasks import operands_of, usable
from hbtvm.errors import InputError
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.stages import Stage
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.schedules.workload import Target
from hbtvm.strategies import Operand, Strategy
from hbtvm.strategies.trees.forest import DType
from hbtvm.words.names import BY_FAMILY


@dataclass(frozen=True)
class Piece:
    """The part of a model that a kernel computes."""

    graph: Graph  # the part as a model, over the columns that it reads
    # From `hbtvm.compiler.candidates.tasks.operands_of`; the first is tuned
    operands: Sequence[Operand]
    strategies: dict[str, Strategy]  # those that can hold it, by name
    title: str = ""  # its name in tasks; empty for the only piece


def pieces_of(graph: Graph, dtype: DType, names: Sequence[str] | None, target: Target) -> list[Piece]:
    """Return the pieces of a model in execution order.

    Raises `InputError` if the target or none of the strategies can hold a piece.

    `dtype`: as for `hbtvm.compiler.candidates.tasks.operands_of`.
    `names`: the requested strategies; None for all.
    `target`: the target to compile for.
    """
    gpu = on_gpu(target)
    if not graph.stages:
        operands = operands_of(graph, dtype, complete=not gpu, prologue=not gpu)
        return [Piece(graph, operands, usable(operands[0], names, target)[0])]
    width = len(graph.feeds) or graph.input.n_features
    last: Any = graph.anchor
    works = [
        *graph.stages,
        Stage(last, graph.columns, graph.single),  # type: ignore[arg-type]
    ]
    pieces = []
    for i, work in enumerate(works):
        anchor = work.anchor
        # Stages' columns are float64 whatever the rows' type.
        of_rows = all(column < width for column in work.columns)
        alone = Graph(
            graph.library,
            graph.model,
            InputSpec(len(work.columns)),
            anchor,
            OutputSpec("booster", anchor.n_outputs),
            single=work.single if of_rows else None,
            scaled=work.scaled if of_rows else None,
        )
        trees = isinstance(anchor, TreeEnsemble)
        # Columns that trees compare are not rounded.
        later = [work.columns for work in works[i + 1 :] if isinstance(work.anchor, TreeEnsemble)]
        compared = any(column >= width for columns in later for column in columns)
        kind = dtype if trees and not compared else "float64"
        operands = list(operands_of(alone, kind, complete=False, prologue=not gpu))
        if trees and not of_rows and anchor.compare_dtype == "float64":
            operands = [operand for operand in operands if operand.row_dtype == "float64"]
        supported = [name for name in names or () if name in BY_FAMILY[operands[0].family]]
        strategies, _ = usable(operands[0], supported or None, target)
        pieces.append(Piece(alone, operands, strategies, f"part {i + 1} of {len(works)}, "))
    unknown = [name for name in names or () if not any(name in piece.strategies for piece in pieces)]
    if unknown:
        raise InputError(f"no part of this model can be held by {unknown[0]!r}")
    return pieces
