"""Build CUDA kernels as TVM shared libraries, on a machine that may have no GPU.

Devices of a fleet run such libraries. To build one, TVM loads its CUDA runtime, which links against NVIDIA's
driver. Where the driver is missing, a stub library whose functions all return an error takes its place: no
kernel runs on this machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.building import cuda_source as cuda
from hbtvm.compiler.building.cuda_toolkit import nvcc
from hbtvm.errors import BuildError
from hbtvm.runtime.native.objects import build
from hbtvm.schedules.workload import Target

_DRIVER = "libcuda.so.1"
_RUNTIME = "libcudart.so.13"

_FUNCTIONS = {
    _DRIVER: """
        cuDeviceGetName cuFuncSetAttribute cuGetErrorName cuGetErrorString cuLaunchKernelEx
        cuModuleGetFunction cuModuleLoadData cuModuleUnload cuTensorMapEncodeTiled
    """,
    _RUNTIME: """
        cudaDeviceGetAttribute cudaEventCreate cudaEventDestroy cudaEventElapsedTime cudaEventRecord
        cudaEventSynchronize cudaFree cudaFreeHost cudaGetDevice cudaGetDeviceCount cudaGetDeviceProperties
        cudaGetErrorName cudaGetErrorString cudaGetLastError cudaGraphDestroy cudaGraphExecDestroy
        cudaGraphInstantiate cudaGraphLaunch cudaMalloc cudaMallocHost cudaMemGetInfo cudaMemcpyAsync
        cudaMemcpyPeerAsync cudaPeekAtLastError cudaSetDevice cudaStreamBeginCapture cudaStreamCreate
        cudaStreamCreateWithFlags cudaStreamDestroy cudaStreamEndCapture cudaStreamSynchronize
        cudaStreamWaitEvent
    """,
}
"""Functions of NVIDIA's libraries that TVM's CUDA runtime links against, by library."""

_NO_DEVICE = 100


def compile_with_stubs(module: Any, target: Target) -> Any:
    """Compile a scheduled module as `compile_cuda` does, with or without NVIDIA's driver on this machine.

    Raises `BuildError` if TVM's runtime for CUDA can't be loaded at all, or there is no compiler.
    """
    _require_runtime()
    return cuda.compile_cuda(module, target, portable=False)


@functools.cache
def _require_runtime() -> None:
    """Load TVM's runtime for CUDA into this process."""
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return
    for library, functions in _FUNCTIONS.items():
        _load(library, functions.split())
    runtime = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    try:
        ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise BuildError(f"TVM's runtime for CUDA can't be loaded: {error}") from None


def _load(library: str, functions: list[str]) -> None:
    """Load one of NVIDIA's libraries, or a stub of the same name."""
    toolkit = Path(os.path.realpath(nvcc())).parent.parent
    for name in (library, *(str(toolkit / folder / library) for folder in ("lib64", "lib"))):
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            return
        except OSError:
            pass
    source = "\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in functions)
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        stub, versions = Path(folder, library), Path(folder, "versions")
        versions.write_text(f"{library} {{ global: *; }};")
        # The dynamic loader identifies a loaded library by its soname.
        names = [f"-Wl,-soname,{library}"]
        if library == _RUNTIME:  # its symbols are versioned
            names.append(f"-Wl,--version-script={versions}")
        command = [build.c_compiler(), "-x", "c", "-", "-shared", "-fPIC", "-o", str(stub), *names]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        if done.returncode:
            message = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise BuildError(f"a stand-in for {library} could not be built: {message[0]}")
        ctypes.CDLL(str(stub), ctypes.RTLD_GLOBAL)
