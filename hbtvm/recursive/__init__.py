"""Recursive models: a cell, computed at every node of trees, graphs and sequences (Cortex, MLSys'21).

Import it as ``import hbtvm.recursive as rec``; public names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

# Import these now: `cell` is also the name of a module, and the last import wins.
from hbtvm.recursive.builder import CellFunction as CellFunction
from hbtvm.recursive.builder import cell as cell
from hbtvm.recursive.builder import embedding as embedding
from hbtvm.recursive.builder import vector as vector
from hbtvm.runtime.recursive.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    **dict.fromkeys(
        ("Expression", "absolute", "concat", "exp", "maximum", "minimum", "outer", "split"), "expressions"
    ),
    **dict.fromkeys(
        ("linear", "mean", "most", "nodes", "relu", "roots", "sigmoid", "softmax", "tanh", "total"), "output"
    ),
    **dict.fromkeys(("Model", "load"), "model"),
    "from_torch": "torch_modules.cell",
    "read_pt2": "torch_modules.pt2",
    **dict.fromkeys(
        (
            "brackets",
            "child_arrays",
            "check",
            "dgl",
            "networkx",
            "nltk",
            "parent_arrays",
            "sequences",
            "trees",
        ),
        "structures",
    ),
}
"""The module that defines each public name."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hbtvm.recursive' has no attribute {name!r}")
    attribute = getattr(importlib.import_module(f"hbtvm.recursive.{_HOMES[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
