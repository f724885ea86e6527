"""Interfaces to the libraries of arrays on GPUs: torch, CuPy, and others by DLPack.

DLPack gives access to the memory of all arrays. torch and CuPy run all other operations on their arrays
(casts, new arrays, probabilities from scores), so that these follow the library's device, stream and memory
pool.
"""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.outputs.arrays import Arrays
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.memory import Memory
from hbtvm.runtime.cuda.rows.arrays import ArrayLibrary
from hbtvm.runtime.cuda.rows.tensor import ffi, tensor, tensor_of

_CUDA_KINDS = (2, 13)  # DLPack's device types of device memory, and of managed memory
_DEFAULT_STREAM = 1  # the default stream's number in the array API standard


class _TorchArrays(Arrays):
    """Torch's operations."""

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self._module, dtype))

    def bounded(self, name: str, x: Any, bound: float) -> Any:
        return x.clamp(min=bound) if name == "maximum" else x.clamp(max=bound)

    def reduced(self, name: str, x: Any) -> Any:
        values = getattr(x, {"max": "amax"}.get(name, name))(1, keepdim=True)
        return self.cast(values, "float64")

    def columns(self, parts: Any) -> Any:
        return self._module.stack(list(parts), 1)


class TorchLibrary(ArrayLibrary):
    """Interface to torch, which is imported if there is an array of it."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self.arrays = _TorchArrays(self._torch)
        self._known: dict[Any, np.dtype] = {}
        # Inductor's function, which makes no object.
        self._stream = getattr(self._torch._C, "_cuda_getCurrentRawStream", self._slow_stream)

    def device(self, X: Any) -> int:
        return int(X.device.index)

    def holds(self, X: Any) -> bool:
        held: bool = X.is_cuda
        return held

    def _slow_stream(self, index: int) -> Any:
        return self._torch.cuda.current_stream(index).cuda_stream

    def stream(self, X: Any) -> int | None:
        return int(self._stream(X.device.index)) or None

    def dtype(self, X: Any) -> np.dtype:
        kind = X.dtype
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = _dtype(str(kind).removeprefix("torch."))
        return known

    def cast(self, X: Any, dtype: np.dtype) -> Any:
        if self.dtype(X) == dtype and X.is_contiguous():
            return X
        return X.detach().to(getattr(self._torch, dtype.name)).contiguous()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, like: Any) -> Any:
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype.name), device=like.device)

    def address(self, X: Any) -> int:
        return int(X.data_ptr())

    def mark_missing(self, X: Any, value: float) -> Any:
        return self._torch.where(value == X, float("nan"), X)

    def has(self, X: Any, kind: str) -> bool:
        return bool((self._torch.isnan(X) if kind == "NaN" else self._torch.isinf(X)).any())

    def to_host(self, X: Any) -> np.ndarray:
        array: np.ndarray = X.cpu().numpy()
        return array

    def to_device(self, array: np.ndarray, like: Any) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(like.device)

    def adopt(self, tensor: Any) -> Any:
        return self._torch.from_dlpack(tensor)


class CupyLibrary(ArrayLibrary):
    """Interface to CuPy, which is imported if there is an array of it. It works on the current device."""

    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]
        self.arrays = Arrays(self._cupy)

    def place(self, X: Any) -> contextlib.AbstractContextManager[Any]:
        device: contextlib.AbstractContextManager[Any] = X.device
        return device

    def device(self, X: Any) -> int:
        return int(X.data.device_id)

    def stream(self, X: Any) -> int | None:
        return int(self._cupy.cuda.get_current_stream().ptr) or None

    def dtype(self, X: Any) -> np.dtype:
        dtype: np.dtype = X.dtype
        return dtype

    def cast(self, X: Any, dtype: np.dtype) -> Any:
        return self._cupy.ascontiguousarray(X, dtype=dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, like: Any) -> Any:
        return self._cupy.empty(shape, dtype)

    def address(self, X: Any) -> int:
        return int(X.data.ptr)

    def mark_missing(self, X: Any, value: float) -> Any:
        return self._cupy.where(value == X, X.dtype.type(np.nan), X)

    def has(self, X: Any, kind: str) -> bool:
        return bool((self._cupy.isnan(X) if kind == "NaN" else self._cupy.isinf(X)).any())

    def to_host(self, X: Any) -> np.ndarray:
        array: np.ndarray = self._cupy.asnumpy(X)
        return array

    def to_device(self, array: np.ndarray, like: Any) -> Any:
        return self._cupy.asarray(array)

    def adopt(self, tensor: Any) -> Any:
        return self._cupy.from_dlpack(tensor)


class DlpackLibrary(ArrayLibrary):
    """Interface to other libraries with DLPack, such as JAX; results are `tvm_ffi.Tensor`s.

    Kernels read the arrays in place, in the default stream, for which the library makes them ready. Casts,
    checks of values and outputs from scores go through host memory. Results are complete when returned, since
    neither the rows' lifetime nor the stream that would have to wait is known.
    """

    def read(self, X: Any) -> Any:
        return ffi().from_dlpack(X.__dlpack__(stream=_DEFAULT_STREAM))

    def device(self, X: Any) -> int:
        return int(X.__dlpack_device__()[1])

    def stream(self, X: Any) -> int | None:
        return None

    def dtype(self, X: Any) -> np.dtype:
        return _dtype(str(X.dtype))

    def cast(self, X: Any, dtype: np.dtype) -> Any:
        if not X.is_contiguous():
            raise InputError(
                f"expected C-contiguous rows, got strides {tuple(X.strides)}; make a contiguous copy, or a "
                "torch tensor or CuPy array, which may lie otherwise."
            )
        if self.dtype(X) == dtype:
            return X
        with np.errstate(over="ignore"):
            return self.to_device(self.to_host(X).astype(dtype), X)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, like: Any) -> Any:
        gpu = driver.gpu(self.device(like))
        with gpu.current():
            return tensor(Memory(gpu, dtype.itemsize * math.prod(shape)), shape, dtype)

    def address(self, X: Any) -> int:
        return int(X.data_ptr())

    def mark_missing(self, X: Any, value: float) -> Any:
        rows = self.to_host(X)
        rows[rows == value] = np.nan
        return self.to_device(rows, X)

    def has(self, X: Any, kind: str) -> bool:
        rows = self.to_host(X)
        return bool((np.isnan(rows) if kind == "NaN" else np.isinf(rows)).any())

    def to_host(self, X: Any) -> np.ndarray:
        gpu, array = driver.gpu(self.device(X)), np.empty(X.shape, self.dtype(X))
        with gpu.current():
            gpu.driver.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, X.data_ptr(), array.nbytes, None)
            gpu.driver.call("cuStreamSynchronize", None)
        return array

    def to_device(self, array: np.ndarray, like: Any) -> Any:
        return tensor_of(driver.gpu(self.device(like)), array)


_known: dict[type, ArrayLibrary] = {}  # of torch and CuPy, by their arrays' types


def library_of(X: Any) -> ArrayLibrary | None:
    """Return the interface to the library of an array on a GPU; None for everything else."""
    kind = type(X)
    known = _known.get(kind)
    if known is not None and known.holds(X):
        return known
    if kind is np.ndarray or not hasattr(X, "__dlpack_device__"):
        return None
    if int(X.__dlpack_device__()[0]) not in _CUDA_KINDS:
        return None
    name = kind.__module__.partition(".")[0]
    library = {"torch": TorchLibrary, "cupy": CupyLibrary}.get(name, DlpackLibrary)()
    if library.arrays is not None:
        _known[kind] = library
    return library


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        raise ValueError(name) from None
