"""Propagation of zeros and constants through the values of nodes without children."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.recursive.cell import BINARY, UNARY, Value
from hbtvm.recursive.passes.rewriting import Maker
from hbtvm.recursive.reference import FUNCTIONS


class Folder:
    """Folds values for nodes without children, whose states of children and sums over them are zero.

    Factors of zero are assumed to be finite.

    `values`: a cell's values.
    `maker`: receives the new values.
    """

    def __init__(self, values: Sequence[Value], maker: Maker) -> None:
        self._values, self._maker = values, maker
        self._memo: dict[int, int] = {}

    def fold(self, number: int) -> int:
        """Return the number of a value's folded value."""
        # Operands first, without recursion: chains may have thousands of values.
        waiting = [number]
        while waiting:
            last = waiting[-1]
            value = self._values[last]
            open_ones = [] if _is_zero_op(value) else [near for near in value.of if near not in self._memo]
            if open_ones:
                waiting += open_ones
                continue
            waiting.pop()
            if last not in self._memo:
                self._memo[last] = self._folded(value)
        return self._memo[number]

    def _folded(self, value: Value) -> int:
        maker = self._maker
        if _is_zero_op(value):
            return maker.constant(0, value.shape)
        of = [self._memo[operand] for operand in value.of]
        known = [self._constant(operand) for operand in of]
        constant = self._of_constants(value, known) if of else None
        if constant is not None:
            return maker.constant(constant, value.shape)
        if value.op in BINARY:
            same = self._neutral(value, of, known)
            if same is not None:
                return same
        if value.op == "sub" and known[0] == 0 and maker.values[of[1]].shape == value.shape:
            return maker.apply("neg", of[1:])
        if value.op == "matmul":
            return self._product(value, of)
        return maker.put(replace(value, of=tuple(of)))

    def _constant(self, number: int) -> float | None:
        value = self._maker.values[number]
        if value.op == "constant":
            return value.constant
        if value.op == "weight" and not self._maker.weights[value.name].any():
            return 0.0
        return None

    @staticmethod
    def _of_constants(value: Value, known: Sequence[float | None]) -> float | None:
        """Return a value's constant if its operands determine it, else None."""
        op = value.op
        if op in ("mul", "matmul", "outer") and 0 in known:
            return 0.0
        if op == "div" and known[0] == 0 and known[1] != 0:
            return 0.0
        constants = [constant for constant in known if constant is not None]
        if len(constants) < len(known):
            return None
        if op == "softmax":
            return 1 / value.shape[0]
        if op in ("slice", "reshape") or (op == "concat" and len(set(constants)) == 1):
            return constants[0]
        if op not in (*UNARY, *BINARY, "outer"):
            return None
        with np.errstate(all="ignore"):
            result = float(FUNCTIONS[op](*map(np.float64, constants)))
        return result if math.isfinite(result) else None

    def _neutral(self, value: Value, of: Sequence[int], known: Sequence[float | None]) -> int | None:
        """Return the operand that equals the value if the other operand is neutral, else None."""
        neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(value.op)
        for place, other in ((0, 1), (1, 0)) if value.op in ("add", "mul") else ((0, 1),):
            if neutral is not None and known[other] == neutral:
                return of[place] if self._maker.values[of[place]].shape == value.shape else None
        return None

    def _product(self, value: Value, of: Sequence[int]) -> int:
        """Drop the columns of a weight that multiply zero parts of a concatenation."""
        maker = self._maker
        left, right = (maker.values[operand] for operand in of)
        parts = list(right.of) if left.op == "weight" and right.op == "concat" else []
        zero = [self._constant(part) == 0 for part in parts]
        if not any(zero):
            return maker.put(replace(value, of=tuple(of)))
        array, at = maker.weights[left.name], 0
        columns, kept = [], []
        for part, is_zero in zip(parts, zero, strict=True):
            width = maker.values[part].shape[0]
            if not is_zero:
                columns.append(array[:, at : at + width])
                kept.append(part)
            at += width
        weight = maker.weight(left.name, np.concatenate(columns, axis=1))
        if len(kept) > 1:
            kept = [maker.apply("concat", kept)]
        return maker.apply("matmul", (weight, kept[0]))


def _is_zero_op(value: Value) -> bool:
    return value.op in ("child", "children", "total", "most")
