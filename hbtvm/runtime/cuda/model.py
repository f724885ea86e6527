"""A package's kernels on a GPU, and predictions for rows on the device."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.outputs.output import Output, OutputSpec
from hbtvm.runtime.cuda.execution.executor import CHUNK_BYTES, DeviceExecutor
from hbtvm.runtime.cuda.execution.staged import StagedKernels
from hbtvm.runtime.cuda.execution.work import OneKernel
from hbtvm.runtime.cuda.kernel import DeviceKernel, TableStore
from hbtvm.runtime.cuda.outputs import DeviceOutput, device_output
from hbtvm.runtime.cuda.resident import Resident
from hbtvm.runtime.cuda.rows import arrays as device_arrays
from hbtvm.runtime.cuda.rows.arrays import ArrayLibrary
from hbtvm.runtime.cuda.rows.tensor import tensor_of
from hbtvm.runtime.gpu.host_rows import DeviceKernelSet, HostRows
from hbtvm.runtime.gpu.launch import OUTPUT
from hbtvm.runtime.gpu.stages import steps_of
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.rows.inputs import Inputs

_F64 = np.dtype(np.float64)


class DeviceModel(Resident, HostRows[DeviceExecutor]):
    """All kernels of a package, on one device.

    Raises `PackageError` if this machine can't run them. Raises `DeviceError` if there is no such device, or
    it has too little memory.

    `package`: a package for a GPU.
    `device`: the device's number.
    `chunk_bytes`: as `hbtvm.runtime.cuda.execution.executor.CHUNK_BYTES`.
    """

    def __init__(self, package: Package, device: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        arch = str(package.target["arch"])
        super().__init__(arch, device)
        gpu = self._gpu
        self._spec = package.output
        self._specs: dict[type[ArrayLibrary], OutputSpec] = {}
        base, divisor = np.array(package.forest["base_score"], np.float64), float(package.forest["divisor"])
        self.kernels = {}
        with gpu.current():
            put = TableStore(gpu).put
            toolkit = package.cuda_version
            loaded = {id(entry): DeviceKernel(gpu, entry, put, toolkit) for entry in package.all_kernels}
            # One module of a package has it, but of older releases none.
            function = next(filter(None, (one.optional_function(OUTPUT) for one in loaded.values())), 0)
            self._loaded = list(loaded.values())  # keeps the function's module
            # Outputs that need no operation of an array library
            self._outputs: dict[Output | None, DeviceOutput | None] = {
                output: device_output(gpu, self._spec, output, function)
                for output in (None, *self._spec.outputs)
            }
            for dtype, sequences in steps_of(package).items():
                executors = []
                for _, steps in sequences:
                    here = [(loaded[id(entry)], columns) for entry, columns in steps]
                    work = StagedKernels(here, package.n_read, dtype) if here[1:] else OneKernel(here[0][0])
                    executors.append(DeviceExecutor(work, base, divisor, chunk_bytes))
                self.kernels[dtype] = DeviceKernelSet([rows for rows, _ in sequences], executors)

    def predict(self, library: ArrayLibrary, X: Any, inputs: Inputs, output: Output | None) -> Any:
        """Predict for rows on this device.

        All work runs on the device, in the caller's stream, without waiting (unless values must be checked,
        see `hbtvm.runtime.cuda.rows.arrays.prepare`, or more memory is needed than before). Exceptions are
        labels that are not numbers and outputs that depend on a number's last bit (labels and decisions of
        isolation forests), which the host computes from raw scores: these wait, and copy 8 bytes per score.
        So do all rows that are neither torch's nor CuPy's
        (see `hbtvm.runtime.cuda.rows.libraries.DlpackLibrary`).

        Raises `InputError` if the rows don't fit the model, or lie on another device.

        `library`, `X`: the rows and their library. As for the library's operations, torch's and CuPy's rows
            must be ready in the current stream of the model's device: it has to wait for another stream that
            computes them (``wait_stream``, ``wait_event``). If memory of another stream may be released
            before this stream has read it, the caller has to tell its allocator
            (``X.record_stream(torch.cuda.current_stream())``).
        `output`: an output that the model has; None for that of ``predict``.
        Returns an array of the same library on the same device, of the same type and shape as for rows on the
        host; a `tvm_ffi.Tensor` for libraries other than torch and CuPy; a numpy array if it holds no
        numbers.
        """
        if library.device(X) != self._gpu.index:
            raise InputError(
                f"expected rows on cuda:{self._gpu.index}, where the model is, got rows on "
                f'cuda:{library.device(X)}; load the model there (device="cuda:{library.device(X)}").'
            )
        if self._gpu.is_current():
            return self._predict(library, X, inputs, output)
        with library.place(X), self._gpu.current():
            return self._predict(library, X, inputs, output)

    def _predict(self, library: ArrayLibrary, X: Any, inputs: Inputs, output: Output | None) -> Any:
        """Predict as `predict` does, for rows on the current device."""
        spec = self._spec
        rows = device_arrays.prepare(library, X, inputs)
        count, stream = int(rows.shape[0]), library.stream(rows)
        made = None if library.arrays is None else self._outputs[output]
        raw_shape = made.shape(count) if made is not None and made.is_raw else (count, spec.n_outputs)
        raw = library.empty(raw_shape, _F64, rows)
        into = library.address(raw)
        executor = self.kernels[library.dtype(rows)].executor(count)
        executor.run_on_device(library.address(rows), count, into, stream)
        if made is not None:
            if made.is_raw:
                return made.finished(raw)
            results = library.empty(made.shape(count), made.dtype, rows)
            made.queue(stream, into, count, library.address(results))
            return made.finished(results)
        if library.arrays is None or not spec.by_any_library(output):
            return _copied_back(library, spec.compute(output, library.to_host(raw)), raw)
        return self._spec_of(library).compute(output, raw, library.arrays)

    @cached_property
    def _labels(self) -> list[Any]:
        """The classes on this device, if an array library looks them up.

        This object keeps the memory, so that it is not reused while a stream may still read it.
        """
        looked_up = self._spec.by_any_library("label") and self._outputs.get("label") is None
        return [tensor_of(self._gpu, labels) for labels in (self._spec.classes if looked_up else ())]

    def _spec_of(self, library: ArrayLibrary) -> OutputSpec:
        """Return the output specification with its labels in a library's arrays on this device."""
        kind = type(library)
        if kind not in self._specs:
            tables: Any = tuple(map(library.adopt, self._labels))
            self._specs[kind] = replace(self._spec, classes=tables) if tables else self._spec
        return self._specs[kind]


def _copied_back(library: ArrayLibrary, result: Any, like: Any) -> Any:
    """Copy a host's prediction to the device if it holds numbers."""
    if isinstance(result, list):
        return [_copied_back(library, part, like) for part in result]
    return library.to_device(result, like) if result.dtype.kind in "fiub" else result
