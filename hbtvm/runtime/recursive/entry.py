"""`RecursionEntry`: a package's recursive model, its kernels, and the layout of states and nodes in memory.

A node's states are concatenated in a row of float32, each padded with zeros to a multiple of `LANES` numbers:
a vector at its end, a matrix at the end of each of its rows. Row 0 is all zeros and stands for absent
children. The rows of nodes without children follow (level 0), then those of the other levels in order; a
node's level is one more than the highest of its children's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from hbtvm.codec import Index, Member, Seconds, Within, bound
from hbtvm.runtime.recursive.vocabulary import Vocabulary

LANES = 16  # the width of a state in memory is a multiple of this: a vector of AVX-512
Numbers = Annotated[int, Within(1, 2**24)]  # numbers of a row, state, vector or scratch memory

Share = Literal["none", "structures", "nodes", "panels"]
"""How threads share work: by structures, tiles of a level's nodes, or panels of a step's outputs."""

Role = Literal["state", "child", "number", "vector", "scratch", "table", "span", "out"]
"""Roles of a kernel's arguments.

``"state"``: float32, (rows, S), rows of all nodes so far; ``"child"``: int32, (T, R, C), rows of children,
0 for absent children; ``"number"``, ``"vector"``: the nodes' inputs, int32 (T, R) and float32 (T, R, size);
``"scratch"``: float32, (T, R, width), memory between the steps of a level; ``"table"``: a constant;
``"span"``: int32, (2,), the range of panels to compute; ``"out"``: float32, (T, R,
S), the level's rows.
"""


DeviceRole = Literal["levels", "barrier", "arity", "level", "count", "blocks"]
"""Further roles for kernels on a GPU, which take whole arrays, by row: (rows, C), (rows, size).

``"levels"``: int32, (count + 1,), the first row of each level, and the end; ``"barrier"``:
int64, (1,), zero before the kernel begins; ``"scratch"`` is by node of a level. The others are numbers of 64
bits: places for children, C; the current level; the number of levels; blocks of the launch.
"""


@dataclass(frozen=True)
class RecursiveInput:
    """An input of nodes; see `hbtvm.recursive.cell.Input`."""

    name: str
    kind: Literal["number", "vector"]
    size: Annotated[int, Within(1, 2**31 - 1)]
    optional: bool = False


@dataclass(frozen=True)
class StepArgument:
    """An argument of a step's function."""

    role: Role | DeviceRole  # see `Role` and `DeviceRole`
    # Index of an input (`RecursionEntry.inputs`), scratch memory (`Program.scratch`), or table
    # (`RecursionKernels.tables`)
    number: Index = 0


@dataclass(frozen=True)
class Step:
    """A function over the tiles of a level."""

    function: str  # its name in the library
    tile: Annotated[int, Within(1, 2**14)]  # nodes of a tile, R
    arguments: tuple[StepArgument, ...]  # in the order of its parameters
    # Panels of outputs that threads may share; 0 if its function takes no span. On a GPU, each block computes
    # one of at least 1 panel.
    panels: Annotated[int, Within(0, 2**24)] = 0
    threads: Annotated[int, Within(0, 1025)] = 0  # threads of a block; 0 for CPUs
    # On a GPU: bytes of dynamic shared memory of a block. In a kernel for all levels with shared memory,
    # blocks own panels, so there must be at least `panels` blocks.
    shared: Annotated[int, Within(0, 2**20)] = 0


@dataclass(frozen=True)
class Program:
    """The computation of a level's nodes."""

    main: tuple[Step, ...]  # steps in order, with equal tiles
    scratch: tuple[Numbers, ...] = ()  # width of each scratch memory, in numbers per node
    # Steps with a smaller tile for the nodes after the last whole tile; empty if `main` takes them
    tail: tuple[Step, ...] = ()
    tail_most: Index = 0  # most nodes for `tail`; more are a tile of `main`


@dataclass(frozen=True)
class RecursionKernels:
    """Kernels of a batch size."""

    rows: Annotated[int, Within(1, 2**31)]  # structures of a call that they were tuned for
    # `threads`, `seconds`: most threads of such a call, and its measured time; None if not measured
    threads: Annotated[int, Within(1, 2**16)]
    seconds: Seconds | None
    # `strategy`, `config`: their strategy and configuration
    strategy: str
    config: Mapping[str, Any]
    share: Share  # how threads share work
    # `library`, `object`: the shared library with all functions, and the object it was linked from; on a GPU:
    # its machine code
    library: Annotated[bytes, Member("kernels")]
    # `leaf`, `inner`: programs of nodes without and with children
    leaf: Program
    inner: Program
    tables: tuple[np.ndarray, ...]  # constants
    object: Annotated[bytes, Member("objects")] = b""
    # A program for nodes whose children are all leaves, if there is one
    first: Program | None = None
    # On a GPU: a kernel that computes all levels, in place of the programs' steps
    persistent: Step | None = None
    # Levels that a thread computes within a node's subtree before it waits for others; more than 1 only if no
    # node has several parents (recursive unrolling, Cortex, section 5.2)
    depth: Annotated[int, Within(1, 2**10)] = 1

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs, in the order of ``enum recursive_class``."""
        return (self.leaf, self.inner) if self.first is None else (self.leaf, self.inner, self.first)


@bound
@dataclass(frozen=True)
class RecursionEntry:
    """A package's recursive model."""

    cell: str
    children: Annotated[int, Within(1, 2**14)] | None  # places for children; None for any number
    width: Numbers  # numbers of a row of states, S
    # `state`, `shape`: the state that is read: its offset in a row, and its shape (without padding)
    state: Annotated[int, Within(0, 2**24)]
    shape: tuple[Numbers, ...]
    # The nodes that are read; see `hbtvm.recursive.cell.Readout`
    over: Literal["roots", "nodes", "total", "mean", "most"]
    inputs: tuple[RecursiveInput, ...]
    kernels: tuple[RecursionKernels, ...]  # at least one
    vocabulary: Vocabulary | None = None  # words that structures may have in place of numbers
