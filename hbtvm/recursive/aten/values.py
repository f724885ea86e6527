"""The values of a cell under construction, and references to their numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.tensors import MOST_NUMBERS, Tensor, joined, tensor
from hbtvm.recursive.cell import Input, Shape, Value
from hbtvm.recursive.validate import needed
from hbtvm.recursive.values import Values as OfCell

MOST_VALUES = 20_000  # most values of a cell
MOST_PIECES = 128  # most pieces of values in one concatenation

_KEEPS_ZERO = ("neg", "abs", "relu", "tanh", "slice", "reshape")
_ZERO_OF_ZEROS = ("add", "sub", "max", "min", "concat")
_ZERO_OF_ONE = ("mul", "matmul", "outer")


class Values(OfCell):
    """Values of a cell, and references to their numbers.

    A reference to a value's number is the count of all earlier values' numbers, plus its place in the value,
    row by row.

    `places`: number of children; None for any number.
    `inputs`: inputs of a node.
    """

    def __init__(self, places: int | None, inputs: Mapping[str, Input]) -> None:
        super().__init__()
        self.places = places
        self.inputs = dict(inputs)
        self.weights: dict[str, np.ndarray] = {}
        self._weight_names: dict[tuple[Shape, bytes], str] = {}
        self._starts: list[int] = []
        self._end = 0
        self._zero: list[bool] = []
        self._at_place: dict[tuple[int, int], int] = {}
        self._used = 0

    # Values

    def put(self, value: Value) -> int:
        if value not in self._known:
            size = math.prod(value.shape)
            self._used += size
            if len(self.values) >= MOST_VALUES or self._used > 4 * MOST_NUMBERS:
                raise ModelError(f"makes the cell too large; expected at most {MOST_VALUES} values")
            self._zero.append(self._vanishes(value))
            self._starts.append(self._end)
            self._end += size
        return super().put(value)

    def number(self, constant: float) -> int:
        """Add a constant number, of shape (); return its value's number."""
        if not math.isfinite(constant):
            raise ModelError(f"has the constant {constant}; expected a finite number")
        return self.put(Value("constant", constant=float(constant)))

    def weight(self, array: np.ndarray, name: str = "") -> int:
        """Add a constant vector or matrix; return its value's number."""
        return self.put(Value("weight", shape=array.shape, name=self.name_of(array, name)))

    def name_of(self, array: np.ndarray, name: str = "") -> str:
        """Return the name of a constant among the cell's weights, adding it if it is new."""
        array = np.ascontiguousarray(array, np.float32)
        key = array.shape, hashlib.sha256(array.data).digest()
        if key not in self._weight_names:
            base = free = name or "constant"
            count = 1
            while free in self.weights:
                free, count = f"{base}_{count}", count + 1
            self.weights[free] = array
            self._weight_names[key] = free
        return self._weight_names[key]

    # References

    def refs(self, number: int) -> np.ndarray:
        """Return references to the numbers of a value, in its shape."""
        shape, start = self.values[number].shape, self._starts[number]
        return np.arange(start, start + math.prod(shape), dtype=np.int64).reshape(shape)

    def referring(self, t: Tensor) -> np.ndarray:
        """Return a tensor's references; for a constant, to a weight."""
        if t.number >= 0:
            raise ModelError(
                f"computes with a node's number ({self._input(t)}), which only picks rows of weights"
            )
        if not t.constant:
            return t.data
        return self.refs(self.weight(t.data.ravel(), t.name)).reshape(t.data.shape)

    def owners(self, refs: np.ndarray) -> list[int]:
        """Return the numbers of the referenced values."""
        return [int(number) for number in np.unique(self._owner(refs))]

    def per_child(self, refs: np.ndarray) -> bool:
        """Whether all referenced values are per child."""
        return all(self.values[number].per_child for number in self.owners(refs))

    def vanishes(self, refs: np.ndarray) -> bool:
        """Whether all numbers are zero for a child whose states are zero."""
        return all(self._zero[number] for number in self.owners(refs))

    def pieces(self, refs: np.ndarray) -> int:
        """Return the number of runs of neighbouring numbers of one value."""
        return len(self._runs(refs.ravel()))

    def value_of(self, refs: np.ndarray, shape: Shape) -> int:
        """Return the number of a value that consists of the referenced numbers, row by row."""
        flat = refs.ravel()
        repeated = self._repeated(flat)
        if repeated is not None:
            return self._shaped(repeated, shape)
        runs = self._runs(flat)
        if len(runs) > MOST_PIECES:
            raise ModelError(
                f"moves numbers of a node so that they come from {len(runs)} places; expected at most "
                f"{MOST_PIECES}, since a cell has no transposition"
            )
        if len(shape) == 2 and all(self._has_rows(run, shape[1]) for run in runs):
            parts = [self._rows(owner, begin // shape[1], end // shape[1]) for owner, begin, end in runs]
        else:
            vectors = [(self._shaped(owner, (self._size(owner),)), begin, end) for owner, begin, end in runs]
            parts = [self._rows(*vector) for vector in vectors]
        if len(parts) == 1:
            return self._shaped(parts[0], shape)
        return self._shaped(self.apply("concat", parts), shape)

    # Children

    def unrolled(self, t: Tensor) -> Tensor:
        """Return a tensor with the children as numbers of the node.

        Raises `ModelError` if there may be any number of children.
        """
        if "c" not in t.atoms:
            return t
        if self.places is None:
            raise ModelError(
                "tells children apart by their place, and the cell takes any number (children=None)"
            )
        at = t.atoms.index("c")
        refs = t.data if t.constant else self.referring(t)
        parts = [refs if t.constant else self._placed(refs, place) for place in range(self.places)]
        axes = [tuple(joined([self.places if atom == "c" else atom for atom in axis])) for axis in t.axes]
        return tensor(np.concatenate(parts, axis=at), axes, t)

    def pruned(self, *outputs: Mapping[str, int]) -> tuple[tuple[Value, ...], list[dict[str, int]]]:
        """Return the values that outputs need, and the outputs' new numbers."""
        kept = needed(self.values, [number for output in outputs for number in output.values()])
        new = {old: i for i, old in enumerate(kept)}
        values = [self.values[old] for old in kept]
        moved = tuple(replace(value, of=tuple(new[operand] for operand in value.of)) for value in values)
        return moved, [{name: new[number] for name, number in output.items()} for output in outputs]

    def _placed(self, refs: np.ndarray, place: int) -> np.ndarray:
        moved: np.ndarray = refs.copy()
        owner = self._owner(refs)
        for number in np.unique(owner).tolist():
            new = self._value_at(number, place)
            moved[owner == number] += self._starts[new] - self._starts[number]
        return moved

    def _value_at(self, number: int, place: int) -> int:
        """Return the number of a per-child value's instance for the child in a place."""
        for needed_number in needed(self.values[: number + 1], [number]):
            value = self.values[needed_number]
            if (needed_number, place) in self._at_place:
                continue
            if not value.per_child:
                new = needed_number
            elif value.op == "children":
                new = self.put(Value("child", shape=value.shape, name=value.name, start=place))
            else:
                of = tuple(self._at_place[operand, place] for operand in value.of)
                new = self.put(replace(value, of=of, per_child=False))
            self._at_place[needed_number, place] = new
        return self._at_place[number, place]

    def _owner(self, refs: np.ndarray) -> np.ndarray:
        owners: np.ndarray = np.searchsorted(np.array(self._starts), refs, "right") - 1
        return owners

    def _runs(self, flat: np.ndarray) -> list[tuple[int, int, int]]:
        """Return the owner, first number and end of each run."""
        starts = np.array(self._starts)
        owner = self._owner(flat)
        breaks = np.flatnonzero((np.diff(flat) != 1) | (np.diff(owner) != 0)) + 1
        begins = np.concatenate([[0], breaks])
        ends = np.concatenate([breaks, [len(flat)]])
        runs = zip(owner[begins], flat[begins] - starts[owner[begins]], ends - begins, strict=True)
        return [(int(owner_), int(begin), int(begin + length)) for owner_, begin, length in runs]

    def _repeated(self, flat: np.ndarray) -> int | None:
        """Return a value of repeated numbers, by number or as a whole; None if few repeat."""
        size = len(flat)
        if size == 1:
            return None
        run = int(np.argmin(flat == flat[0])) or size
        if run > 1 and size % run == 0 and (flat.reshape(-1, run) == flat[::run, None]).all():
            inner = self.value_of(flat[::run], (size // run,))
            ones = self.weight(np.ones(run, np.float32), f"ones_{run}")
            return self.apply("outer", (inner, ones))
        repeats = np.flatnonzero(flat == flat[0])
        period = int(repeats[1]) if len(repeats) > 1 else size
        times = size // period
        if times > 4 and size % period == 0 and (flat.reshape(-1, period) == flat[:period]).all():
            inner = self.value_of(flat[:period], (period,))
            ones = self.weight(np.ones(times, np.float32), f"ones_{times}")
            return self.apply("outer", (ones, inner))
        return None

    def _shaped(self, number: int, shape: Shape) -> int:
        if self.values[number].shape == shape:
            return number
        while self.values[number].op == "reshape":
            number = self.values[number].of[0]
        return number if self.values[number].shape == shape else self.apply("reshape", (number,), shape=shape)

    def _rows(self, number: int, begin: int, end: int) -> int:
        shape = self.values[number].shape
        if (begin, end) == (0, shape[0]):
            return number
        return self.apply("slice", (number,), start=begin, stop=end)

    def _has_rows(self, run: tuple[int, int, int], columns: int) -> bool:
        shape = self.values[run[0]].shape
        return len(shape) == 2 and shape[1] == columns and not run[1] % columns and not run[2] % columns

    def _size(self, number: int) -> int:
        return math.prod(self.values[number].shape)

    def _vanishes(self, value: Value) -> bool:
        """Whether a value is zero for a child whose states are zero, for any states of other children."""
        zeros = [self._zero[operand] for operand in value.of]
        if value.op == "children":
            return True
        if value.op in ("constant", "weight"):
            return value.constant == 0 if value.op == "constant" else not self.weights[value.name].any()
        if value.op in _ZERO_OF_ONE:
            return any(zeros)
        return value.op in (*_KEEPS_ZERO, *_ZERO_OF_ZEROS) and all(zeros)

    def _input(self, t: Tensor) -> str:
        return repr(list(self.inputs)[t.number])
