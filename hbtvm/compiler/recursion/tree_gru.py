"""The cost model's TreeGRU as a recursive model, so that kernels score candidates.

Nodes are the distinct loops of programs. The slots of states, and the linear layer behind them, are a state
of one number; the readout is its sum over all nodes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hbtvm.compiler.recursion.compiled_cell import CompiledCell
from hbtvm.compiler.targets.target import resolve
from hbtvm.cost_model.encoding.loop_trees import LoopTrees, Scorer, Weights
from hbtvm.errors import HbtvmError
from hbtvm.recursive.builder import CellFunction, cell, vector
from hbtvm.recursive.cell import Readout
from hbtvm.recursive.expressions import relu, sigmoid, softmax, split, tanh, total
from hbtvm.runtime.recursive.structures import Structures

_CALL = {"rows": 1000, "nodes": 32, "levels": 8}  # programs scored together, and loops of each


def tree_gru(contexts: int, hidden: int) -> CellFunction:
    """Return the cell of `hbtvm.cost_model.encoding.loop_trees.Weights`, and of ``ones`` (1, S)."""

    @cell(children=None, state={"h": hidden, "score": 1}, inputs={"context": vector(contexts)})
    def tree_gru(node: Any, w: Any) -> Any:
        s = total(node.children.h)
        i = split(w.input @ relu(w.read @ node.context + w.read_bias) + w.input_bias, 3)
        k = split(w.state @ s, 3)
        r, z = sigmoid(i[0] + k[0]), sigmoid(i[1] + k[1])
        n = tanh(i[2] + r * (k[2] + w.state_bias))
        h = n + z * (s - n)
        return {"h": h, "score": w.ones @ (softmax(w.scatter @ h) * (w.score @ h))}

    return tree_gru


def make_scorer(weights: Weights) -> Scorer | None:
    """Return the scorer of programs for a TreeGRU's weights
    (`hbtvm.cost_model.encoding.loop_trees.MakeScorer`).

    The first call compiles kernels for about a second, which serve all weights of these shapes. Returns None
    if there is no compiler, or no kernel for this machine.
    """
    hidden, contexts = weights["read"].shape
    slots = len(weights["scatter"])
    compiled = _compiled(contexts, hidden, slots)
    if compiled is None:
        return None
    host = compiled.host({**weights, "ones": np.ones((1, slots))})
    bias = weights["bias"]

    def scores(trees: LoopTrees) -> np.ndarray:
        inputs = {"context": trees.contexts}
        outputs = host.run(Structures(trees.starts, trees.first, trees.child, inputs))
        return outputs[:, 0] + bias

    return scores


@functools.cache
def _compiled(contexts: int, hidden: int, slots: int) -> CompiledCell | None:
    """Compile the cell for weights of these shapes, once per process; None if that fails."""
    wide = 3 * hidden
    shapes = {
        "read": (hidden, contexts),
        "read_bias": (hidden,),
        "input": (wide, hidden),
        "input_bias": (wide,),
        "state": (wide, hidden),
        "state_bias": (hidden,),
        "scatter": (slots, hidden),
        "score": (slots, hidden),
        "ones": (1, slots),
    }
    try:
        target = resolve("cpu")
        return CompiledCell(
            tree_gru(contexts, hidden), shapes, Readout("score", "total"), target=target, **_CALL
        )
    except (HbtvmError, RuntimeError, OSError):
        return None
