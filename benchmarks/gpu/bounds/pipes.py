"""What execution units instructions take on compute capability 9.0, and for how long.

Throughputs are those of NVIDIA's CUDA C++ Programming Guide (results per clock cycle and multiprocessor of
compute capability 9.0), as cycles of a multiprocessor for the instruction of one warp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmarks.gpu.bounds.sass import Code, Instruction

CYCLES = {
    "issue": 0.25,
    "alu": 0.5,
    "fma": 0.25,
    "imad": 0.5,
    "fp64": 0.5,
    "xu": 2.0,
    "lsu": 1.0,
    "tensor": 0.5,
}
"""Cycles of a multiprocessor that a warp's instruction takes of each pipe; every one takes ``issue``.

``fma`` has 128 lanes, half of which (``imad``) multiply integers; ``alu`` 64, ``fp64`` 64, ``xu`` 16.
``tensor`` is for int8, and takes half precision to be as fast. Of ``lsu`` an instruction takes at least a
cycle, and one for each line or conflicting word that it touches.
"""

LATENCY = {
    "tensor": 24,
    "alu": 4,
    "fma": 4,
    "imad": 4,
    "fp64": 8,
    "xu": 18,
    "lsu": 29,
    "control": 4,
    "uniform": 8,
}
"""Cycles until a result can be used; ``lsu`` of shared memory. From microbenchmarks published of Volta to
Hopper, to a few cycles."""

_ALU = "IADD3 VIADD IADD LOP3 PLOP3 LEA SHF SEL FSEL ISETP FSETP FMNMX IMNMX VIMNMX PRMT MOV IABS P2R R2P"
_ALU += " BMSK SGXT VABSDIFF SHL SHR LOP VOTE VIADDMNMX HSETP2 HMNMX2 IDP CS2R FSET I2FP"
NAMES = {
    "alu": _ALU,
    "fma": "FADD FMUL FFMA FSWZADD HFMA2 HADD2 HMUL2",
    "imad": "IMAD",
    "fp64": "DADD DMUL DFMA DSETP",
    "xu": "MUFU POPC FLO BREV FCHK I2F F2I F2F I2I FRND",
    "lsu": "LDG LDS LD LDL STG STS ST STL ATOM ATOMS ATOMG RED LDGSTS SHFL LDSM S2R LDC",
    "tensor": "IMMA HMMA",
    "control": "BRA EXIT BSSY BSYNC BAR CALL RET NOP WARPSYNC YIELD DEPBAR LDGDEPBAR MEMBAR ERRBAR CCTL BMOV"
    " NANOSLEEP BREAK BRX KILL",
}
"""Instructions of each pipe."""

_BY_NAME = {name: pipe for pipe, names in NAMES.items() for name in names.split()}


def lanes(name: str) -> float:
    """Return how many threads' instructions of a name a multiprocessor executes in a cycle."""
    return 32 / CYCLES[_BY_NAME[name]]


def pipe_of(instruction: Instruction) -> str:
    """Return the pipe that executes an instruction.

    Raises
    ------
    ValueError
        If the instruction is not known.
    """
    name = instruction.name
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith("U") or name in ("S2UR", "R2UR", "VOTEU"):
        return "uniform"
    raise ValueError(f"no pipe is known for {instruction.opcode}")


def histogram(instructions: Iterable[Instruction]) -> Counter[str]:
    """Return how many instructions each pipe executes."""
    return Counter(pipe_of(one) for one in instructions)


def loops(code: Code) -> list[tuple[int, int, Counter[str]]]:
    """Return a kernel's innermost loops: first and last address, and instructions by pipe.

    A loop is what lies between a branch backwards and its target. Jumps of an instruction to itself, which
    pad a kernel's end, are none.
    """
    spans = []
    for one in code.instructions:
        if one.name == "BRA" and one.operands[-1].startswith("0x"):
            target = int(one.operands[-1], 16)
            if target < one.address:
                spans.append((target, one.address))
    inner = [a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    return [
        (first, last, histogram(one for one in code.instructions if first <= one.address <= last))
        for first, last in sorted(set(inner))
    ]
