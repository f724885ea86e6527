"""Disassembly of compiled kernels: instructions with their operands as text."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from hbtvm.compiler.building.cuda_toolkit import find

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^([.$\w]+):$")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([$\w]+)")

HINT = "nvdisasm is not installed: pip install 'hbtvm[bounds]'"


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Attributes
    ----------
    address
        Bytes from the kernel's start.
    guard
        The predicate under which it has an effect, such as ``"!P0"``; empty for always.
    opcode
        With its modifiers, such as ``"LDG.E.64"``.
    operands
        As the disassembler writes them, labels replaced by addresses.
    """

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The opcode's modifiers."""
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True)
class Code:
    """A kernel's instructions in their order, with the addresses of its labels."""

    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int] = field(default_factory=dict)


def nvdisasm() -> str | None:
    """Return the path of NVIDIA's disassembler; None without."""
    return find("nvdisasm")


def disassemble(code: bytes) -> dict[str, Code]:
    """Return the kernels of a cubin by name.

    Raises
    ------
    RuntimeError
        If there is no disassembler, or it cannot read the code.
    """
    tool = nvdisasm()
    if tool is None:
        raise RuntimeError(HINT)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvdisasm failed: {done.stderr.strip()[:200]}")
    return parse(done.stdout)


def parse(text: str) -> dict[str, Code]:
    """Return the kernels in the disassembler's text by name.

    Branches to a label get its address as operand, in hexadecimal.
    """
    found: dict[str, tuple[list[Instruction], dict[str, int]]] = {}
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            instructions, labels, waiting = [], {}, []
            found[section[1]] = instructions, labels
        elif label := _LABEL.match(line.strip()):
            waiting.append(label[1])
        elif match := _LINE.search(line):
            address = int(match[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting = []
            given = re.sub(r"\(\*.*?\*\)", "", match[4])
            operands = tuple(part.strip() for part in given.split(",")) if given else ()
            instructions.append(Instruction(address, match[2] or "", match[3], operands))
    return {
        name: Code(tuple(_resolved(one, known) for one in code), known)
        for name, (code, known) in found.items()
    }


def _resolved(one: Instruction, labels: Mapping[str, int]) -> Instruction:
    def address(match: re.Match[str]) -> str:
        return hex(labels[match[1]]) if match[1] in labels else match[0]

    operands = tuple(re.sub(r"`\((\S+?)\)", address, operand) for operand in one.operands)
    return Instruction(one.address, one.guard, one.opcode, operands)
