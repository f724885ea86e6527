"""A `RecursionEntry` in a package's manifest.

Of a GPU's kernels, in packages from version 11 on, steps tell their ``threads``, and kernels what is
``persistent``; from version 12 on, that may have ``shared`` memory, and a model its ``vocabulary``.

``binding`` is a hash of all else that stands there, so that tables of equal shapes, say, are not mixed up
unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.recursive.check import check_entry
from hbtvm.runtime.recursive.entry import (
    Program,
    RecursionEntry,
    RecursionKernels,
    RecursiveInput,
    Step,
    StepArgument,
)
from hbtvm.runtime.recursive.vocabulary import Vocabulary

Add = Callable[..., str]
"""As `hbtvm.runtime.manifest.Add`."""

_ENTRY = {"cell", "children", "width", "state", "shape", "over", "inputs", "kernels", "binding"}
_INPUT = {"name", "kind", "size", "optional"}
_KERNELS = {
    "rows", "threads", "seconds", "strategy", "config", "share", "library", "object", "leaf", "inner",
    "first", "tables",
}  # fmt: skip
_PROGRAM = {"main", "scratch", "tail", "tail_most"}
_STEP = {"function", "tile", "arguments", "panels"}


def to_json(entry: RecursionEntry, add: Add) -> dict[str, Any]:
    """Plain values from which `from_json` makes an equal entry; `add` adds a member of the package."""
    values = {
        "cell": entry.cell,
        "children": entry.children,
        "width": entry.width,
        "state": entry.state,
        "shape": list(entry.shape),
        "over": entry.over,
        "inputs": [
            {"name": one.name, "kind": one.kind, "size": one.size, "optional": one.optional}
            for one in entry.inputs
        ],
        "kernels": [_kernels_to_json(one, add) for one in entry.kernels],
        # Left out where there is none: older releases read such packages, too.
        **({} if entry.vocabulary is None else {"vocabulary": entry.vocabulary.to_json()}),
    }
    return {**values, "binding": binding(values)}


def binding(values: Mapping[str, Any]) -> str:
    """The hash of an entry, its own field ``binding`` left out."""
    rest = {name: value for name, value in values.items() if name != "binding"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    # A value that JSON has no form for is refused where the manifest is written.
    return value.item() if isinstance(value, np.generic) else repr(value)


def _kernels_to_json(kernels: RecursionKernels, add: Add) -> dict[str, Any]:
    # Releases that know of no depth read packages that go level by level.
    depth = {"depth": kernels.depth} if kernels.depth > 1 else {}
    return {
        **depth,
        "rows": kernels.rows,
        "threads": kernels.threads,
        "seconds": kernels.seconds,
        "strategy": kernels.strategy,
        "config": dict(kernels.config),
        "share": kernels.share,
        "library": add(kernels.library, None),
        "object": add(kernels.object, None, True) if kernels.object else None,
        "leaf": _program_to_json(kernels.leaf),
        "inner": _program_to_json(kernels.inner),
        "first": None if kernels.first is None else _program_to_json(kernels.first),
        "tables": [add(b"", table) for table in kernels.tables],
        **(
            {"persistent": None if kernels.persistent is None else _step_to_json(kernels.persistent)}
            if on_gpu(kernels)
            else {}
        ),
    }


def on_gpu(kernels: RecursionKernels) -> bool:
    """Whether kernels are a GPU's."""
    return kernels.inner.main[0].threads > 0


def _program_to_json(program: Program) -> dict[str, Any]:
    return {
        "main": [_step_to_json(one) for one in program.main],
        "scratch": list(program.scratch),
        "tail": [_step_to_json(one) for one in program.tail],
        "tail_most": program.tail_most,
    }


def _step_to_json(step: Step) -> dict[str, Any]:
    return {
        "function": step.function,
        "tile": step.tile,
        "arguments": [[one.role, one.number] for one in step.arguments],
        "panels": step.panels,
        **({"threads": step.threads} if step.threads else {}),
        **({"shared": step.shared} if step.shared else {}),
    }


def from_json(
    values: Any, libraries: Mapping[str, bytes], tables: Mapping[str, np.ndarray], device: bool = False
) -> RecursionEntry:
    """What `to_json` described, checked.

    Parameters
    ----------
    libraries, tables
        The package's members by name.
    device
        Whether its kernels are for a GPU.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it makes no sense.
    """
    words = values.get("vocabulary") if type(values) is dict else None
    _fields(values, _ENTRY | ({"vocabulary"} if words is not None else set()), "a recursive model")
    entry = RecursionEntry(
        cell=values["cell"],
        children=values["children"],
        width=values["width"],
        state=values["state"],
        shape=tuple(_list(values["shape"], "shape")),
        over=values["over"],
        inputs=tuple(_input(one) for one in _list(values["inputs"], "inputs")),
        kernels=tuple(
            _kernels(one, libraries, tables, device) for one in _list(values["kernels"], "kernels")
        ),
        vocabulary=None if words is None else Vocabulary.from_json(words),
    )
    check_entry(entry, device)
    if values["binding"] != binding(values):
        raise ValueError("the entry of the recursive model is not as it was when its tables were bound")
    return entry


def _fields(values: Any, expected: set[str], what: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{what} is {values!r:.100}")
    if set(values) != expected:
        raise ValueError(f"fields {sorted(expected ^ set(values))!r:.200} of {what} are missing or unknown")


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is {value!r:.100}")
    return value


def _input(values: Any) -> RecursiveInput:
    _fields(values, _INPUT, "an input of a recursive model")
    return RecursiveInput(**values)


def _kernels(
    values: Any, libraries: Mapping[str, bytes], tables: Mapping[str, np.ndarray], device: bool
) -> RecursionKernels:
    more = {"persistent"} if device else {"depth"} & set(values if isinstance(values, dict) else ())
    _fields(values, _KERNELS | more, "kernels of a recursive model")
    library, object_file = values["library"], values["object"]
    if library not in libraries or not library.startswith("kernels/"):
        raise ValueError(f"the library {library!r:.100} is no kernel")
    if object_file is not None and (object_file not in libraries or not object_file.startswith("objects/")):
        raise ValueError(f"the object {object_file!r:.100} of a kernel is none")
    given = {
        **values,
        "library": libraries[library],
        "object": b"" if object_file is None else libraries[object_file],
        "leaf": _program(values["leaf"], device),
        "inner": _program(values["inner"], device),
        "first": None if values["first"] is None else _program(values["first"], device),
        "persistent": _step(values["persistent"], True) if device and values["persistent"] else None,
        "tables": tuple(tables[one] for one in _list(values["tables"], "tables")),
    }
    return RecursionKernels(**given)


def _program(values: Any, device: bool) -> Program:
    _fields(values, _PROGRAM, "a level's program")
    steps = {
        name: tuple(_step(one, device) for one in _list(values[name], name)) for name in ("main", "tail")
    }
    return Program(
        steps["main"], tuple(_list(values["scratch"], "scratch")), steps["tail"], values["tail_most"]
    )


def _step(values: Any, device: bool) -> Step:
    more = {"threads"} | ({"shared"} & set(values if isinstance(values, dict) else ())) if device else set()
    _fields(values, _STEP | more, "a step")
    arguments = []
    for one in _list(values["arguments"], "arguments"):
        role, number = _list(one, "an argument")
        arguments.append(StepArgument(role, number))
    return Step(
        values["function"],
        values["tile"],
        tuple(arguments),
        values["panels"],
        values.get("threads", 0),
        values.get("shared", 0),
    )
