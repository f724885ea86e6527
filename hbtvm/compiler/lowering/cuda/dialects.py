"""The words in which CUDA and OpenCL differ, for kernels that are written as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """The words of a language for kernels."""

    # `kernel`, `thread`: by the threads of a block: the start of a kernel's definition, and the number of a
    # thread among all
    kernel: Callable[[int], str]
    thread: Callable[[int], str]
    long: str  # an integer of 64 bits
    memory: str  # what precedes the type of numbers in a device's memory


DIALECTS = {
    "cuda": Dialect(
        lambda threads: f'extern "C" __global__ void __launch_bounds__({threads})',
        lambda threads: f"(int64_t)blockIdx.x * {threads} + threadIdx.x",
        "int64_t",
        "",
    ),
    "opencl": Dialect(
        lambda _: "__kernel void",
        lambda _: "(long)get_global_id(0)",
        "long",
        "__global ",
    ),
}
"""By kind of target."""
