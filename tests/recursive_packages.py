"""Packages of small recursive models, with kernels of their own in C or by TVM."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te

from hbtvm.graph.graph import InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.operators.pointwise import apply
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.recursive.entry import Program, RecursionEntry, RecursionKernels, Step, StepArgument
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive_cells import WIDTH, entry
from tests.runtime_models import TARGET, executor

COLUMNS = WIDTH - 5


def bare(recursion: RecursionEntry, columns: int = COLUMNS) -> Package:
    """A recursive model whose readout is the result."""
    facts = {
        "operator": "network", "n_features": columns, "n_outputs": columns, "compare_dtype": "float32",
        "base_score": [0.0] * columns, "divisor": 1.0, "operators": [],
    }  # fmt: skip
    output = OutputSpec("regressor", columns, {"response": apply("round_float32", Input(columns))})
    return Package(
        "hbtvm", "small", InputSpec(columns), output, facts, TARGET, (), {}, executor=executor(TARGET),
        recursion=recursion,
    )  # fmt: skip


def roots(structures: Structures) -> np.ndarray:
    is_child = np.zeros(len(structures.first) - 1, bool)
    is_child[structures.child[structures.child >= 0]] = True
    return ~is_child


def _function(name: str, tile: int, emb: Any, places: int) -> Any:
    """What computes nodes with so many places for children."""
    width, rows, tiles = emb.shape[1], te.var("rows"), te.var("tiles")
    number = te.placeholder((tiles, tile), "int32", "number")
    state = te.placeholder((rows, width), "float32", "state")
    child = te.placeholder((tiles, tile, max(1, places)), "int32", "child")

    def value(t: Any, r: Any, i: Any) -> Any:
        own = emb[number[t, r], i]
        for place in range(places):
            own = own + state[child[t, r, place], i]
        return te.tanh(own)

    out = te.compute((tiles, tile, width), value, "out")
    arguments = [state, child, number, emb, out] if places else [number, emb, out]
    return te.create_prim_func(arguments).with_attr("global_symbol", name)


@functools.cache
def compiled() -> RecursionEntry:
    """The cell h = tanh(sum of the children's h + word), from TVM."""
    width, words, places = 32, 7, 2
    emb = te.placeholder((words, width), "float32", "emb")
    functions, programs = {}, []
    for name, tile, inner in (("leaf", 4, False), ("inner", 3, True), ("rest", 1, True)):
        functions[name] = _function(name, tile, emb, places if inner else 0)
        roles = ["state", "child", "number", "table", "out"] if inner else ["number", "table", "out"]
        programs.append(Step(name, tile, tuple(StepArgument(role) for role in roles)))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.so")
        tvm.compile(tvm.IRModule(functions), target="llvm").export_library(str(path))
        library = path.read_bytes()
    table = np.random.default_rng(1).standard_normal((words, width)).astype(np.float32)
    inner_program = Program((programs[1],), tail=(programs[2],), tail_most=1)
    one = RecursionKernels(
        1,
        1,
        1e-6,
        "levels",
        {"node_tile": 3},
        "none",
        library,
        Program((programs[0],)),
        inner_program,
        (table,),
    )
    inputs = (replace(entry().inputs[0], size=words, optional=False),)
    return RecursionEntry("tanh", places, width, 0, (20,), "nodes", inputs, (one,))
