"""Compilers of C by target: this machine's own, or those that make code for another architecture."""

from __future__ import annotations

import shutil

from hbtvm.compiler.targets.target import triple
from hbtvm.errors import BuildError
from hbtvm.runtime.cpu import architecture, host_architecture
from hbtvm.runtime.native.objects import build
from hbtvm.schedules.workload import Target

_BASELINES = {"x86_64": "x86-64", "aarch64": "armv8-a"}
"""What every CPU of an architecture can do, as C compilers call it."""

_ARM_NAMES = {"fullfp16": "fp16", "neon": "simd"}
"""Instruction sets that C compilers call otherwise than LLVM."""


def is_cross(target: Target) -> bool:
    """Return whether a target's CPU is of another architecture than this machine's."""
    return target["kind"] == "llvm" and architecture(target) != host_architecture()


def linker(target: Target) -> str:
    """Return the path of a compiler, of C or C++, that links shared libraries for a target.

    For this machine's architecture it is what `hbtvm.runtime.native.objects.build.c_compiler` finds, $CXX
    first; for others, Debian's cross compiler.

    Raises `BuildError` if there is none; it names Debian's package.
    """
    if not is_cross(target):
        return build.c_compiler()
    name = f"{triple(architecture(target))}-gcc"
    path = shutil.which(name)
    if path is None:
        package = "gcc-" + triple(architecture(target)).replace("_", "-")
        raise BuildError(
            f"no compiler for {architecture(target)} was found (looked for {name}); "
            f"on Debian: apt-get install {package}"
        )
    return path


def c_compiler(target: Target) -> str:
    """Return the path of the C compiler that makes code for a target; errors as of `linker`.

    Where there is a compiler of C++ only, it is that one, which takes every file for C++ unless told
    otherwise (``-x c``).
    """
    return build.of_c(linker(target))


def machine_options(target: Target) -> tuple[str, ...]:
    """Return the options of gcc and clang by which C is compiled for the instruction sets of a target.

    They come from the features, not from the CPU's name, since compilers know fewer CPUs than LLVM.
    Of a GPU's description, which tells nothing of the CPU beside it, there are none.
    """
    if target["kind"] != "llvm":
        return ()
    arch = architecture(target)
    baseline, features = f"-march={_BASELINES[arch]}", target["features"]
    if arch == "aarch64":
        return ("+".join([baseline, *(_ARM_NAMES.get(name, name) for name in features)]),)
    return (baseline, *(f"-m{name}" for name in features))
