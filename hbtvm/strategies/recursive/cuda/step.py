"""What all steps on GPUs have in common: units of work, and memory between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.strategies.recursive.cuda.nests import inlined
from hbtvm.strategies.recursive.cuda.parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.vectors import Place

SHARED_BYTES = 1 << 15
"""Shared memory of a block for operands, of the 48 KiB that every GPU gives without being asked."""


@dataclass(frozen=True)
class Blocking:
    """How blocks go about their work."""

    tile: int  # nodes of a block
    threads: int  # of a block, outputs of a panel; a multiple of `WARP`
    unroll: int  # terms of a sum that are written out
    # Outputs of a panel of a kernel for all levels whose blocks keep their constants in shared memory; 0:
    # constants stay in global memory
    columns: int = 0


class DeviceStep:
    """What blocks do for the nodes of one level between two barriers of all blocks.

    A unit of work is a panel of results of a tile of nodes, which a block computes.

    `facts`, `blocking`, `parameters`: the cell, how blocks go about their work, and what the kernel takes.
    `nests`: numbers of the nests that it computes, none of which reads another one's results.
    `thread`: the thread's number in its block.
    `shared`: Float32 memory of the block, of `shared_numbers` or more.
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
        self.which, self.nests = nests, [facts.nests.nests[one] for one in nests]
        self._inline = inlined(facts)

    @property
    def tile(self) -> int:
        """Nodes of a tile."""
        return self.blocking.tile

    @property
    def panels(self) -> int:
        """Panels of results."""
        raise NotImplementedError

    def units(self, level: Any) -> Any:
        """How many units a level has."""
        p, nodes = self.parameters, self.tile
        rows = p.first_row(level + const(1)) - p.first_row(level)
        return tirx.truncdiv(rows + const(nodes - 1), const(nodes)) * const(self.panels)

    def work(self, level: Any, block: Any, blocks: Any) -> tuple[Any, Callable[[Any], Any]]:
        """How many units of a level a block has, and from one's number among these to its own."""
        # The dividend is never negative: blocks are numbered below their count.
        own = tirx.truncdiv(self.units(level) + blocks - const(1) - block, blocks)
        return own, lambda n: n * blocks + block

    def statements(self, level: Any, unit: Any) -> list[Any]:
        """Compute unit `unit` of a level: panel by panel of a tile of nodes, tile by tile."""
        raise NotImplementedError

    def shared_numbers(self) -> int:
        """Numbers of shared memory."""
        raise NotImplementedError

    def vectors(self, place: Place, first: Any) -> DeviceVectors:
        """Expressions of values at a place that are in memory, or are computed from what is.

        `first`: the level's first row.
        """

        def load(number: int, where: Place, _: int) -> Any:
            return self.stored(number, where, first)

        return DeviceVectors(self.facts, self.parameters, place, 1, load)

    def stored(self, number: int, place: Place, first: Any) -> Any:
        """A value from memory between steps; None if it is not there."""
        home = self.facts.nests.home(number)
        if home is None or number in self._inline or not self.is_before(home):
            return None
        return tirx.BufferLoad(self._scratch(number), [place.tile - first, const(0), place.at])

    def is_before(self, which: int) -> bool:
        """Whether a nest, whose values this step reads or computes, is computed by an earlier step."""
        raise NotImplementedError

    def store(self, number: int, row: Any, column: Any, value: Any) -> list[Any]:
        """Put a value's number into memory between steps, if others read it there."""
        if number in self._inline:
            return []
        return [tirx.BufferStore(self._scratch(number), value, [row, const(0), column])]

    def store_state(self, start: int, row: Any, column: Any, value: Any) -> Any:
        """Put a number of the state that begins at a place into a node's row."""
        return tirx.BufferStore(self.parameters.state, value, [row, column + const(start)])

    def _scratch(self, number: int) -> Any:
        return self.parameters.scratch(self._memory[number], flat(self.facts.values[number].shape))


def block_barrier() -> Any:
    """Threads of a block wait for each other, and then see what each wrote before."""
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))


def where(condition: Any, value: Any) -> Any:
    """A number, or zero where a condition does not hold."""
    return tirx.Select(condition, value, zero())


def zero() -> Any:
    """0, as a number of float32."""
    return tirx.const(0.0, "float32")


def const(value: int) -> Any:
    """A place, or a number of them."""
    return tirx.const(value, "int64")
