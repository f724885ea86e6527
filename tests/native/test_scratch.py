"""Scratch memory of kernels whose libraries are loaded and unloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs import SANITIZERS, built, check


@pytest.mark.parametrize("way", ["plain", "address"])
def test_libraries_come_and_go(way: str, tmp_path: Path) -> None:
    library = built([], ["kernels/workspace.c"], ["-shared", "-fPIC"], tmp_path / "scratch.so")
    check(built(["scratch_driver.c"], [], SANITIZERS[way], tmp_path / "driver"), str(library))
