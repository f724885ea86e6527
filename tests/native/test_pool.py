"""The executor's thread pool, driven from C, as it is and under the compilers' sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hbtvm.runtime.native.build import SOURCES, c_compiler, of_c

WAYS = {
    "plain": ([], []),
    "address": (["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], []),
    # The sanitizer itself has no threads to watch in the child of a process with several.
    "thread": (["-fsanitize=thread"], ["no-fork"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_piece_runs_once(way: str, tmp_path: Path) -> None:
    options, arguments = WAYS[way]
    program = tmp_path / "pool"
    subprocess.run(
        [
            of_c(c_compiler()), "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *options,
            "-I", str(SOURCES),
            str(Path(__file__).with_name("pool_driver.c")), str(SOURCES / "pool.c"), "-o", str(program),
            "-lpthread",
        ],
        check=True,
    )  # fmt: skip
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
