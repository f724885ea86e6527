"""Cycles of blocks of machine code, by LLVM's model of a CPU (llvm-mca)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

_ITERATIONS = 100
"""Repetitions of a loop."""

_FLAGS = ("-mtriple=aarch64", "-mattr=+all", "-skip-unsupported-instructions=any", "-json")
_FLAGS += ("-instruction-info=0", "-resource-pressure=0")

Block = tuple[Sequence[str], bool]
"""Instructions, and whether they are a loop."""


def cycles(blocks: Sequence[Block], cpu: str, mca: str) -> list[float]:
    """Return the cycles of each block, memory in the first-level cache, branches predicted.

    A loop takes what its repetition takes in the model, dependencies included. Other blocks take their
    reciprocal throughput: their latencies overlap with the blocks around them. llvm-mca derives that from the
    instructions alone, so it need not repeat them, and equal blocks are estimated once.

    Parameters
    ----------
    blocks
        Blocks to estimate.
    cpu
        LLVM's name.
    mca
        The command.
    """
    keys = [(_text(lines), loops) for lines, loops in blocks]
    estimates: dict[tuple[str, bool], float] = {}
    for loops in (False, True):
        texts = list(dict.fromkeys(text for text, repeated in keys if repeated == loops))
        summaries = _summaries(texts, cpu, mca, _ITERATIONS if loops else 1)
        for text, summary in zip(texts, summaries, strict=True):
            whole = summary["TotalCycles"] / _ITERATIONS
            estimates[text, loops] = whole if loops else summary["BlockRThroughput"]
    return [estimates[key] for key in keys]


def _text(lines: Sequence[str]) -> str:
    """Return a block as the assembler takes it: addresses are too far from where it starts."""
    return "\n".join(re.sub(r"(?<![#-])\b0x[0-9a-f]+$", "#0", line) for line in lines)


def _summaries(texts: Sequence[str], cpu: str, mca: str, iterations: int) -> list[dict[str, float]]:
    """Return llvm-mca's summary of each block."""
    if not texts:
        return []
    marked = [f"# LLVM-MCA-BEGIN {n}\n{text}\n# LLVM-MCA-END {n}\n" for n, text in enumerate(texts)]
    command = [mca, f"-mcpu={cpu}", f"-iterations={iterations}", *_FLAGS]
    made = subprocess.run(command, input="".join(marked), capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"llvm-mca: {made.stderr[:500]}")
    summaries = {
        int(region["Name"]): region["SummaryView"] for region in json.loads(made.stdout)["CodeRegions"]
    }
    return [summaries[n] for n in range(len(texts))]
