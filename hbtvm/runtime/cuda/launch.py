"""How a kernel of a package is started on a GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hbtvm.codec import Index, Via, Within

Size = int | tuple[int, int]  # a number, or what is found in the shapes of a kernel's arrays: (array, axis)

EPILOGUE, EPILOGUE_THREADS = "hbtvm_finish", 256
"""The kernel that lays scores out by rows (see `compiler.finish`), and its threads in a block."""

GATHER, GATHER_THREADS = "hbtvm_gather", 256
"""The kernel that makes the rows of a kernel behind others (see `hbtvm.compiler.lowering.gather`), and its
threads in a block."""

COUNT, BASE, BASE_SCORE, DIVISOR = "count", "base", "base_score", "divisor"
"""What kernels with bounds take by name (`hbtvm.compiler.lowering.cuda.row_bounds`): the number of rows, the
address of base scores, the first of these, and what sums are divided by."""

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_SHARED = 1024, 2**20

_Named = Literal["count", "base", "base_score", "divisor"]
_Size = Index | tuple[Index, Index]
_Threads = Annotated[int, Within(1, _MOST_THREADS + 1)]
_Shared = Annotated[int, Within(0, _MOST_SHARED)]


@dataclass(frozen=True)
class Scaling:
    """What makes raw scores of sums."""

    base: int  # address of base scores on the device, float64, shape (O,)
    base_score: float  # the first of them
    divisor: float  # what sums are divided by, before base scores are added


@dataclass(frozen=True)
class Launch:
    """Name, arguments and threads of a kernel.

    The kernel's arrays are numbered in the order that every kernel has: rows, tables, scores.
    """

    function: str  # the kernel's name in its module
    # What it takes, in order: the address of an array (its number), a size out of the arrays' shapes, as 64
    # bits, or what one of the names above stands for. One that takes `COUNT` has bounds.
    arguments: tuple[Annotated[Size | str, Via(_Size | _Named)], ...]
    # `grid`, `block`: blocks along x, y and z, and threads of a block
    grid: tuple[_Size, _Size, _Size]
    block: tuple[_Threads, _Threads, _Threads]
    shared: _Shared = 0  # bytes of dynamic shared memory
    # Bytes of shared memory that a multiprocessor is to have, a size of those that devices offer; L1 has the
    # rest. None leaves it to the driver.
    carveout: _Shared | None = None

    def validate(self) -> None:
        """Refuse more threads than a block has, with a `ValueError`."""
        if math.prod(self.block) > _MOST_THREADS:
            raise ValueError(f"a kernel's blocks have {math.prod(self.block)} threads")

    def check(self, shapes: Sequence[tuple[Any, ...]]) -> None:
        """Check that it speaks of no more arrays, and of no more of their axes, than there are.

        Raises `ValueError` if it does.
        """
        sizes = [one for one in (*self.arguments, *self.grid) if isinstance(one, tuple)]
        named = [one for one in self.arguments if isinstance(one, int)] + [one[0] for one in sizes]
        if max(named, default=0) >= len(shapes):
            raise ValueError(f"a kernel's launch names array {max(named)} of {len(shapes)}")
        beyond = [one for one in sizes if one[1] >= len(shapes[one[0]])]
        if beyond:
            raise ValueError(f"a kernel's launch names axis {beyond[0][1]} of array {beyond[0][0]}")

    def blocks(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int]:
        """Blocks for arrays of these shapes."""
        x, y, z = (shapes[one[0]][one[1]] if isinstance(one, tuple) else one for one in self.grid)
        return x, y, z

    def most_tiles(self) -> int:
        """Row tiles that one launch can take."""
        return min(
            (most for most, one in zip(_MOST_BLOCKS, self.grid, strict=True) if isinstance(one, tuple)),
            default=_MOST_BLOCKS[0],
        )

    @property
    def has_bounds(self) -> bool:
        """Whether the kernel takes any number of rows, rather than whole tiles."""
        return COUNT in self.arguments

    def values(
        self, addresses: Sequence[int], shapes: Sequence[tuple[int, ...]], count: int, scaling: Scaling
    ) -> list[Any]:
        """The arguments for arrays at these addresses, and for so many rows, as the driver takes them."""
        named = {
            COUNT: ctypes.c_int64(count),
            BASE: ctypes.c_uint64(scaling.base),
            BASE_SCORE: ctypes.c_double(scaling.base_score),
            DIVISOR: ctypes.c_double(scaling.divisor),
        }

        def value(one: Size | str) -> Any:
            if isinstance(one, str):
                return named[one]
            if isinstance(one, tuple):
                return ctypes.c_int64(shapes[one[0]][one[1]])
            return ctypes.c_uint64(addresses[one])

        return [value(one) for one in self.arguments]


def pointers(values: Sequence[Any]) -> Any:
    """The addresses of arguments, as an array that keeps their values."""
    made = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    made.values = values  # type: ignore[attr-defined]
    return made
