"""The compiler and its binutils: objects in, libraries out."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.errors import BuildError


@dataclass(frozen=True)
class Tools:
    """Programs for a target."""

    compiler: str  # a C compiler that links
    # `objcopy`, `ar`: from binutils or LLVM
    objcopy: str
    ar: str


def tools_of(compiler: str) -> Tools:
    """Return the programs beside a C compiler.

    Raises `BuildError` if one is missing.
    """
    folder, name = os.path.split(compiler)
    # As in aarch64-linux-gnu-gcc-12.
    match = re.fullmatch(r"(.*-)?(?:gcc|clang|cc|g\+\+|clang\+\+|c\+\+)(?:-[0-9.]+)?", name)
    prefix = (match and match[1]) or ""
    objcopy, ar = (_beside(folder, prefix, program) for program in ("objcopy", "ar"))
    return Tools(compiler, objcopy, ar)


@functools.cache
def _beside(folder: str, prefix: str, program: str) -> str:
    for name in (f"{prefix}{program}", f"llvm-{program}"):
        path = shutil.which(os.path.join(folder, name)) or shutil.which(name)
        if path:
            return path
    raise BuildError(
        f"{prefix}{program} was not found; libraries for C need it; on Debian: apt-get install binutils"
    )


def run(command: Sequence[str], task: str, folder: Path) -> None:
    """Run a program.

    Raises `BuildError` if it fails; `task` is a verb phrase.
    """
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if "error" in line or "undefined" in line]
        message = (lines or done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise BuildError(f"{os.path.basename(command[0])} could not {task}: {message}")
