"""The executor on simple kernels written in C, as it is and under the compilers' sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbtvm.runtime.native.objects.build import EXECUTOR
from tests.native.programs import SANITIZERS, built, check

FAILING = "-Wl,--wrap=calloc,--wrap=aligned_alloc"
"""The driver decides which allocations fail."""


@pytest.mark.parametrize("way", SANITIZERS)
def test_simple_kernels(way: str, tmp_path: Path) -> None:
    sources = ["executor_driver.c", "executor_cases.c"]
    program = built(sources, EXECUTOR, [*SANITIZERS[way], FAILING], tmp_path / "executor")
    # Children of a process whose other threads allocate memory may wait for a lock of the sanitizer's.
    check(program, *(["no-fork"] if way != "plain" else []))
