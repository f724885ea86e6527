"""Races and reads of unwritten memory in recursive models' kernels, found by Oclgrind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hbtvm.compiler.building.cpu import host_executor
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.recursive.cell import Cell, Input, Readout, Value
from hbtvm.recursive.passes.rewriting import Maker
from hbtvm.recursive.validate import check
from hbtvm.runtime.cuda.recursive.device import RecursiveDevice
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.strategies.recursive.levels import Levels, classes_of
from tests import emulated, oclgrind_levels
from tests.cuda.test_cuda_recursive import GPU, agrees, cell_of, drawn
from tests.recursive.random_cells import random_cell, random_structures

pytestmark = [
    pytest.mark.skipif(oclgrind_levels.NO_ORACLE is not None, reason=str(oclgrind_levels.NO_ORACLE)),
    pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER)),
]

_SAMPLES = int(os.environ.get("HBTVM_RACE_SAMPLES", "1"))
"""Configurations of each cell, and random cells."""

CELLS = ("tree_lstm", "mv_rnn", "tree_fc", "tree_gru", "dag_rnn", "random")[: 2 if _SAMPLES == 1 else None]

_MOST_THREADS = 128  # of a block; more take Oclgrind long
_MOST_WIDTH = 16  # padded outputs of products


def cell_and_structures(name: str, seed: int) -> tuple[Cell, Structures]:
    """Return a cell, and some structures of few nodes for it."""
    if name == "random":
        cell = random_cell(seed)
        return cell, random_structures(cell, seed, count=2, most=6)
    children = 2 if seed % 2 or name in ("mv_rnn", "tree_fc", "nary_tree_lstm") else None
    return cell_of(name, 6, children), drawn(children, matrices=name == "mv_rnn", counts=(1, 2, 7))


def reported(
    cell: Cell, structures: Structures, seed: int, folder: Path, change: Callable[[str], str] | None = None
) -> list[str]:
    """Return Oclgrind's reports of a sampled configuration, or of the default for seed 0.

    Checks the states, unless `change` plants a fault in the source.
    """
    classes, levels = classes_of(cell), Levels()
    workload = levels.workload(classes, 4, 32, 8, 1)
    config, state = levels.default(workload, GPU), next(iter(cell.states))
    if seed:
        samples = levels.space(workload, GPU).sample(np.random.default_rng(seed), 50)
        # A kernel for all levels has one block here, so constants stay only if they are one panel's.
        few = (each for each in samples if int(each["threads"]) <= _MOST_THREADS)
        config = next(each for each in few if int(each.get("kept") or _MOST_WIDTH) >= _MOST_WIDTH)
    with oclgrind_levels.device(folder, change or str) as reports:
        kernels = kernels_of(classes, workload, config, GPU)
        entry = entry_of(cell, classes, Readout(state, "nodes"), (kernels,))
        device = RecursiveDevice(load_library(host_executor()), entry, "sm_90", 0)
        if change is None:
            agrees(device, cell, structures, state, "nodes")
        else:
            device.run(structures)
    return reports


@pytest.mark.parametrize("name", CELLS)
def test_levels_have_no_race_and_no_unwritten_memory(name: str, tmp_path: Path) -> None:
    for seed in range(_SAMPLES):
        cell, structures = cell_and_structures(name, seed)
        assert reported(cell, structures, seed + (_SAMPLES == 1), tmp_path) == [], seed


def test_padding_is_not_read_beyond_an_array(tmp_path: Path) -> None:
    maker, rng = Maker({}), np.random.default_rng(0)
    x = maker.put(Value("input", (), (4,), name="x"))
    child = maker.put(Value("child", (), (8,), name="h"))
    # The threads of an output's padding would read the next node's vector, and the next row's state.
    half = maker.apply("slice", (child,), start=4, stop=8)
    product = maker.apply("matmul", (maker.weight("w", rng.normal(size=(4, 8))), child))
    inner = maker.apply("mul", (maker.apply("mul", (product, half)), x))
    h = maker.apply("add", (maker.apply("matmul", (maker.weight("w", np.ones((8, 4))), inner)), child))
    inputs = {"x": Input("vector", 4)}
    cell = Cell("padding", 1, {"h": (8,)}, inputs, maker.weights, tuple(maker.values), {"h": h}, None)
    check(cell)
    assert reported(cell, random_structures(cell, 1, count=2, most=4), 0, tmp_path) == []


def test_planted_faults_are_seen(tmp_path: Path) -> None:
    cell, structures = cell_and_structures("tree_fc", 1)
    without = re.compile(r"barrier\(CLK_LOCAL_MEM_FENCE\);")
    found = reported(cell, structures, 0, tmp_path, lambda source: without.sub("", source))
    assert any("data race" in kind for kind in found), found
    # A level whose first threads store no states.
    stores = re.compile(r"(\n *)(state0_ptr\[)")
    found = reported(
        cell, structures, 0, tmp_path, lambda source: stores.sub(r"\1if (get_local_id(0)) \2", source)
    )
    assert any("ninitialized" in kind for kind in found), found
