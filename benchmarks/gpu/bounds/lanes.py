"""State of the threads that are interpreted together: registers, predicates, and operands that read them.

Every register is an array of one 32-bit word for each lane; lanes of a warp are neighbours, and a warp's
uniform registers have the same word in all of its lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

WARP = 32
RZ, URZ, PT = 255, 63, 7

Read = Callable[["Lanes"], Any]


class Unknown(ValueError):
    """An instruction, or a form of one, that the interpreter does not know."""


class Lanes:
    """Registers of L lanes.

    Attributes
    ----------
    R, U
        General and uniform registers, uint32, shapes (256, L) and (64, L).
    P, UP
        Predicates, bool, shape (8, L).
    constants
        The constant bank 0, uint8.
    """

    def __init__(self, lanes: int, constants: np.ndarray) -> None:
        self.count = lanes
        self.R = np.zeros((256, lanes), np.uint32)
        self.U = np.zeros((64, lanes), np.uint32)
        self.P = np.zeros((8, lanes), bool)
        self.UP = np.zeros((8, lanes), bool)
        self.P[PT] = self.UP[PT] = True
        self.constants = constants
        self.words = constants.view(np.uint32)

    def bank(self, operand: str) -> tuple[np.ndarray, int]:
        """Return the registers that an operand names, and its number."""
        if match := re.fullmatch(r"(U?)R(Z|\d+)", operand):
            uniform = bool(match[1])
            number = (URZ if uniform else RZ) if match[2] == "Z" else int(match[2])
            return (self.U if uniform else self.R), number
        raise Unknown(f"operand {operand}")

    def predicate_bank(self, operand: str) -> tuple[np.ndarray, int]:
        """Return the predicates that an operand names, and its number."""
        if match := re.fullmatch(r"(U?)P(T|\d)", operand):
            return (self.UP if match[1] else self.P), PT if match[2] == "T" else int(match[2])
        raise Unknown(f"operand {operand}")


def plain(operand: str) -> str:
    """An operand without remarks that change nothing."""
    return operand.replace(".reuse", "").replace(".ROW", "").replace(".COL", "").replace(".64", "")


def is_predicate(operand: str) -> bool:
    """Whether an operand is a predicate."""
    return re.fullmatch(r"!?U?P(T|\d)", operand) is not None


def predicate(lanes: Lanes, operand: str) -> Read:
    """Return what reads a predicate, maybe negated."""
    bank, number = lanes.predicate_bank(operand.lstrip("!"))
    if operand.startswith("!"):
        return lambda m: ~bank[number]
    return lambda m: bank[number]


_SIGNS = re.compile(r"^([-~]?)(\|?)(.*?)(\|?)$")


def words(lanes: Lanes, operand: str, high: bool = False) -> Read:
    """Return what reads 32 bits of an operand: as uint32, array or number.

    Parameters
    ----------
    high
        Whether to read the high word of 64 bits.
    """
    sign, _, name, _ = _SIGNS.match(plain(operand)).groups()  # type: ignore[union-attr]
    if match := re.fullmatch(r"(U?)R(Z|\d+)", name):
        bank, number = lanes.bank(name)
        if match[2] != "Z":
            number += high
        if sign == "~":
            return lambda m: ~bank[number]
        if sign == "-":
            return lambda m: np.negative(bank[number])
        row = bank[number]
        return lambda m: row
    if match := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", name):
        value = np.uint32(lanes.words[int(match[1], 16) // 4 + high])
    elif re.fullmatch(r"-?0x[0-9a-f]+|\d+", name):
        value = np.uint32(0) if high and sign != "-" else np.uint32(int(name, 0) & 0xFFFFFFFF)
    elif name == "SRZ":
        value = np.uint32(0)
    else:
        raise Unknown(f"operand {operand}")
    if sign == "~":
        value = ~value
    elif sign == "-":
        value = np.uint32(-int(value) & 0xFFFFFFFF)
    return lambda m: value


def wide(lanes: Lanes, operand: str) -> Read:
    """Return what reads 64 bits of an operand, a pair of registers, as uint64."""
    low, high = words(lanes, operand), words(lanes, operand, True)
    return lambda m: np.uint64(1 << 32) * np.asarray(high(m), np.uint64) | np.asarray(low(m), np.uint64)


def floats(lanes: Lanes, operand: str, double: bool = False) -> Read:
    """Return what reads an operand as a number in float32, or float64."""
    text = plain(operand)
    sign, absolute, name, _ = _SIGNS.match(text).groups()  # type: ignore[union-attr]
    kind: Any = np.float64 if double else np.float32
    if re.match(r"U?R(Z|\d+)$|c\[", name):
        bits = wide(lanes, name) if double else words(lanes, name)
        source: Read = lambda m: np.asarray(bits(m)).view(kind)  # noqa: E731
        if absolute:
            inner = source
            source = lambda m: np.abs(inner(m))  # noqa: E731
        if sign == "-":
            given = source
            return lambda m: -given(m)
        return source
    if name.startswith("0x"):
        number = np.uint32(int(name, 16)).view(np.float32)
    else:
        number = kind(name.replace("+", "").replace("QNAN", "nan").replace("SNAN", "nan").lower())
    number = kind(abs(number) if absolute else number)
    value = -number if sign == "-" else number
    return lambda m: value


def number(text: str) -> bool:
    """Whether an operand is a number."""
    return re.fullmatch(r"-?(0x[0-9a-f]+|\d.*)", text) is not None
