"""Search for fast schedules (AutoTVM), of trained models and of any tensor program.

Programs are described with `tensor_task`, and searched with `search`::

    from hbtvm import tuning

    task = tuning.tensor_task(conv2d, args=(1, 64, 56, 56), constants=["weights"])
    best = tuning.search(task, trials=256, log="conv2d.jsonl")
    best.mod, best.seconds
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Best", "Built", "Knob", "Space", "TensorTask", "best", "built", "search", "tensor_task"]

_HOMES = {
    "tensor_task": "hbtvm.programs.task",
    "TensorTask": "hbtvm.programs.task",
    "search": "hbtvm.programs.search",
    "best": "hbtvm.programs.search",
    "Best": "hbtvm.programs.built",
    "Built": "hbtvm.programs.built",
    "built": "hbtvm.programs.built",
    "Knob": "hbtvm.schedules.space",
    "Space": "hbtvm.schedules.space",
}
"""Modules of public names, of which those of `hbtvm.programs` are built on this package."""


def __getattr__(name: str) -> Any:
    """Return a public name; its module is imported at its first use, since it imports TVM's compiler."""
    if name not in __all__:
        raise AttributeError(f"module 'hbtvm.tuning' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
