"""Compile the executor's C to a shared library."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hbtvm.errors import BuildError
from hbtvm.runtime.native.objects.cache import kept

SOURCES = Path(__file__).resolve().parents[3] / "native"  # the C sources that are compiled into packages

EXECUTOR = (
    "epilogue/epilogue.c", "executor/executor.c", "executor/kernel.c", "executor/plan.c", "executor/pool.c",
    "executor/results.c", "executor/rows.c", "executor/run.c", "executor/stages.c",
)  # fmt: skip
"""The files of the executor; for Python, `RECURSIVE`, `COUNTERS` and `BINDING` are added."""

RECURSIVE = (
    "recursive/groups.c", "recursive/linearize.c", "recursive/readout.c", "recursive/recursive.c",
    "recursive/rows.c", "recursive/run.c", "recursive/step.c", "recursive/unroll.c", "recursive/workers.c",
)  # fmt: skip
"""The files of the executor of recursive models."""

COUNTERS = ("counters/city.c", "counters/counters.c")

BINDING = (
    "python/blocks.c", "python/chunks.c", "python/dicts.c", "python/frame.c", "python/numpy.c",
    "arrow/arrow.c", "arrow/bare.c", "arrow/codes.c", "arrow/feeds.c", "arrow/names.c", "arrow/open.c",
    "arrow/series.c", "arrow/steps.c", "arrow/values.c",
)  # fmt: skip
"""The files that Python calls, with the reader of columns."""

OPTIONS = ("-std=c11", "-O3", "-fPIC", "-ffp-contract=off", "-fno-math-errno")
"""Products and sums are not fused, so that results do not depend on the machine's instructions."""


def compiled(
    compiler: str, names: Sequence[str], options: Sequence[str], libraries: Sequence[str] = ()
) -> bytes:
    """Compile C files of `SOURCES` to one file, and return its contents.

    Raises `BuildError` if the compiler failed.
    """
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        output = Path(folder, "compiled")
        sources = [str(SOURCES / name) for name in names]
        done = subprocess.run(
            [of_c(compiler), *options, f"-I{SOURCES}", *sources, "-o", str(output), *libraries],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            message = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise BuildError(f"{compiler} could not compile hbtvm's {names[0]}: {message[0]}")
        return output.read_bytes()


def compiled_once(
    compiler: str, names: Sequence[str], options: Sequence[str], libraries: Sequence[str] = ()
) -> bytes:
    """Compile as `compiled` does, unless an earlier process compiled the same (see
    `hbtvm.runtime.native.objects.cache`).
    """
    sources = [*(SOURCES / name for name in names), *sorted(SOURCES.rglob("*.h"))]
    arguments = (*options, *names, *libraries)
    return kept(compiler, arguments, sources, lambda: compiled(compiler, names, options, libraries))


@functools.cache
def executor_library(compiler: str, machine: tuple[str, ...] = ()) -> bytes:
    """Return the executor with its Python binding, compiled once for all processes.

    `machine`: options that select instruction sets.
    Raises `BuildError` if the compiler failed.
    """
    options = (*OPTIONS, *machine, "-shared", "-fno-semantic-interposition", "-Wl,-Bsymbolic")
    return compiled_once(
        compiler, (*EXECUTOR, *RECURSIVE, *COUNTERS, *BINDING), options, ["-lm", "-lpthread"]
    )


def of_c(compiler: str) -> str:
    """Return the C compiler that belongs to a C++ compiler, which would compile C files as C++."""
    for plus, plain in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
        head, match, tail = compiler.rpartition(plus)
        if match:
            return shutil.which(head + plain + tail) or compiler
    return compiler


def c_compiler() -> str:
    """Return the path of a C or C++ compiler that can link.

    Raises `BuildError` if there is none.
    """
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++", "gcc", "clang", "cc"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise BuildError(
        "no C++ compiler was found (looked for $CXX, g++, clang++, c++); on Debian: apt-get install g++"
    )
