"""Compile scheduled modules for CPUs into shared libraries that need nothing beside them."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.lowering import (
    exponentials,  # noqa: F401 (registers how they become instructions)
    lookups,  # noqa: F401 (registers how they become instructions)
)
from hbtvm.compiler.lowering.rewrites import rewrite_loops, walks_by_scalars
from hbtvm.compiler.targets.target import tvm_target
from hbtvm.errors import BuildError
from hbtvm.runtime.native.build import c_compiler, compiled, executor_library
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload
from hbtvm.strategies.base import Strategy


def build_kernel(strategy: Strategy, workload: Workload, config: Config, target: Target, path: str) -> None:
    """Schedule, compile and link one kernel for a CPU.

    Parameters
    ----------
    path
        The shared library to write; it appears whole or not at all.

    Raises
    ------
    BuildError
        If there is no C compiler, or linking failed.
    """
    link_library(compile_module(strategy.module(workload, config), target), path)


def compile_module(module: Any, target: Target) -> Any:
    """Compile a scheduled `tvm.IRModule` for a target."""
    # LLVM would combine scalar walks into vectors that load nodes by gathers, which scalar walks avoid.
    made = tvm_target(target, pack_scalars=not walks_by_scalars(module))
    with made:  # lowering a lookup reads the features of the current target
        return tvm.compile(rewrite_loops(module), target=made)


def link_library(compiled: Any, path: str) -> None:
    """Write a compiled module as a shared library, with what it needs (see `workspace.c`, `errors.c`)."""
    compiler = c_compiler()
    # Beside its final place, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path)), prefix=".link-") as folder:
        built = os.path.join(folder, "kernel.so")
        try:
            workspace = Path(folder, "workspace.o")
            workspace.write_bytes(_workspace_object(compiler))
            compiled.export_library(built, addons=[str(workspace)], workspace_dir=folder, cc=compiler)
        except RuntimeError as error:
            raise BuildError(f"linking the kernel failed: {str(error).strip().splitlines()[0]}") from None
        os.replace(built, path)


def require_compilers(target: Target, *, linked: bool) -> None:
    """Check, before any work is done, that the compilers for a target are installed.

    Parameters
    ----------
    linked
        Whether kernels are also linked into shared libraries.

    Raises
    ------
    BuildError
        If a compiler is missing.
    """
    if target["kind"] == "cuda":
        cuda_build.check_toolkit(target)
    if linked:
        c_compiler()


def executor(target: Target) -> bytes:
    """Return the shared library that runs the kernels of packages for a CPU, compiled once per process.

    Raises
    ------
    BuildError
        If there is no C compiler, or it failed.
    """
    return executor_library(c_compiler())


def text_library() -> bytes:
    """Return the shared library of `text.c`, compiled once per process.

    Raises
    ------
    BuildError
        If there is no C compiler, or it failed.
    """
    return _text_library(c_compiler())


@functools.cache
def _text_library(compiler: str) -> bytes:
    return compiled(compiler, ["text.c"], ["-std=c11", "-O3", "-fPIC", "-shared"], ["-lm"])


@functools.cache
def _workspace_object(compiler: str) -> bytes:
    """Return `workspace.c` and `errors.c` as one object file, compiled once per process."""
    return compiled(compiler, ["workspace.c", "errors.c"], ["-O2", "-fPIC", "-r", "-nostdlib"])
