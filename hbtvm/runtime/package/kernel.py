"""A package's kernels, with their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hbtvm import codec
from hbtvm.runtime.gpu.launch import Launch
from hbtvm.runtime.package.contents import check_contents
from hbtvm.runtime.package.facts import Facts
from hbtvm.runtime.package.signature import Dtype, Signature
from hbtvm.runtime.parallelism import Parallel


@codec.bound
@dataclass(frozen=True)
class KernelEntry:
    """One tuned kernel."""

    # `strategy`, `config`: its strategy and configuration; for the user, not needed to run it
    strategy: str
    config: Mapping[str, Any]
    # `rows`, `threads`: rows of a call that it was tuned for, and most threads of such a call
    rows: codec.Count
    threads: Annotated[int, codec.Within(1, 2**16)]
    seconds: codec.Seconds | None  # measured time of such a call; None if it was not measured
    value_dtype: Dtype  # type of its leaf values
    # The shared library with the kernel as ``main``; for a GPU, its machine code (a fatbin or cubin)
    library: Annotated[bytes, codec.Member("kernels")]
    signature: Signature  # the kernel's arguments
    tables: tuple[np.ndarray, ...]  # its tables in argument order
    # `parallel`, `grain`: how threads shared its work when it was timed, see
    # `hbtvm.runtime.parallelism.Parallel`; fewest row tiles that are worth a hand-off
    parallel: Parallel = "none"
    grain: codec.Count = 1
    # Whether its rows may have missing values; if not, another kernel of the same row type takes them
    missing: bool = True
    launch: Launch | None = None  # launch of a GPU's kernel; None for a CPU's
    # The relocatable object that `library` was linked from, for other libraries; empty for a GPU's
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
    """Kernels of a stage before the last kernels; see `hbtvm.graph.stages.Stage`."""

    facts: Facts  # their `anchor_facts`
    # The columns of the matrix that they read: first the feeds, or the caller's columns, then each stage's
    columns: tuple[codec.Index, ...]
    kernels: tuple[KernelEntry, ...]  # at least one
