"""What a package holds of a recursive model, as values: its kernels, and how states and nodes lie in memory.

A node's states lie side by side in a row of float32, each padded with zeros to a multiple of `LANES`
numbers: a vector at its end, a matrix at the end of each of its rows. Row 0 is all zeros and stands for
children that are not there; then the rows of nodes without children follow (level 0), then those of each
level behind the other, where a node's level is one more than the highest of its children's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from hbtvm.codec import Index, Member, Seconds, Within, bound
from hbtvm.runtime.recursive.vocabulary import Vocabulary

LANES = 16  # numbers that the width of a state is a multiple of in memory: a vector of AVX-512
Numbers = Annotated[int, Within(1, 2**24)]  # numbers of a row, state, vector or scratch memory

Share = Literal["none", "structures", "nodes", "panels"]
"""What threads share: whole structures, tiles of a level's nodes, or panels of a step's outputs."""

Role = Literal["state", "child", "number", "vector", "scratch", "table", "span", "out"]
"""What an argument of a kernel is.

``"state"``: float32, (rows, S), rows of all nodes so far; ``"child"``: int32, (T, R, C), rows of children,
0 where there is none; ``"number"``, ``"vector"``: the nodes' inputs, int32 (T, R) and float32 (T, R, size);
``"scratch"``: float32, (T, R, width), memory between the steps of a level; ``"table"``: a constant;
``"span"``: int32, (2,), the first panel to compute and the one behind the last; ``"out"``: float32, (T, R,
S), the level's rows.
"""


DeviceRole = Literal["levels", "barrier", "arity", "level", "count", "blocks"]
"""What else an argument of a kernel on a GPU is, which takes whole arrays, by row: (rows, C), (rows, size).

``"levels"``: int32, (count + 1,), the first row of each level and the one behind the last; ``"barrier"``:
int64, (1,), zero before the kernel begins; ``"scratch"`` is by node of a level. The others are numbers of 64
bits: places for children, C; the level at hand; how many levels there are; blocks of the launch.
"""


@dataclass(frozen=True)
class RecursiveInput:
    """What comes with each node; see `hbtvm.recursive.cell.Input`."""

    name: str
    kind: Literal["number", "vector"]
    size: Annotated[int, Within(1, 2**31 - 1)]
    optional: bool = False


@dataclass(frozen=True)
class StepArgument:
    """One argument of a step's function."""

    role: Role | DeviceRole  # see `Role` and `DeviceRole`
    # Which input (of `RecursionEntry.inputs`), scratch memory (of `Program.scratch`), or table (of
    # `RecursionKernels.tables`)
    number: Index = 0


@dataclass(frozen=True)
class Step:
    """A function over the tiles of a level."""

    function: str  # its name in the library
    tile: Annotated[int, Within(1, 2**14)]  # nodes of a tile, R
    arguments: tuple[StepArgument, ...]  # in the order of its parameters
    # Panels of outputs that threads may share; 0 where its function takes no span. On a GPU: panels of which
    # each block computes one, at least 1.
    panels: Annotated[int, Within(0, 2**24)] = 0
    threads: Annotated[int, Within(0, 1025)] = 0  # threads of a block; 0 for CPUs
    # On a GPU: bytes of dynamic shared memory of a block. Where a kernel for all levels has some, blocks own
    # panels, and there have to be at least as many as `panels`.
    shared: Annotated[int, Within(0, 2**20)] = 0


@dataclass(frozen=True)
class Program:
    """How the nodes of a level are computed."""

    main: tuple[Step, ...]  # steps in order, all of one tile
    scratch: tuple[Numbers, ...] = ()  # width of each scratch memory, in numbers of a node
    # Steps for the nodes that remain behind whole tiles, of a smaller tile; empty where `main` takes them
    tail: tuple[Step, ...] = ()
    tail_most: Index = 0  # most nodes that `tail` takes; more are a tile of `main`


@dataclass(frozen=True)
class RecursionKernels:
    """Kernels of one batch size."""

    rows: Annotated[int, Within(1, 2**31)]  # structures of a call that they were tuned for
    # `threads`, `seconds`: threads that such a call might use, and its measured time; None if it was not
    # measured
    threads: Annotated[int, Within(1, 2**16)]
    seconds: Seconds | None
    # `strategy`, `config`: what they were made from
    strategy: str
    config: Mapping[str, Any]
    share: Share  # what threads share
    # `library`, `object`: the shared library with all functions, and what it was linked from; on a GPU: its
    # machine code
    library: Annotated[bytes, Member("kernels")]
    # `leaf`, `inner`: programs of nodes without and with children
    leaf: Program
    inner: Program
    tables: tuple[np.ndarray, ...]  # constants
    object: Annotated[bytes, Member("objects")] = b""
    # The program of nodes whose children all have none, where they have one of their own
    first: Program | None = None
    # On a GPU: a kernel that goes through all levels by itself, in place of the programs' steps
    persistent: Step | None = None
    # Levels that a thread goes through, with what is below a node, before it waits for others; more than one
    # where no node has several parents (recursive unrolling, Cortex, section 5.2)
    depth: Annotated[int, Within(1, 2**10)] = 1

    @property
    def programs(self) -> tuple[Program, ...]:
        """All of them, in the order of ``enum recursive_class``."""
        return (self.leaf, self.inner) if self.first is None else (self.leaf, self.inner, self.first)


@bound
@dataclass(frozen=True)
class RecursionEntry:
    """A recursive model's part of a package."""

    cell: str
    children: Annotated[int, Within(1, 2**14)] | None  # places for children; None for any number of them
    width: Numbers  # numbers of a row of states, S
    # `state`, `shape`: what is read: where that state starts in a row, and its shape (without padding)
    state: Annotated[int, Within(0, 2**24)]
    shape: tuple[Numbers, ...]
    # Of which nodes; see `hbtvm.recursive.cell.Readout`
    over: Literal["roots", "nodes", "total", "mean", "most"]
    inputs: tuple[RecursiveInput, ...]
    kernels: tuple[RecursionKernels, ...]  # at least one
    vocabulary: Vocabulary | None = None  # words that structures may come with in place of numbers
