"""Counts how often a program's basic blocks run, in QEMU."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_PLACE = re.compile(rb"^Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/([0-9a-f]+)/")


def steps(command: Sequence[str]) -> tuple[Counter[tuple[int, int]], str]:
    """Run a program for aarch64.

    Returns
    -------
    How often a block was followed by another, by the addresses of both; and what the program printed.
    """
    emulator = ["qemu-aarch64", "-cpu", "max", "-d", "exec,nochain", "-D", "/dev/stderr"]
    process = subprocess.Popen([*emulator, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    counts: Counter[tuple[int, int]] = Counter()
    last = 0
    for line in process.stderr:
        found = _PLACE.match(line)
        if found:
            here = int(found[1], 16)
            counts[last, here] += 1
            last = here
    printed = process.stdout.read().decode()
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return counts, printed


class Code:
    """A program's machine code, disassembled.

    Parameters
    ----------
    program
        A static program.
    objdump
        LLVM's command.
    """

    def __init__(self, program: Path, objdump: str) -> None:
        command = [objdump, "-d", "--no-show-raw-insn", "--mattr=+all", str(program)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self._lines: dict[int, str] = {}
        for line in listing.splitlines():
            place, colon, text = line.strip().partition(":")
            if colon and text.strip() and re.fullmatch("[0-9a-f]+", place):
                self._lines[int(place, 16)] = re.sub(r"\s*(<[^>]*>|//.*)", "", text.strip())

    def block(self, start: int) -> list[str]:
        """Return the instructions from an address to the next branch."""
        lines: list[str] = []
        while start in self._lines and (not lines or not _is_branch(lines[-1])):
            lines.append(self._lines[start])
            start += 4
        return lines

    def loops(self, start: int, block: Sequence[str]) -> bool:
        """Whether a block ends by a branch to its own start."""
        return bool(block) and bool(re.search(rf"\b0x{start:x}$", block[-1])) and _is_branch(block[-1])


def _is_branch(line: str) -> bool:
    return bool(re.match(r"(b|bl|br|blr|ret|svc|cbn?z|tbn?z|b\.\w+)\b", line))


def is_conditional(line: str) -> bool:
    """Whether an instruction is a branch that may not be taken."""
    return bool(re.match(r"(cbn?z|tbn?z|b\.\w+)\b", line))


def difference(many: Counter[tuple[int, int]], few: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
    """Return the steps of the rows by which two runs differ: what starts and ends a program is in both."""
    return Counter({pair: n - few[pair] for pair, n in many.items() if n > few[pair]})


def by_block(steps: Counter[tuple[int, int]], code: Code) -> tuple[Counter[int], float]:
    """Return how often each block up to a branch ran, and the branches that go the rarer way.

    QEMU also ends blocks where a page ends and after 512 instructions; such are joined with what follows.
    """
    counts: Counter[int] = Counter()
    ways: dict[int, Counter[int]] = {}
    for (before, here), n in steps.items():
        counts[here] += n
        ways.setdefault(before, Counter())[here] += n
    rare = 0
    for start, after in ways.items():
        lines = code.block(start)
        end = start + 4 * len(lines)
        inside = [here for here in after if start < here < end]
        for here in inside:
            counts[here] -= after[here]
        if lines and not inside and is_conditional(lines[-1]):
            rare += sum(after.values()) - max(after.values())
    return counts, float(rare)
