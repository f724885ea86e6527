"""Features told from a description, held against the scheduled program itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hbtvm.cost_model.flat import CONTEXT, LEVELS, STATEMENTS, flat_features
from hbtvm.schedules.loops import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Loop, Statement
from hbtvm.schedules.space import columns
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.ensembles import random_ensemble
from tests.kernels import CPU

LEVEL_BLOCKS = ("perfect_tree_traversal", "ranked_traversal")
LOOPS = [CONTEXT.index(name) for name in ("extent", "vectorized", "unrolled", "outer", "inner")]
KINDS = {0: SERIAL, 1: PARALLEL, 2: VECTORIZED, 3: UNROLLED}  # tvm.tirx.ForKind


def nests(node: Any, around: tuple[Loop, ...], sizes: dict[str, int]) -> Iterator[tuple[Loop, ...]]:
    """The loops around each block of a scheduled program, those that run once left out."""
    kind = type(node).__name__
    if kind == "For":
        extent = sizes.get(str(node.extent)) or int(node.extent)
        own = (Loop(extent, KINDS[int(node.kind)]),) if extent > 1 else ()
        yield from nests(node.body, (*around, *own), sizes)
    elif kind == "SeqStmt":
        for part in node.seq:
            yield from nests(part, around, sizes)
    elif kind == "SBlockRealize":
        if str(node.block.name_hint) == "root":
            yield from nests(node.block.body, around, sizes)
        else:
            yield around


def loop_features(loops: tuple[Loop, ...]) -> np.ndarray:
    """The loops' part of `flat_features`, (LEVELS, names in LOOPS)."""
    table = flat_features((Statement(loops, {}, ()),), 1)
    return table.reshape(STATEMENTS, LEVELS, len(CONTEXT))[0][:, LOOPS]


def at(value: Any, row: int) -> Any:
    return int(np.broadcast_to(value, (row + 1,))[row] if np.ndim(value) == 0 else value[row])


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("name", list(STRATEGIES))
def test_described_loops_are_those_of_the_program(name: str, rows: int) -> None:
    strategy = STRATEGIES[name]
    forest = make_forest(random_ensemble(np.random.default_rng(0)), "float32", "float32")
    workload = workload_of(forest, rows)
    configs = strategy.space(workload, CPU).sample(np.random.default_rng(1), 8)
    nest = strategy.loops(workload, columns(configs))
    for row, config in enumerate(configs):
        main = strategy.module(workload, config)["main"]
        # What is symbolic in the kernel is known when it is called.
        sizes = {
            "tiles": -(-rows // int(config["row_tile"])),
            "tree_tiles": -(-workload["trees"] // int(config["tree_tile"])),
        }
        lowered = [loop_features(loops) for loops in nests(main.body, (), sizes)]
        for statement in nest:
            loops = tuple(Loop(at(loop.extent, row), at(loop.kind, row)) for loop in statement.loops)
            real_loops = tuple(loop for loop in loops if loop.extent > 1)
            # Levels of a walk that are blocks of their own are described as an unrolled loop.
            unrolled = [
                i for i, loop in enumerate(real_loops) if loop.kind == UNROLLED and name in LEVEL_BLOCKS
            ]
            told = [real_loops, *(real_loops[:i] + real_loops[i + 1 :] for i in unrolled)]
            assert any(np.allclose(loop_features(t), real) for t in told for real in lowered), (config, loops)
