"""C compilers by target: this machine's, or cross compilers."""

from __future__ import annotations

import shutil

from hbtvm.compiler.targets.target import triple
from hbtvm.errors import BuildError
from hbtvm.runtime.cpu import architecture, host_architecture
from hbtvm.runtime.native.objects import build
from hbtvm.schedules.workload import Target

_BASELINES = {"x86_64": "x86-64", "aarch64": "armv8-a"}
"""C compilers' names of the baseline of each architecture."""

_ARM_NAMES = {"fullfp16": "fp16", "neon": "simd"}
"""C compilers' names of instruction sets where they differ from LLVM's."""


def is_cross(target: Target) -> bool:
    """Return whether a target's CPU has another architecture than this machine."""
    return target["kind"] == "llvm" and architecture(target) != host_architecture()


def linker(target: Target) -> str:
    """Return the path of a C or C++ compiler that links shared libraries for a target.

    For this machine's architecture, it is that of `hbtvm.runtime.native.objects.build.c_compiler`; for
    others, Debian's cross compiler.

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
    """Return the path of the C compiler for a target; errors as for `linker`.

    Without one it is a C++ compiler, which compiles every file as C++ unless ``-x c`` is among its options.
    """
    return build.of_c(linker(target))


def machine_options(target: Target) -> tuple[str, ...]:
    """Return the options of gcc and clang for the instruction sets of a target.

    They follow from the features, not from the CPU's name, since compilers know fewer CPUs than LLVM. There
    are none for a GPU, whose description does not include its host's CPU.
    """
    if target["kind"] != "llvm":
        return ()
    arch = architecture(target)
    baseline, features = f"-march={_BASELINES[arch]}", target["features"]
    if arch == "aarch64":
        return ("+".join([baseline, *(_ARM_NAMES.get(name, name) for name in features)]),)
    return (baseline, *(f"-m{name}" for name in features))
