"""The executor's thread pool, driven from C, as it is and under the compilers' sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import SANITIZERS, built, check


@pytest.mark.parametrize("way", SANITIZERS)
def test_each_piece_runs_once(way: str, tmp_path: Path) -> None:
    program = built(["pool_driver.c"], ["executor/pool.c"], SANITIZERS[way], tmp_path / "pool")
    # The sanitizer of threads has none to watch in the child of a process with several.
    check(program, *(["no-fork"] if way == "thread" else []))
