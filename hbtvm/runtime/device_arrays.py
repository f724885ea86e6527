"""Arrays that lie on a GPU already: read where they are, answered in kind.

Their memory comes by DLPack. Whatever else is done with torch tensors and CuPy arrays (a cast, a new
array, probabilities of scores) is done by their own library, so that it follows the library's device,
stream and memory pool.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tvm_ffi

from hbtvm.errors import InputError
from hbtvm.pipeline.arrays import Arrays
from hbtvm.runtime.inputs import Inputs

_CUDA_KINDS = (2, 13)
"""DLPack's numbers of device memory, and of memory that the driver moves about."""


class Library(ABC):
    """What is asked of a library's arrays.

    Attributes
    ----------
    arrays
        Its operations, queued in the caller's stream; None where it has none that are known here.
    """

    arrays: Arrays | None = None

    def read(self, X: Any) -> Any:
        """What a caller hands in, as an array of this library."""
        return X

    def place(self, X: Any) -> contextlib.AbstractContextManager[Any]:
        """Within it, what is done for an array is done on its device."""
        return contextlib.nullcontext()

    @abstractmethod
    def device(self, X: Any) -> int:
        """Number of the device that an array lies on."""

    @abstractmethod
    def stream(self, X: Any) -> int | None:
        """The stream that the caller uses on an array's device; None for the default stream."""

    @abstractmethod
    def dtype(self, X: Any) -> np.dtype:
        """Type of an array; ValueError where numpy has no such type."""

    @abstractmethod
    def cast(self, X: Any, dtype: np.dtype) -> Any:
        """The array in another type and contiguous; itself if it is both already."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """A new float64 array on the device of another one."""

    @abstractmethod
    def mark_missing(self, X: Any, value: float) -> Any:
        """A copy with NaN in place of a value."""

    @abstractmethod
    def has(self, X: Any, what: str) -> bool:
        """Whether there is ``"NaN"`` or ``"infinity"`` in an array; waits for the device."""

    @abstractmethod
    def to_host(self, X: Any) -> np.ndarray:
        """A copy in host memory, waited for."""

    @abstractmethod
    def to_device(self, array: np.ndarray, like: Any) -> Any:
        """A copy on the device of another array."""

    @abstractmethod
    def adopt(self, tensor: Any) -> Any:
        """A tensor of `tvm_ffi` on a device, as an array of the library in the same memory."""


class _TorchArrays(Arrays):
    """Torch's names for the operations."""

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self._module, dtype))

    def largest(self, x: Any) -> Any:
        return x.amax(1, keepdim=True)

    def total(self, x: Any) -> Any:
        return x.sum(1, keepdim=True)

    def argmax(self, x: Any) -> Any:
        return x.argmax(1)

    def columns(self, parts: Any) -> Any:
        return self._module.stack(list(parts), 1)


class TorchLibrary(Library):
    """Torch, which its caller has imported."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self.arrays = _TorchArrays(self._torch)

    def device(self, X: Any) -> int:
        return int(X.device.index)

    def stream(self, X: Any) -> int | None:
        return int(self._torch.cuda.current_stream(X.device).cuda_stream) or None

    def dtype(self, X: Any) -> np.dtype:
        return _dtype(str(X.dtype).removeprefix("torch."))

    def cast(self, X: Any, dtype: np.dtype) -> Any:
        return X.detach().to(getattr(self._torch, dtype.name)).contiguous()

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        return self._torch.empty(shape, dtype=self._torch.float64, device=like.device)

    def mark_missing(self, X: Any, value: float) -> Any:
        return self._torch.where(value == X, float("nan"), X)

    def has(self, X: Any, what: str) -> bool:
        return bool((self._torch.isnan(X) if what == "NaN" else self._torch.isinf(X)).any())

    def to_host(self, X: Any) -> np.ndarray:
        array: np.ndarray = X.cpu().numpy()
        return array

    def to_device(self, array: np.ndarray, like: Any) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(like.device)

    def adopt(self, tensor: Any) -> Any:
        return self._torch.from_dlpack(tensor)


class CupyLibrary(Library):
    """CuPy, which its caller has imported. It does all things on the current device."""

    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]
        self.arrays = Arrays(self._cupy)

    def place(self, X: Any) -> contextlib.AbstractContextManager[Any]:
        device: contextlib.AbstractContextManager[Any] = X.device
        return device

    def device(self, X: Any) -> int:
        return int(X.device.id)

    def stream(self, X: Any) -> int | None:
        return int(self._cupy.cuda.get_current_stream().ptr) or None

    def dtype(self, X: Any) -> np.dtype:
        dtype: np.dtype = np.dtype(X.dtype)
        return dtype

    def cast(self, X: Any, dtype: np.dtype) -> Any:
        return self._cupy.ascontiguousarray(X, dtype=dtype)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        return self._cupy.empty(shape, dtype=np.float64)

    def mark_missing(self, X: Any, value: float) -> Any:
        return self._cupy.where(value == X, X.dtype.type(np.nan), X)

    def has(self, X: Any, what: str) -> bool:
        return bool((self._cupy.isnan(X) if what == "NaN" else self._cupy.isinf(X)).any())

    def to_host(self, X: Any) -> np.ndarray:
        array: np.ndarray = self._cupy.asnumpy(X)
        return array

    def to_device(self, array: np.ndarray, like: Any) -> Any:
        return self._cupy.asarray(array)

    def adopt(self, tensor: Any) -> Any:
        return self._cupy.from_dlpack(tensor)


def library_of(X: Any) -> Library | None:
    """The library of an array on a GPU; None for all else.

    Raises
    ------
    InputError
        If it lies on a GPU, but in no library's array that could be answered in kind.
    """
    if type(X) is np.ndarray or not hasattr(X, "__dlpack_device__"):
        return None
    if int(X.__dlpack_device__()[0]) not in _CUDA_KINDS:
        return None
    name = type(X).__module__.partition(".")[0]
    if name == "torch":
        return TorchLibrary()
    if name == "cupy":
        return CupyLibrary()
    raise InputError(
        f"expected rows on the GPU in a torch tensor or a CuPy array, got {name}'s {type(X).__name__}; "
        "torch.from_dlpack and cupy.from_dlpack make one of it without a copy."
    )


def prepare(library: Library, X: Any, inputs: Inputs) -> Any:
    """Bring rows on a GPU into a kernel's type, as `Inputs.prepare` does with rows on the host.

    Where the model's library refuses missing or infinite values, this waits for the device.

    Raises
    ------
    InputError
        If the rows don't fit the model.
    """
    spec = inputs.spec
    expected = f"expected rows of {spec.n_features} columns"
    if X.ndim != 2 or X.shape[1] != spec.n_features:
        raise InputError(f"{expected}, shape (n, {spec.n_features}), got shape {tuple(X.shape)}.")
    if not X.shape[0]:
        raise InputError("expected at least one row, got none.")
    try:
        dtype = inputs.kernel_dtype(library.dtype(X))
    except ValueError as error:
        raise InputError(f"expected numbers, got {error}.") from None
    rows = library.cast(X, dtype)
    if spec.missing_value is not None:
        rows = library.mark_missing(rows, float(np.float32(spec.missing_value)))
    for what, allowed in (("NaN", spec.allow_nan), ("infinity", spec.allow_inf)):
        if not allowed and library.has(rows, what):
            raise InputError(
                f"the rows have {what}, but the model was trained without; expected finite numbers."
            )
    return rows


def address(X: Any) -> int:
    """Where a contiguous array on a GPU begins."""
    return int(tvm_ffi.from_dlpack(X).data_ptr())


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        raise ValueError(name) from None
