"""`Kernels`: a package's kernels on its device, from callers' rows to raw scores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.feeds.of_package import reader_of
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.gpu.names import device_index
from hbtvm.runtime.host import HostModel, Output
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.recursive.front import DeviceFront, RecursiveFront
from hbtvm.runtime.rows.sparse import SparseRows, refuse_sparse
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.unreadable import reading

if TYPE_CHECKING:
    from hbtvm.runtime.cuda.model import DeviceModel
    from hbtvm.runtime.cuda.rows.arrays import ArrayLibrary
    from hbtvm.runtime.opencl.model import OpenclModel

_BLOCK = 1 << 10  # rows with counters that a thread prepares at a time

# GPU modules are imported when a package for a GPU is loaded: most processes need none of them.


class Kernels:
    """A package's kernels, loaded by the first call that needs them.

    `package`, `device`: the package, and where it runs: ``"cpu"`` or a GPU such as ``"cuda:0"``.
    `threads`: most threads of a call; None for as many as the package was tuned for.
    `texts`: the library that counts terms of texts.
    `convert`: functions from raw scores to outputs, for calls on a GPU.
    `inputs`: the reader of rows.
    `host`, `on_device`: the loaded kernels of a CPU or a GPU; None before `warm_up`, and without kernels.
    `front`: the loaded recursive model, whose readout the kernels read; None of other models.
    `calls`: by output, functions from rows to results that run no Python in between. They return None for
        rows that they do not read. Empty before `warm_up`.
    `transform_call`: such a function for ``transform``, if there is one.
    """

    def __init__(
        self,
        package: Package,
        device: str,
        threads: int | None,
        texts: TextLibrary,
        convert: Mapping[Output | None, Callable[..., Any]],
    ) -> None:
        self.inputs = reader_of(package, package.row_dtypes, texts)
        self.host: HostModel | None = None
        self.front: RecursiveFront | DeviceFront | None = None
        self.on_device: DeviceModel | OpenclModel | None = None
        self.calls: dict[Output | None, Callable[[Any], Any]] = {}
        self.transform_call: Callable[[Any], Any] | None = None
        self._package, self._device, self._threads = package, device, threads
        self._texts, self._convert = texts, convert

    @property
    def pipeline(self) -> FeedReader | None:
        """The reader of a pipeline's rows; None for a bare model."""
        return self.inputs if isinstance(self.inputs, FeedReader) else None

    def warm_up(self) -> None:
        """Load the kernels, unless they are loaded.

        Raises `PackageError` if this machine cannot run them.
        """
        self._texts.check()
        package = self._package
        if self.front is None and package.recursion is not None:
            self.front = (
                RecursiveFront(package, self._threads)
                if self._device == "cpu"
                else DeviceFront(package, device_index(self._device))
            )
        if self.host is not None or self.on_device is not None or not package.kernels:
            return
        if self._device == "cpu":
            host = HostModel(package, self.inputs, self._threads)
            self._bind(host)
            self.host = host
            return
        if package.executor and self.pipeline is not None:
            # On a machine of another architecture, numpy computes counters.
            with contextlib.suppress(PackageError):
                self.pipeline.counters.use(load_library(package.executor).counters)
        self.on_device = self._model_on_device()
        if self.front is None and not package.transforms:
            # The calls hold neither these kernels nor the model: a cycle would delay the release of memory.
            prepare, look = self.inputs.prepare, self._look
            for output in (None, *package.output.outputs):
                self.calls[output] = self.on_device.plain_call(prepare, self._convert[output], look)

    def _model_on_device(self) -> DeviceModel | OpenclModel:
        if self._device.startswith("opencl"):
            from hbtvm.runtime.opencl.model import OpenclModel

            return OpenclModel(self._package, device_index(self._device, "opencl"))
        from hbtvm.runtime.cuda.model import DeviceModel

        return DeviceModel(self._package, device_index(self._device))

    def _bind(self, host: HostModel) -> None:
        if self.front is None:
            for output in [*self.calls, *host.direct]:
                if output in host.direct:
                    self.calls[output] = host.direct[output]
                else:
                    self.calls.pop(output, None)
            self.transform_call = None if self._package.output.container == "sparse" else host.transform

    @property
    def _look(self) -> Callable[[np.ndarray], Any] | None:
        return self.inputs.look if self.inputs.checks else None

    def prepared(self, X: Any) -> np.ndarray:
        """Return rows as an array that kernels read; at least one row."""
        with reading(X):
            rows = self.inputs.prepare(X)
        if not len(rows):
            raise InputError("expected at least one row, got none.")
        # Not at the call that loads the kernels: tables in C pay only if further frames follow.
        if self.host is not None and type(X) is not np.ndarray and self.host.learn(X):
            self._bind(self.host)
        return rows

    def in_blocks(self, X: Any, output: Output | None) -> Any:
        """Return an output of many rows with counters, whose matrix stays in the cache; None for other rows.

        None also if a value is refused, or the kernels are not loaded.
        """
        pipeline, host = self.pipeline, self.host
        call = None if host is None else host.prepared.get(output)
        if pipeline is None or not pipeline.plan.counters or call is None or not hasattr(X, "columns"):
            return None
        block, parts = _BLOCK * max(1, self._package.threads if self._threads is None else self._threads), []
        if len(X) < 2 * block:
            return None
        with reading(X):
            for rows in pipeline.blocks(X, block):
                parts.append(call(rows))
                if parts[-1] is None:
                    return None
        return np.concatenate(parts)

    def raw(self, rows: np.ndarray) -> np.ndarray:
        """Return raw scores of prepared rows, float64, shape (n, outputs)."""
        self.warm_up()
        if self.host is not None:
            return self.host.raw(rows)
        assert self.on_device is not None
        return self.on_device.scores(rows, self._look)

    def raw_of_sparse(self, X: Any) -> Iterator[tuple[np.dtype, np.ndarray]]:
        """Yield the type of rows and raw scores of scipy's sparse rows, one tile of dense rows at a time."""
        package, inputs = self._package, self.inputs
        refusal = None if package.steps else refuse_sparse(package.library, package.model)
        if refusal is not None:
            raise InputError(refusal)
        with reading(X):
            if isinstance(inputs, FeedReader):
                # Pipelines read absent entries as zeros, even if the last step alone would read them as
                # missing. The library converts integers to float64, even those that float32 holds.
                sparse = SparseRows(inputs.plain, X, "", wide=True)
            else:
                sparse = SparseRows(inputs, X, package.library)
        if not len(sparse):
            raise InputError("expected at least one row, got none.")
        for _, rows in sparse.tiles():
            read = inputs.prepare(rows) if isinstance(inputs, FeedReader) else rows
            yield read.dtype, self.raw(read)

    def predict_on_device(self, library: ArrayLibrary, X: Any, output: Output | None) -> Any:
        """Return an output of rows on a GPU, computed there."""
        from hbtvm.runtime.cuda.model import DeviceModel
        from hbtvm.runtime.cuda.rows.inputs import MatrixInputs

        self.warm_up()
        if self._device.startswith("opencl"):
            raise InputError(
                "a model for OpenCL reads rows in host memory; copy these rows from the GPU first."
            )
        assert isinstance(self.on_device, DeviceModel)
        self.on_device.check_process()
        inputs = MatrixInputs(self.inputs) if isinstance(self.inputs, FeedReader) else self.inputs
        return self.on_device.predict(library, library.read(X), inputs, output)
