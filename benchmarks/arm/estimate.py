"""Cycles of blocks of machine code, by LLVM's model of a CPU (llvm-mca)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

_ITERATIONS = 100


def cycles(blocks: Sequence[tuple[Sequence[str], bool]], cpu: str, mca: str) -> list[float]:
    """Return the cycles of each block, memory in the first-level cache, branches predicted.

    A loop takes what its repetition takes in the model, dependencies included. Other blocks take their
    reciprocal throughput: their latencies overlap with the blocks around them.

    Parameters
    ----------
    blocks
        Instructions, and whether they are a loop.
    cpu
        LLVM's name.
    mca
        The command.
    """
    text = []
    for number, (lines, _) in enumerate(blocks):
        # Addresses are too far from where the assembler starts.
        near = [re.sub(r"(?<![#-])\b0x[0-9a-f]+$", "#0", line) for line in lines]
        text += [f"# LLVM-MCA-BEGIN {number}", *near, f"# LLVM-MCA-END {number}"]
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+all", f"-iterations={_ITERATIONS}", "-json"]
    command += ["-skip-unsupported-instructions=any", "-instruction-info=0", "-resource-pressure=0"]
    made = subprocess.run(command, input="\n".join(text) + "\n", capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"llvm-mca: {made.stderr[:500]}")
    regions = json.loads(made.stdout)["CodeRegions"]
    summaries = {int(region["Name"]): region["SummaryView"] for region in regions}
    return [
        summaries[n]["TotalCycles"] / _ITERATIONS if loops else summaries[n]["BlockRThroughput"]
        for n, (_, loops) in enumerate(blocks)
    ]
