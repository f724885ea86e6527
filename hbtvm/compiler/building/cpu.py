"""Compile scheduled modules for CPUs to shared libraries that need only `tvm_ffi`."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.building.compilers import c_compiler, linker, machine_options
from hbtvm.compiler.lowering import (
    exponentials,  # noqa: F401 (registers how they become instructions)
    lookups,  # noqa: F401 (registers how they become instructions)
    ranks,  # noqa: F401 (registers how they become instructions)
)
from hbtvm.compiler.lowering.rewrites import rewrite_loops, tests_subtrees, walks_by_scalars
from hbtvm.compiler.targets.target import resolve, tvm_target
from hbtvm.errors import BuildError
from hbtvm.runtime.native.objects.build import SOURCES, compiled, compiled_once, executor_library, of_c
from hbtvm.runtime.native.objects.cache import KERNELS, kept
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload
from hbtvm.strategies.base import Strategy
from hbtvm.tuning.measuring.program import OBJECT

_NO_DEBUGGING = "-Wl,--strip-debug"  # debug information is as large as the code, and refers to no source file
_SUPPORT = ("kernels/errors.c", "kernels/workspace.c")  # C files with the functions that kernels call

_MATHEMATICS = ("-Wl,--no-as-needed", "-lm")
"""C compilers, unlike C++ compilers, link functions such as pow only on request; TVM passes the library
before the kernel."""


def build_kernel(strategy: Strategy, workload: Workload, config: Config, target: Target, path: str) -> None:
    """Schedule, compile and link one kernel for a CPU.

    Raises `BuildError` if there is no C compiler, or linking failed.

    `path`: the shared library, which is written atomically. The object that it was linked from, without
        scratch memory, is written to ``path + OBJECT``.
    """
    build_module(strategy.module(workload, config), target, path)


def build_module(module: Any, target: Target, path: str) -> None:
    """Compile and link a scheduled `tvm.IRModule`, as `build_kernel` does.

    If $HBTVM_KERNEL_CACHE_DIR names a folder, libraries are kept there, and equal modules are built once. A
    library's key is the lowered module, the target, TVM's version and `PassContext`, the files that lower and
    build modules, and the linker.

    Raises `BuildError` if there is no C compiler, or linking failed.
    """
    lowered, device = _lowered(module, target)
    if not os.environ.get(KERNELS):
        link_library(_compiled(lowered, device), path, target)
        return

    def build() -> bytes:
        link_library(_compiled(lowered, device), path, target)
        library = Path(path).read_bytes()
        return library + Path(path + OBJECT).read_bytes() + len(library).to_bytes(8, "little")

    passes = tvm.ir.save_json(tvm.transform.PassContext.current())
    options = [tvm.ir.save_json(lowered), str(device.export()), passes, tvm.__version__]
    content = kept(linker(target), options, _building_sources(), build, KERNELS)
    size = int.from_bytes(content[-8:], "little")
    Path(path + OBJECT).write_bytes(content[size:-8])
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(path)), delete=False) as file:
        file.write(content[:size])
    os.replace(file.name, path)


@functools.cache
def _building_sources() -> tuple[Path, ...]:
    """Return the source files on which the result of a build depends."""
    compiler = Path(__file__).resolve().parents[1]
    python = [path for room in ("building", "lowering") for path in sorted((compiler / room).rglob("*.py"))]
    return (*python, *(SOURCES / name for name in _SUPPORT), *sorted(SOURCES.rglob("*.h")))


def _lowered(module: Any, target: Target) -> tuple[Any, Any]:
    """Return a module with rewritten loops, and TVM's target for it."""
    # LLVM would combine scalar walks into vectors that load nodes by gathers, which scalar walks avoid.
    # It would also gather the leaf values of a few rows, for which extracting lanes takes longer than loads.
    scalar, subtrees = walks_by_scalars(module), tests_subtrees(module)
    device = tvm_target(target, pack_scalars=not scalar, gather=not subtrees)
    with device:
        return rewrite_loops(module), device


def _compiled(lowered: Any, device: Any) -> Any:
    with device:  # lowering a lookup reads the features of the current target
        return tvm.compile(lowered, target=device)


def compile_module(module: Any, target: Target) -> Any:
    """Compile a scheduled `tvm.IRModule` for a target."""
    return _compiled(*_lowered(module, target))


def link_library(compiled: Any, path: str, target: Target | None = None) -> None:
    """Link a compiled module to a shared library that loads without TVM (see `workspace.c`, `errors.c`).

    Writes its object beside it.

    Raises `BuildError` if there is no compiler for the target, or linking failed.

    `target`: the target that it was compiled for; by default, this machine.
    """
    # Kernels do not need C++, whose compilers take three times as long to link.
    compiler = of_c(linker(target or resolve()))
    # In the same folder, so that the last step is a rename within a file system.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path)), prefix=".link-") as folder:
        built = os.path.join(folder, "kernel.so")
        try:
            support = Path(folder, "support.o")
            support.write_bytes(_support_object(compiler))
            options = [_NO_DEBUGGING, *_MATHEMATICS]
            compiled.export_library(
                built, addons=[str(support)], workspace_dir=folder, cc=compiler, options=options
            )
        except RuntimeError as error:
            raise BuildError(f"linking the kernel failed: {str(error).strip().splitlines()[0]}") from None
        objects = [path for path in Path(folder).glob("*.o") if path != support]
        if len(objects) == 1:  # code for GPUs has further objects
            os.replace(objects[0], path + OBJECT)
        os.replace(built, path)


def strip_object(data: bytes, target: Target) -> bytes:
    """Return a kernel's object, compiled for a target, without debug information.

    Raises `BuildError` if the linker failed.
    """
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        path = Path(folder, "kernel.o")
        path.write_bytes(data)
        return compiled(c_compiler(target), [str(path)], ["-r", "-nostdlib", _NO_DEBUGGING])


def require_compilers(target: Target, *, linked: bool) -> None:
    """Check, before any work is done, that the compilers for a target are installed.

    Raises `BuildError` if a compiler is missing.

    `linked`: whether kernels are also linked into shared libraries.
    """
    if target["kind"] == "cuda":
        cuda_build.check_toolkit(target)
    if linked:
        linker(target)


def executor(target: Target) -> bytes:
    """Return the executor for a CPU, compiled once for all processes.

    Raises `BuildError` if there is no C compiler, or it failed.
    """
    return executor_library(c_compiler(target), machine_options(target))


def host_executor() -> bytes:
    """Return the executor for any CPU of this machine's architecture, for use beside a GPU.

    Raises `BuildError` if there is no C compiler, or it failed.
    """
    return executor_library(c_compiler(resolve()))


def text_library(target: Target | None = None) -> bytes:
    """Return the shared library of `text.c`, compiled once for all processes.

    Raises `BuildError` if there is no C compiler, or it failed.

    `target`: its architecture is compiled for; by default, this machine's, as beside a GPU.
    """
    return _text_library(c_compiler(target or resolve()))


@functools.cache
def _text_library(compiler: str) -> bytes:
    return compiled_once(compiler, ["text/text.c"], ["-std=c11", "-O3", "-fPIC", "-shared"], ["-lm"])


@functools.cache
def _support_object(compiler: str) -> bytes:
    """Return the object of the functions that kernels call, compiled once for all processes."""
    return compiled_once(compiler, _SUPPORT, ["-std=gnu11", "-O2", "-fPIC", "-r", "-nostdlib"])
