"""Launch parameters of a package's kernel on a GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hbtvm.codec import Index, Via, Within

Size = int | tuple[int, int]  # a number, or an extent of one of the kernel's arrays: (array, axis)

EPILOGUE, EPILOGUE_THREADS = "hbtvm_finish", 256
"""The kernel that lays scores out by rows (see `hbtvm.compiler.lowering.cuda.score_epilogue`), and its
threads per block."""

GATHER, GATHER_THREADS = "hbtvm_gather", 256
"""The kernel that gathers rows for a kernel after stages (see `hbtvm.compiler.lowering.gather`), and its
threads per block."""

OUTPUT, OUTPUT_THREADS = "hbtvm_output", 128
"""The kernel that makes outputs of raw scores (see `hbtvm.compiler.lowering.cuda.output_kernel`), and its
threads per block."""

MOST_STEPS, MOST_OUTPUTS = 8, 128
"""Most steps of an output that this kernel computes, and most raw scores of a row that it reads."""

OUTPUT_STEPS = (
    *("add", "subtract", "multiply", "divide", "minimum", "maximum", "greater", "greater_equal", "less"),
    *("exp", "negative", "sign", "square", "reciprocal", "signed_square", "likelier", "sigmoid"),
    *("softmax", "shares"),
)
"""Names of its steps in `hbtvm.runtime.native.epilogues.epilogue.STEPS`."""

COUNT, BASE, BASE_SCORE, DIVISOR = "count", "base", "base_score", "divisor"
"""Named arguments of kernels with bounds (`hbtvm.compiler.lowering.cuda.row_bounds`): the number of rows, the
address of base scores, the first of these, and the sums' divisor."""

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_SHARED = 1024, 2**20

_Named = Literal["count", "base", "base_score", "divisor"]
_Size = Index | tuple[Index, Index]
_Threads = Annotated[int, Within(1, _MOST_THREADS + 1)]
_Shared = Annotated[int, Within(0, _MOST_SHARED)]


@dataclass(frozen=True)
class Scaling:
    """The conversion of sums to raw scores."""

    base: int  # address of base scores on the device, float64, shape (O,)
    base_score: float  # the first of them
    divisor: float  # divides sums before base scores are added


@dataclass(frozen=True)
class Launch:
    """Name, arguments and threads of a kernel.

    The kernel's arrays are numbered in order: rows, tables, scores.
    """

    function: str  # the kernel's name in its module
    # Arguments in order: the address of an array (its number), a size out of the arrays' shapes, as 64
    # bits, or the value of a name above. A kernel that takes `COUNT` has bounds.
    arguments: tuple[Annotated[Size | str, Via(_Size | _Named)], ...]
    # `grid`, `block`: blocks along x, y and z, and threads of a block
    grid: tuple[_Size, _Size, _Size]
    block: tuple[_Threads, _Threads, _Threads]
    shared: _Shared = 0  # bytes of dynamic shared memory
    # Preferred bytes of shared memory of a multiprocessor, among the sizes that devices offer; L1 gets the
    # rest. None leaves them to the driver.
    carveout: _Shared | None = None

    def validate(self) -> None:
        """Raise `ValueError` for too many threads in a block."""
        if math.prod(self.block) > _MOST_THREADS:
            raise ValueError(f"a kernel's blocks have {math.prod(self.block)} threads")

    def check(self, shapes: Sequence[tuple[Any, ...]]) -> None:
        """Check that the arrays and axes that it names exist.

        Raises `ValueError` if not.
        """
        sizes = [size for size in (*self.arguments, *self.grid) if isinstance(size, tuple)]
        named = [entry for entry in self.arguments if isinstance(entry, int)] + [entry[0] for entry in sizes]
        if max(named, default=0) >= len(shapes):
            raise ValueError(f"a kernel's launch names array {max(named)} of {len(shapes)}")
        out_of_range = [size for size in sizes if size[1] >= len(shapes[size[0]])]
        if out_of_range:
            raise ValueError(
                f"a kernel's launch names axis {out_of_range[0][1]} of array {out_of_range[0][0]}"
            )

    def blocks(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int]:
        """Return the numbers of blocks for arrays of these shapes."""
        x, y, z = (shapes[size[0]][size[1]] if isinstance(size, tuple) else size for size in self.grid)
        return x, y, z

    def most_tiles(self) -> int:
        """Return the most row tiles of a launch."""
        return min(
            (most for most, size in zip(_MOST_BLOCKS, self.grid, strict=True) if isinstance(size, tuple)),
            default=_MOST_BLOCKS[0],
        )

    @property
    def has_bounds(self) -> bool:
        """Whether the kernel takes any number of rows, rather than whole tiles."""
        return COUNT in self.arguments

    def values(
        self, addresses: Sequence[int], shapes: Sequence[tuple[int, ...]], count: int, scaling: Scaling
    ) -> list[Any]:
        """Return the driver's arguments for arrays at these addresses and `count` rows."""
        named = {
            COUNT: ctypes.c_int64(count),
            BASE: ctypes.c_uint64(scaling.base),
            BASE_SCORE: ctypes.c_double(scaling.base_score),
            DIVISOR: ctypes.c_double(scaling.divisor),
        }

        def value(argument: Size | str) -> Any:
            if isinstance(argument, str):
                return named[argument]
            if isinstance(argument, tuple):
                return ctypes.c_int64(shapes[argument[0]][argument[1]])
            return ctypes.c_uint64(addresses[argument])

        return [value(argument) for argument in self.arguments]


def pointers(values: Sequence[Any]) -> Any:
    """Return the addresses of arguments, as an array that keeps their values alive."""
    array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    array.values = values  # type: ignore[attr-defined]
    return array
