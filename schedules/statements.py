"""Short ways to write statements of lowered functions, for vectors and single values alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class Place:
    """Where something begins in a flat buffer; offsets are in elements."""

    buffer: Any
    start: Any

    def load(self, offset: Any, lanes: int = 1) -> Any:
        """Return a number at an offset, or a vector that begins there."""
        return tirx.BufferLoad(self.buffer, [span(self.start + offset, lanes)])

    def store(self, value: Any, offset: Any, lanes: int = 1) -> Any:
        """Return the statement that stores a value or a vector at an offset."""
        return tirx.BufferStore(self.buffer, value, [span(self.start + offset, lanes)])


class Scratch(Place):
    """A small local array."""

    def allocation(self) -> list[Any]:
        """Return the statements that allocate it, for the sequence of its users."""
        return [tirx.AllocBuffer(self.buffer)]


def scratch(name: str, count: int, dtype: str, scope: str = "global") -> Scratch:
    """Return a small array of a CPU, which stays in registers if all its indices are constant.

    `scope`: TVM puts arrays of scope ``"global"`` below 1 KB on a CPU's stack. It allocates those of other
        scopes by a call wherever they are declared.
    """
    return Scratch(tirx.decl_buffer((count,), dtype, name, scope=scope), tirx.const(0, "int64"))


def registers(name: str, count: int, dtype: str) -> Scratch:
    """Return a small array of a thread of a GPU."""
    return scratch(name, count, dtype, "local")


def prefetch(load: Any, locality: int) -> Any:
    """Return the statement that fetches a load's cache line, for reading.

    `locality`: LLVM's number: 3 for the first-level cache, 2 for the second-level cache.
    """
    arguments = [tirx.const(value, "int32") for value in (0, locality, 1)]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(load), *arguments))


def const(value: int) -> Any:
    """Return an int64 constant, such as an index or a count."""
    return tirx.const(value, "int64")


def vector_type(dtype: str, lanes: int) -> str:
    """Return the type of a vector, or of a scalar for one lane."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def span(start: Any, lanes: int) -> Any:
    """Return the index of a vector of neighbours."""
    return start if lanes == 1 else tirx.Ramp(start, tirx.const(1, "int64"), lanes)


def broadcast(value: Any, lanes: int) -> Any:
    """Return a vector whose lanes are all `value`."""
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def splat(value: float, dtype: str, lanes: int) -> Any:
    """Return a vector of a constant."""
    return broadcast(tirx.const(value, dtype), lanes)


def any_lane(condition: Any, lanes: int) -> Any:
    """Return whether a condition holds in any lane."""
    if lanes == 1:
        return condition
    ones = tirx.Select(condition, splat(1, "int32", lanes), splat(0, "int32", lanes))
    return tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", ones) != tirx.const(0, "int32")


def serial(name: str, extent: Any, body: Callable[[Any], Any]) -> Any:
    """Return a loop from 0.

    `extent`: a number, or an expression of int64.
    `body`: makes the loop's statement from its variable.
    """
    variable = tirx.Var(name, "int64")
    count = const(extent) if isinstance(extent, int) else extent
    return tirx.For(variable, const(0), count, tirx.ForKind.SERIAL, body(variable))


def sequence(steps: Sequence[Any]) -> Any:
    """Return the steps as one statement."""
    return tirx.SeqStmt(list(steps)) if len(steps) > 1 else steps[0]
