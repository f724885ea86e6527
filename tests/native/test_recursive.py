"""The executor of recursive models on a cell in plain C, as it is and under the compilers' sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbtvm.runtime.native.objects.build import RECURSIVE
from tests.native.programs import SANITIZERS, built, check

FAILING = "-Wl,--wrap=calloc,--wrap=aligned_alloc"
"""The driver decides which allocations fail."""


@pytest.mark.parametrize("way", SANITIZERS)
def test_a_cell_in_c(way: str, tmp_path: Path) -> None:
    options = [*SANITIZERS[way], FAILING]
    program = built(["recursive_driver.c"], [*RECURSIVE, "executor/pool.c"], options, tmp_path / "recursive")
    # Children of a process whose other threads allocate memory may wait for a lock of the sanitizer's.
    check(program, *(["no-fork"] if way != "plain" else []))
