"""`RecursiveHost`: an opened recursive model, from structures to readouts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from operator import is_
from typing import Any, NoReturn

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.native.description import Kept
from hbtvm.runtime.native.library import Library, load_functions
from hbtvm.runtime.recursive import binding as c
from hbtvm.runtime.recursive.arrays import address, checked
from hbtvm.runtime.recursive.description import Functions, model_of, names_of
from hbtvm.runtime.recursive.entry import RecursionEntry, RecursiveInput
from hbtvm.runtime.recursive.structures import Structures

_STEPS = 1024  # factor of the kernels' index in results of ``hbtvm_recursive_check``


class RecursiveHost:
    """An opened recursive model. Several threads may call it at once, and so may a forked child.

    Raises `PackageError` if a library can't be loaded, or lacks a function. Raises `MemoryError` if there is
    no memory for it.

    `library`: the executor's code.
    `threads`: most threads of a call; 0 for the number that kernels were tuned for.
    `functions`: by name, for each of the entry's kernels; by default, loaded from its libraries.
    """

    def __init__(
        self,
        library: Library,
        entry: RecursionEntry,
        threads: int = 0,
        functions: Sequence[Functions] | None = None,
    ) -> None:
        self._library, self.entry = c.bind(library), entry
        self.width = math.prod(entry.shape)
        self._each = entry.over == "nodes"
        if functions is None:
            names = [names_of(kernels) for kernels in entry.kernels]
            functions = [
                dict(zip(kernel_names, load_functions(kernels.library, kernel_names), strict=True))
                for kernel_names, kernels in zip(names, entry.kernels, strict=True)
            ]
        kept = Kept()
        model = model_of(kept, entry, functions)
        self._run = library.recursive_run
        self._handle = kept.opened(self, library, model, threads, "recursive_")

    def check(self) -> None:
        """Let kernels check their arguments, in calls without nodes.

        Raises `ValueError` if an argument differs from the description.
        """
        failed = int(self._library.recursive_check(self._handle))
        if failed == -2:
            raise MemoryError("there is no memory for the model.")
        if failed >= 0:
            kernels = self.entry.kernels[failed // _STEPS]
            steps = [step for program in kernels.programs for step in (*program.main, *program.tail)]
            name = steps[failed % _STEPS].function
            raise ValueError(
                f"in the kernels for {kernels.rows} structures, {name!r} takes other arguments than it is "
                "described to"
            )

    def poison(self, on: bool, parts: int = 1) -> None:
        """Start or stop setting states to NaN before each call, so that missing states show.

        Libraries of older releases ignore this.

        `parts`: if several, one thread computes the parts that so many threads share, the last first, so that
            parts that depend on each other show.
        """
        if self._library.poisons_states:
            self._library.recursive_poison(self._handle, parts if on else 0)

    def choice(self, structures: int) -> int:
        """Return the index of the kernels for a number of structures."""
        return int(self._library.recursive_choice(self._handle, structures))

    def run(self, structures: Any, threads: int = 0) -> np.ndarray:
        """Return the readouts of structures.

        Raises `InputError` if the structures don't fit the model; it names structure and node.

        `structures`: `hbtvm.runtime.recursive.structures.Structures`.
        `threads`: most threads of this call; 0 for the model's number.
        Returns float32, shape (results, width), where `width` is the product of the state's shape: a result
        for each root, node or structure, in their order.
        """
        ready = ready_of(structures, self.entry)
        place = c.Place()
        room = ready.nodes if self._each else ready.structures
        count = ctypes.c_int64(room)
        while True:
            out = np.empty((room, self.width), np.float32)
            status = self._run(
                self._handle,
                ready.batch,
                address(out),
                ctypes.byref(count),
                threads,
                ctypes.byref(place),
            )
            if status != c.MORE_RESULTS:
                break
            room = count.value
        if status:
            fail(self.entry, status, place)
        return out[: count.value] if count.value < room else out

    def levels(self, structures: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the order in which nodes are computed.

        Raises `InputError` as `run`. Returns int32, shape (nodes,), each node's row, and int32, shape (levels
        + 1,), the first row of each level, and the end.
        """
        arrays = checked(structures, self.entry.inputs)
        batch, _kept = batch_of(arrays)
        place = c.Place()
        row, start = np.empty(len(arrays[1]) - 1, np.int32), np.empty(len(arrays[1]), np.int32)
        status = int(
            self._library.recursive_levels(
                self._handle, ctypes.byref(batch), row.ctypes.data, start.ctypes.data, ctypes.byref(place)
            )
        )
        if status < 0:
            fail(self.entry, -status, place)
        return row, start[: status + 1]


def fail(entry: RecursionEntry, status: int, place: c.Place) -> NoReturn:
    """Raise the error of a status: `InputError`, which names structure and node, or `MemoryError`."""
    where = f"structure {place.structure}"
    node = f"{where}, node {place.node}"
    if status == c.CYCLE:
        raise InputError(f"{node}: it depends on itself; expected a tree or another graph without cycles.")
    if status == c.CHILD_OUTSIDE:
        raise InputError(f"{node}: a child is not a node of this structure.")
    if status == c.MANY_CHILDREN:
        places = entry.children
        raise InputError(f"{node}: it has more than {places} children, which is as many as the model takes.")
    if status == c.NUMBER_OUTSIDE:
        known = entry.inputs[place.input]
        lowest = "-1 (for none)" if known.optional else "0"
        raise InputError(
            f"{node}: {known.name!r} is out of range; expected a number from {lowest} to {known.size - 1}."
        )
    if status == c.BAD_ARRAYS:
        place_name = node if place.node >= 0 else where if place.structure >= 0 else "structures"
        raise InputError(
            f"{place_name}: starts and first should rise from 0 to the numbers of nodes and children."
        )
    if status == c.TOO_LARGE:
        raise InputError("expected fewer than 2,147,418,112 nodes in all, and as many children.")
    if status == c.NO_MEMORY:
        raise MemoryError("there is no memory for the states of these structures.")
    raise RuntimeError(f"the executor failed with status {status}")


class Ready:
    """The executor's form of structures, cached for further calls of the same model.

    `batch`: the arrays' addresses, by reference.
    `structures`, `nodes`: their numbers.
    `plain`: whether the arrays are read in place; copies would not follow later writes.
    """

    def __init__(self, structures: Any, inputs: Sequence[RecursiveInput]) -> None:
        arrays = checked(structures, inputs)
        batch, pointers = batch_of(arrays)
        self.batch, self.structures, self.nodes = ctypes.byref(batch), batch.structures, batch.nodes
        self._inputs, self._kept = inputs, (arrays, batch, pointers)
        # Callers may change the mapping of inputs, but not its arrays.
        self._arrays = list(structures.inputs.values())
        shape = (structures.starts, structures.first, structures.child)
        expected = (*shape, *(structures.inputs[input_.name] for input_ in inputs))
        self.plain = all(map(is_, arrays, expected))

    def fits(self, structures: Structures, inputs: Sequence[RecursiveInput]) -> bool:
        """Return whether it is current for structures and a model's inputs."""
        if self._inputs is not inputs:
            return False
        arrays = self._arrays
        if len(arrays) != len(structures.inputs):
            return False
        return all(map(is_, arrays, structures.inputs.values()))


def ready_of(structures: Any, entry: RecursionEntry) -> Ready:
    """Return the executor's form of structures.

    Raises `InputError` as `checked`.
    """
    if type(structures) is Structures:
        cached: Ready | None = structures.__dict__.get("ready")
        if cached is not None and cached.fits(structures, entry.inputs):
            return cached
        ready = Ready(structures, entry.inputs)
        if ready.plain:
            structures.__dict__["ready"] = ready
        return ready
    return Ready(structures, entry.inputs)


def batch_of(arrays: Sequence[np.ndarray]) -> tuple[c.Batch, Any]:
    """Return the arrays' addresses, and the objects to keep alive with them."""
    starts, first, child, *inputs = arrays
    pointers = (ctypes.c_void_p * len(inputs))(*map(address, inputs))
    batch = c.Batch(
        len(starts) - 1, len(first) - 1, len(child), address(starts), address(first), address(child),
        ctypes.addressof(pointers),
    )  # fmt: skip
    return batch, pointers
