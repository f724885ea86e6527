"""`RecursiveDevice`: a recursive model on a GPU, from structures to readouts.

The host finds levels and lays out the nodes' inputs by row; one copy takes them to the device. Steps are
launched level by level in one stream, or one kernel goes through all levels. The states from the lowest row
that is read are copied back, and the host reads the results.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.runtime.cuda.kernel import TableStore
from hbtvm.runtime.cuda.recursive.lane import Call, Lane, LevelKernels
from hbtvm.runtime.cuda.resident import Resident
from hbtvm.runtime.native.description import Kept
from hbtvm.runtime.native.library import Library
from hbtvm.runtime.recursive import binding as c
from hbtvm.runtime.recursive.arrays import address, checked
from hbtvm.runtime.recursive.description import model_of
from hbtvm.runtime.recursive.entry import Program, RecursionEntry
from hbtvm.runtime.recursive.host import batch_of, fail


class RecursiveDevice(Resident):
    """A recursive model on a device. Several threads may call it at once.

    Raises `PackageError` if the device can't run the code, or the executor lacks a function. Raises
    `DeviceError` if there is no such device, or it has too little memory.

    `library`: the executor's code.
    `entry`: the model, with kernels for GPUs.
    `arch`: the architecture that it was compiled for.
    `index`: the device's number.
    `toolkit`: version of the CUDA toolkit that compiled it, for errors.
    `poison`: whether to set states to NaN before each call, so that missing states show.
    """

    def __init__(
        self,
        library: Library,
        entry: RecursionEntry,
        arch: str,
        index: int,
        toolkit: str = "",
        poison: bool = False,
    ) -> None:
        self._library, self.entry, self._poison = c.bind_rows(library), entry, poison
        super().__init__(arch, index)
        gpu = self._gpu
        self._width = math.prod(entry.shape)
        # The executor calls no kernel here, so its description has batch sizes but no steps.
        plain = Program(())
        bare = [replace(kernels, leaf=plain, inner=plain, first=None, tables=()) for kernels in entry.kernels]
        kept = Kept()
        model = model_of(kept, replace(entry, kernels=tuple(bare)), [{}] * len(bare))
        self._handle = kept.opened(self, library, model, 1, "recursive_")
        with gpu.current():
            put = TableStore(gpu).put
            self._kernels = [
                LevelKernels(gpu, kernels, [put(table) for table in kernels.tables], toolkit)
                for kernels in entry.kernels
            ]
        self._spare: list[Lane] = []

    def run(self, structures: Any) -> np.ndarray:
        """Return the readouts of structures; parameters, result and errors as for `RecursiveHost.run`.

        Raises `DeviceError` if the device has too little memory, or fails.
        """
        self.check_process()
        arrays = checked(structures, self.entry.inputs)
        batch, _kept = batch_of(arrays)
        rows, place = c.Rows(), c.Place()
        handle, arguments = self._handle, (ctypes.byref(batch), ctypes.byref(rows))
        status = self._library.recursive_begin(handle, *arguments, ctypes.byref(place))
        if status:
            fail(self.entry, status, place)
        try:
            out = np.empty((rows.results, self._width), np.float32)
            kernels = self._kernels[int(self._library.recursive_choice(handle, batch.structures))]
            state = 0
            with self._gpu.current():
                lane = self._lane()
                if rows.levels:
                    call = Call(self.entry, batch.nodes, rows)
                    lane.reserve(call, kernels)
                    self._library.recursive_fill(handle, *arguments, lane.host(call.child), lane.inputs(call))
                    state = lane.run(call, kernels)
            # A lane whose call failed may still be in use, so it does not return to the free list.
            status = self._library.recursive_read(handle, *arguments, state, address(out))
            self._spare.append(lane)
        finally:
            self._library.recursive_end(handle, ctypes.byref(rows))
        if status:
            fail(self.entry, status, place)
        return out

    def _lane(self) -> Lane:
        """Return a lane that no other call uses."""
        try:
            return self._spare.pop()
        except IndexError:
            return Lane(self._gpu, self._poison)
