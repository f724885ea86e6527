"""Base of steps on GPUs: units of work, and memory between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import const
from hbtvm.strategies.recursive.cuda.nests import inlined
from hbtvm.strategies.recursive.cuda.parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.vectors import Place

SHARED_BYTES = 1 << 15
"""A block's shared memory for operands, within the 48 KiB of static shared memory of every GPU."""


@dataclass(frozen=True)
class Blocking:
    """Tiling of blocks."""

    tile: int  # nodes of a block
    threads: int  # of a block, outputs of a panel; a multiple of `WARP`
    unroll: int  # unrolled terms of a sum
    # Outputs of a panel whose block keeps its constants in shared memory over all levels; 0 for none
    columns: int = 0


class DeviceStep:
    """The blocks' work for the nodes of one level between two barriers.

    A block computes units of work: panels of results of tiles of nodes.

    `facts`, `blocking`, `parameters`: the cell, the tiling, and the kernel's parameters.
    `nests`: numbers of the step's nests, which don't read each other's results.
    `thread`: the thread's number in its block.
    `shared`: float32 memory of the block, at least `shared_numbers`.
    `memory`: numbers of memory between steps by a value's number.
    """

    def __init__(
        self,
        facts: Facts,
        blocking: Blocking,
        parameters: DeviceParameters,
        nests: list[int],
        thread: Any,
        shared: Any,
        memory: dict[int, int],
    ) -> None:
        self.facts, self.blocking, self.parameters = facts, blocking, parameters
        self.thread, self.shared, self._memory = thread, shared, memory
        self.which, self.nests = nests, [facts.nests.nests[nest] for nest in nests]
        self._inline = inlined(facts)

    @property
    def tile(self) -> int:
        """Number of nodes of a tile."""
        return self.blocking.tile

    @property
    def panels(self) -> int:
        """Number of panels of results."""
        raise NotImplementedError

    def units(self, level: Any) -> Any:
        """Return the number of a level's units."""
        p, nodes = self.parameters, self.tile
        rows = p.first_row(level + const(1)) - p.first_row(level)
        return tirx.truncdiv(rows + const(nodes - 1), const(nodes)) * const(self.panels)

    def work(self, level: Any, block: Any, blocks: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Return a block's number of units of a level, and a function from their index to the unit."""
        # The dividend is never negative: blocks are numbered below their count.
        count = tirx.truncdiv(self.units(level) + blocks - const(1) - block, blocks)
        return count, lambda n: n * blocks + block

    def statements(self, level: Any, unit: Any) -> list[Any]:
        """Return statements that compute a unit; units are numbered by tile, then by panel."""
        raise NotImplementedError

    def shared_numbers(self) -> int:
        """Return the size of shared memory, in numbers."""
        raise NotImplementedError

    def vectors(self, place: Place, first: Any) -> DeviceVectors:
        """Return expressions at a place of values from memory, or computed from these.

        `first`: the level's first row.
        """

        def load(number: int, where: Place, _: int) -> Any:
            return self.stored(number, where, first)

        return DeviceVectors(self.facts, self.parameters, place, 1, load)

    def stored(self, number: int, place: Place, first: Any) -> Any:
        """Return a value from memory between steps; None if it is not there."""
        home = self.facts.nests.home(number)
        if home is None or number in self._inline or not self.is_before(home):
            return None
        return tirx.BufferLoad(self._scratch(number), [place.tile - first, const(0), place.at])

    def is_before(self, which: int) -> bool:
        """Whether an earlier step computes a nest."""
        raise NotImplementedError

    def store(self, number: int, row: Any, column: Any, value: Any) -> list[Any]:
        """Store a number to memory between steps, unless readers recompute the value."""
        if number in self._inline:
            return []
        return [tirx.BufferStore(self._scratch(number), value, [row, const(0), column])]

    def store_state(self, start: int, row: Any, column: Any, value: Any) -> Any:
        """Store a number of the state that begins at `start` in a node's row."""
        return tirx.BufferStore(self.parameters.state, value, [row, column + const(start)])

    def _scratch(self, number: int) -> Any:
        return self.parameters.scratch(self._memory[number], flat(self.facts.values[number].shape))


def block_barrier() -> Any:
    """Return a barrier of a block's threads, which also orders their memory accesses."""
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))


def where(condition: Any, value: Any) -> Any:
    """Return a number if a condition holds, else 0."""
    return tirx.Select(condition, value, zero())


def zero() -> Any:
    """Return 0 as float32."""
    return tirx.const(0.0, "float32")
