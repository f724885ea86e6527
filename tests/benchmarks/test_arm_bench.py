"""The benchmark of estimates for 64-bit Arm CPUs: blocks counted by QEMU."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.arm import estimate, trace

TOOLS = ("aarch64-linux-gnu-gcc", "qemu-aarch64", "llvm-objdump")

MCA = shutil.which("llvm-mca")

LOOP = """
.globl main
main:
    mov w1, #100
    mul w0, w0, w1
again:
    subs w0, w0, #1
    b.ne again
    ret
"""


def test_blocks_are_counted(tmp_path: Path) -> None:
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is missing")
    (tmp_path / "loop.s").write_text(LOOP)
    program = tmp_path / "loop"
    subprocess.run([TOOLS[0], "-static", str(tmp_path / "loop.s"), "-o", str(program)], check=True)
    few, many = (trace.steps([str(program), *["x"] * more])[0] for more in (0, 2))
    code = trace.Code(program, TOOLS[2])
    counts, rare = trace.by_block(trace.difference(many, few), code)
    loops = {start: n for start, n in counts.items() if code.loops(start, code.block(start)) and n >= 99}
    (start,) = [start for start in loops if code.block(start)[0].startswith("subs")]
    # The first pass of each run is entered from above, by the block that ends with the loop's first branch.
    assert loops[start] == 200
    assert rare < 100


def test_blocks_cut_by_the_emulator_are_joined() -> None:
    class Straight(trace.Code):
        def __init__(self) -> None:
            self._lines = {0x10: "nop", 0x14: "nop", 0x18: "b.ne\t0x10", 0x1C: "ret"}

    # QEMU cut the loop in two at 0x14; three rounds, then it falls through.
    steps = Counter({(0x10, 0x14): 3, (0x14, 0x10): 2, (0x14, 0x1C): 1, (0, 0x10): 1})
    counts, rare = trace.by_block(steps, Straight())
    assert {start: n for start, n in counts.items() if n} == {0x10: 3, 0x1C: 1}
    assert rare == 1.0


@pytest.mark.skipif(MCA is None, reason="llvm-mca is missing")
def test_loops_wait_for_what_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    # Versions of llvm-mca before 19 lack the flag, which these instructions do not need.
    flags = tuple(flag for flag in estimate._FLAGS if not flag.startswith("-skip-unsupported"))
    monkeypatch.setattr(estimate, "_FLAGS", flags)
    chain, load = ["fmul\td0, d0, d1", "b.ne\t0x400000"], ["ldr\tx0, [x1, #0x10]", "b.ne\t0x400000"]
    blocks = [(chain, False), (load, False), (chain, True), (chain, False), (load, True)]
    straight, loaded, waiting, again, overlapping = estimate.cycles(blocks, "neoverse-n1", MCA or "")
    assert straight == again
    assert waiting > 2 * straight  # a product waits for the one before
    assert overlapping < 2 * loaded  # no load waits for another
