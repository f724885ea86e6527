"""Shared objects alone, loaded as a package's are: headers and tables of the executor and of texts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from benchmarks.mutants.changes import changed_object
from hbtvm.runtime.native.objects.build import OPTIONS, c_compiler, compiled, executor_library
from hbtvm.runtime.native.objects.loading import closing, open_library


def prepare(folder: Path) -> None:
    """Compile the libraries."""
    (folder / "hbtvm_version.so").write_bytes(executor_library(c_compiler()))
    text = compiled(c_compiler(), ["text/text.c"], (*OPTIONS, "-O0", "-shared"), ["-lm"])
    (folder / "hbtvm_text_version.so").write_bytes(text)


def trials(folder: Path) -> Callable[[int, int], str]:
    """Return what makes and tries a mutant; see `benchmarks.mutants`."""
    samples = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.so"))}

    def trial(number: int, seed: int) -> str:
        rng = random.Random(f"{seed} {number}")
        name = rng.choice(list(samples))
        code = samples[name]
        cut = rng.random() < 0.05
        mutant = code[: rng.randrange(len(code))] if cut else changed_object(code, rng)
        try:
            closing(open_library(mutant, "the library"))[name]()
        except AttributeError:
            return "without its functions"
        return "used"

    return trial
