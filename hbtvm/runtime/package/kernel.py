"""A package's kernels, with their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hbtvm import codec
from hbtvm.runtime.cuda.launch import Launch
from hbtvm.runtime.package.contents import check_contents
from hbtvm.runtime.package.facts import Facts
from hbtvm.runtime.package.signature import Dtype, Signature
from hbtvm.runtime.parallelism import Parallel


@codec.bound
@dataclass(frozen=True)
class KernelEntry:
    """One tuned kernel."""

    # `strategy`, `config`: what it was made from; told to the user, not needed to run it
    strategy: str
    config: Mapping[str, Any]
    # `rows`, `threads`: rows of a call that it was tuned for, and threads that such a call might use
    rows: codec.Count
    threads: Annotated[int, codec.Within(1, 2**16)]
    seconds: codec.Seconds | None  # measured time of such a call; None if it was not measured
    value_dtype: Dtype  # type of its leaf values
    # The shared library, whose function ``main`` is the kernel; for a GPU, its machine code (a fatbin or
    # cubin)
    library: Annotated[bytes, codec.Member("kernels")]
    signature: Signature  # what the kernel takes
    tables: tuple[np.ndarray, ...]  # its tables in argument order
    # `parallel`, `grain`: what threads shared when it was timed, see `hbtvm.runtime.parallelism.Parallel`;
    # fewest row tiles that are worth a hand-off
    parallel: Parallel = "none"
    grain: codec.Count = 1
    # Whether its rows may have missing values. Where some kernels take none, others of the same type of rows
    # do.
    missing: bool = True
    launch: Launch | None = None  # how a GPU's kernel is started; None for a CPU's
    # What `library` was linked from, a relocatable object, for libraries that hold the kernel; empty for a
    # GPU's
    object: Annotated[bytes, codec.Member("objects")] = b""

    def validate(self) -> None:
        """Raise `ValueError` if the tables do not match the signature."""
        if not self.library:
            raise ValueError("a kernel's library is empty")
        signature = self.signature
        signature.check_tables(self.tables)
        check_contents(signature, self.tables)
        for argument in signature.tables:
            if argument.name == "value" and argument.dtype != self.value_dtype:
                raise ValueError(f"a kernel's leaf values are {argument.dtype}, not {self.value_dtype}")
        if self.launch is None:
            if signature.parts != 1 or len(signature.scores.shape) not in (3, 4):
                raise ValueError(
                    f"a CPU's kernel leaves sums in {signature.parts} parts, {signature.scores.shape}"
                )
        else:
            self.launch.check([argument.shape for argument in signature.arguments])

    @property
    def dtype(self) -> Dtype:
        """Type of its rows."""
        return self.signature.dtype


@dataclass(frozen=True)
class StageEntry:
    """Kernels that run before the last ones; see `hbtvm.graph.stages.Stage`."""

    facts: Facts  # what `anchor_facts` tells of what they compute
    # Which columns of the matrix they read: its first ones are the feeds, or the caller's columns, those
    # behind are what each stage makes
    columns: tuple[codec.Index, ...]
    kernels: tuple[KernelEntry, ...]  # at least one
