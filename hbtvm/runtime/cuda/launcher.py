"""Launches of a kernel and its score epilogue, whose arguments are laid out once."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hbtvm.runtime.gpu.launch import COUNT, EPILOGUE_THREADS, Scaling, pointers
from hbtvm.runtime.package.signature import TILES

if TYPE_CHECKING:
    from hbtvm.runtime.cuda.kernel import DeviceKernel


class Launcher:
    """Queues a kernel; for one thread at a time.

    The driver copies arguments at each launch, so that the next one may change them: addresses, the number of
    rows, and sizes that follow from it. The others stay.

    `kernel`: the kernel.
    `scaling`: the conversion of its sums to raw scores.
    `finish`: the score epilogue; 0 if the kernel needs none.
    """

    def __init__(self, kernel: DeviceKernel, scaling: Scaling, finish: int = 0) -> None:
        self._kernel, self.scaling = kernel, scaling  # which keep alive what arguments point to
        self._tile, self._outputs, self._finish = kernel.row_tile, kernel.outputs, finish
        self._start = kernel.gpu.driver.function("cuLaunchKernel")
        self._refuse = kernel.gpu.driver.refuse
        launch, arguments = kernel.launch, kernel.signature.arguments

        def follows(size: Any) -> bool:
            return isinstance(size, tuple) and arguments[size[0]].shape[size[1]] == TILES

        values = launch.values(kernel.addresses(0, 0), kernel.shapes(0), 0, scaling)
        named = list(zip(launch.arguments, values, strict=True))
        self._rows = [value for argument, value in named if argument == 0]
        self._into = [value for argument, value in named if argument == len(arguments) - 1]
        self._counts = [value for argument, value in named if argument == COUNT]
        self._tiles = [value for argument, value in named if follows(argument)]
        self._pointers = pointers(values)
        blocks = launch.blocks(kernel.shapes(0))
        self._grid = [None if follows(size) else n for size, n in zip(launch.grid, blocks, strict=True)]
        self._head, self._block = kernel.function_handle, (*launch.block, launch.shared)
        self._sums, self._out, self._number = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int64()
        self._finish_pointers = pointers(
            (
                *(self._sums, self._out, ctypes.c_uint64(scaling.base), ctypes.c_double(scaling.divisor)),
                *(self._number, ctypes.c_int64(self._outputs), ctypes.c_int64(self._tile)),
            )
        )

    def queue(self, stream: int | None, rows: int, count: int, sums: int, out: int) -> None:
        """Queue raw scores.

        Raises `CudaError` if the driver refuses it.

        `stream`: the stream to queue in; None for the default stream.
        `rows`, `count`: address of rows in the signature's layout, and their number.
        `sums`, `out`: addresses: memory for sums (see `DeviceKernel.sum_bytes`); raw scores, float64, shape
            (count, outputs).
        """
        finish = self._finish
        code = self._start(*self.arguments(stream, rows, count, sums if finish else out))
        if finish and not code:
            self._sums.value, self._out.value, self._number.value = sums, out, count
            blocks = -(-count * self._outputs // EPILOGUE_THREADS)
            sizes = (blocks, 1, 1, EPILOGUE_THREADS, 1, 1, 0)
            code = self._start(finish, *sizes, stream, self._finish_pointers, None)
        if code:
            self._refuse("cuLaunchKernel", code)

    def arguments(self, stream: int | None, rows: int, count: int, into: int) -> tuple[Any, ...]:
        """Return the arguments of ``cuLaunchKernel``, without the epilogue; valid until the next call.

        `into`: address of sums, or of raw scores if the kernel needs no epilogue.
        """
        tiles = -(-count // self._tile)
        for values, number in (
            *((self._rows, rows), (self._into, into)),
            *((self._counts, count), (self._tiles, tiles)),
        ):
            for value in values:
                value.value = number
        x, y, z = self._grid
        grid = (tiles if x is None else x, tiles if y is None else y, tiles if z is None else z)
        return self._head, *grid, *self._block, stream, self._pointers, None
