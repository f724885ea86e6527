"""A kind of mutants that ends in every way that the runner has to notice."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from hbtvm.errors import PackageError


def trials(folder: Path) -> Callable[[int, int], str]:
    """Mutants 3, 5, 7, 9 and 12 are faults; 12 only behind 11."""
    before: list[int] = []

    def trial(number: int, seed: int) -> str:
        before.append(number)
        match number:
            case 1:
                raise PackageError("no")
            case 3:
                raise KeyError("x")
            case 5:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 7:
                print("Traceback (most recent call last)", file=sys.stderr)
            case 9:
                raise PackageError("a\x1b[31m")
            case 12 if 11 in before:
                os._exit(3)
        return f"seed {seed}"

    return trial
