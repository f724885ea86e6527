"""The part of a refused pipeline that compiles, for the error."""

from __future__ import annotations

from collections.abc import Callable

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import Record
from hbtvm.graph.graph import Graph
from hbtvm.words.printable import shown

_MOST = 20
"""Most steps of a pipeline whose parts are tried."""


def slice_in_words(model: Record, read: Callable[[Record], Graph]) -> str:
    """Return a sentence that names the longest slice of a pipeline that compiles; empty if none does.

    A slice that predicts is better than one that transforms. `read` reads a model.
    """
    steps = model.get("steps", None) if model.kind == "Pipeline" else None
    if not isinstance(steps, list) or not 1 < len(steps) <= _MOST:
        return ""
    count = len(steps)
    for start in range(1, count):
        if _compiles(model, steps[start:], read):
            before = _name(steps[start - 1])
            return (
                f" hbtvm.compile(model[{start}:]) compiles the steps behind it, for what {before} returns; "
                f"hbtvm.compile(model, python_steps='keep') of a model in memory keeps {before} in Python."
            )
    for stop in range(count - 1, 0, -1):
        if _compiles(model, steps[:stop], read):
            behind = _name(steps[stop])
            return f" The steps before it compile: model[:{stop}], whose transform gives {behind} its rows."
    return ""


def _compiles(model: Record, steps: list[object], read: Callable[[Record], Graph]) -> bool:
    part = Record(model.cls, model.args, model.kwargs)
    part.state = {**model.attributes, "steps": steps}
    try:
        read(part)
    except ModelError:
        return False
    return True


def _name(step: object) -> str:
    return f"step {shown(step[0], 40)!r}" if isinstance(step, tuple | list) and step else "the step"
