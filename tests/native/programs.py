"""Programs of C that drive the executor's parts, as they are and under the compilers' sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from hbtvm.runtime.native.objects.build import SOURCES, c_compiler, of_c

HERE = Path(__file__).parent

SANITIZERS = {
    "plain": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
"""Options of the compiler."""


def built(sources: Sequence[str], native: Sequence[str], options: Sequence[str], program: Path) -> Path:
    """Compile files of this folder and of the executor into a program."""
    files = [str(HERE / name) for name in sources] + [str(SOURCES / name) for name in native]
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [of_c(c_compiler()), "-std=c11", "-O1", "-g", *warnings, "-I", str(SOURCES), *files, *options]
    subprocess.run([*command, "-o", str(program), "-lm", "-lpthread", "-ldl"], check=True)
    return program


def check(program: Path, *arguments: str) -> None:
    """Run a program that prints ``right`` if all is."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
