"""What a package holds, as values: the model's facts, and its kernels with their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from hbtvm import codec
from hbtvm.graph.columns_anchor import Frame
from hbtvm.graph.graph import Anchor, Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.parts import Parts
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.cuda.launch import Launch
from hbtvm.runtime.package.signature import Dtype, Signature
from hbtvm.runtime.package.validate import CudaVersion, Facts, Target, check_kernel, check_package
from hbtvm.runtime.parallelism import Parallel
from hbtvm.runtime.recursive.entry import RecursionEntry


@codec.bound
@dataclass(frozen=True)
class KernelEntry:
    """One tuned kernel.

    Attributes
    ----------
    strategy, config
        What it was made from; told to the user, not needed to run it.
    rows, threads
        Rows of a call that it was tuned for, and threads that such a call might use.
    seconds
        Measured time of such a call; None if it was not measured.
    value_dtype
        Type of its leaf values.
    library
        The shared library, whose function ``main`` is the kernel; for a GPU, its machine code (a
        fatbin or cubin).
    signature
        What the kernel takes.
    tables
        Its tables in argument order.
    parallel, grain
        What threads shared when it was timed, see `hbtvm.runtime.parallelism.Parallel`; fewest row tiles
        that are worth a hand-off.
    missing
        Whether its rows may have missing values. Where some kernels take none, others of the same
        type of rows do.
    launch
        How a GPU's kernel is started; None for a CPU's.
    object
        What `library` was linked from, a relocatable object, for libraries that hold the kernel; empty for a
        GPU's.
    """

    strategy: str
    config: Mapping[str, Any]
    rows: codec.Count
    threads: Annotated[int, codec.Within(1, 2**16)]
    seconds: codec.Seconds | None
    value_dtype: Dtype
    library: Annotated[bytes, codec.Member("kernels")]
    signature: Signature
    tables: tuple[np.ndarray, ...]
    parallel: Parallel = "none"
    grain: codec.Count = 1
    missing: bool = True
    launch: Launch | None = None
    object: Annotated[bytes, codec.Member("objects")] = b""

    def validate(self) -> None:
        """Check the tables by the signature, with a `ValueError` if they are others."""
        check_kernel(self)

    @property
    def dtype(self) -> Dtype:
        """Type of its rows."""
        return self.signature.dtype


@dataclass(frozen=True)
class StageEntry:
    """Kernels that run before the last ones; see `hbtvm.graph.stages.Stage`.

    Attributes
    ----------
    facts
        What `anchor_facts` tells of what they compute.
    columns
        Which columns of the matrix they read: its first ones are the feeds, or the caller's columns, those
        behind are what each stage makes.
    kernels
        At least one.
    """

    facts: Facts
    columns: tuple[codec.Index, ...]
    kernels: tuple[KernelEntry, ...]


@dataclass(frozen=True)
class Package:
    """A compiled model, ready to be written or loaded.

    Attributes
    ----------
    library, model
        The library and class it was trained with.
    input, output
        What comes in, and what goes out.
    forest
        What `anchor_facts` tells; base score and divisor are applied to the kernels' sums.
    target
        The machine it was compiled for, as `hbtvm.compiler.targets.target` describes it.
    kernels
        At least one; none of a pipeline that transforms, and of a recursive model without layers behind it.
    tuning
        Where the kernels come from: trials, time, date, whatever the tuner tells (JSON-able).
    hbtvm_version, tvm_version
        What compiled it; the versions installed here, if left empty.
    cuda_version
        The CUDA toolkit that compiled a GPU's kernels, such as ``"13.0"``; empty of a CPU's, and where it is
        not known.
    parts
        The feeds of a pipeline, whose matrix the kernels read, or the table of one that transforms.
    float32_apart
        Whether the kernels for float32 are of another anchor (`hbtvm.graph.graph.Graph.single`).
    steps
        A pipeline's steps: names and classes.
    told
        What was done to the graph, in sentences.
    frame
        The library whose data frames a pipeline gives that transforms; None for arrays.
    text_library
        The shared library that cuts texts into terms; empty where there are no texts.
    stages
        What runs before `kernels`, in order.
    columns
        With stages: the columns of the matrix that `kernels` read.
    executor
        The shared library that runs the kernels (`hbtvm/native`); empty of a GPU's.
    transform
        The package of what the library's ``transform`` gives beside ``predict``, where it has one.
    scores
        Of a transformer, the package of what the library's ``score_samples`` gives, where it has that.
    recursion
        What makes rows of structures, which all else of the package then reads; None where rows come in.
    """

    library: str
    model: str
    input: InputSpec
    output: OutputSpec
    forest: Facts
    target: Target
    kernels: tuple[KernelEntry, ...]
    tuning: Mapping[str, Any]
    hbtvm_version: str = ""
    tvm_version: str = ""
    cuda_version: CudaVersion = ""
    parts: Parts = field(default_factory=Parts)
    float32_apart: bool = False
    steps: tuple[tuple[str, str], ...] = ()
    told: tuple[str, ...] = ()
    frame: Frame | None = None
    text_library: Annotated[bytes, codec.Member("kernels")] = b""
    stages: tuple[StageEntry, ...] = ()
    columns: tuple[codec.Index, ...] = ()
    executor: Annotated[bytes, codec.Member("kernels")] = b""
    transform: Annotated[Package | None, codec.SKIP] = None
    scores: Annotated[Package | None, codec.SKIP] = None
    recursion: RecursionEntry | None = None

    def validate(self) -> None:
        """Check that all parts fit each other, with a `ValueError` if they do not."""
        check_package(self)

    @property
    def n_read(self) -> int:
        """Columns that come with the rows: the feeds, or the caller's columns."""
        return len(self.parts.feeds) or self.input.n_features

    @property
    def all_kernels(self) -> tuple[KernelEntry, ...]:
        """Kernels of all stages and the last ones."""
        return (*(kernel for stage in self.stages for kernel in stage.kernels), *self.kernels)

    @property
    def row_dtypes(self) -> tuple[str, ...]:
        """Types of rows for which there are kernels."""
        # Behind stages, kernels read a matrix of float64 whatever the rows are.
        return ("float32", "float64") if self.stages else tuple(sorted({one.dtype for one in self.kernels}))

    @property
    def rows_apart(self) -> bool:
        """Whether kernels for float32 take float32 rows alone, and no integers that float32 holds.

        The library converts integers to float64: it rounds differently, or returns float64.
        """
        return self.float32_apart or self.output.label_dtype == "rows"

    @property
    def transforms(self) -> bool:
        """Whether it gives columns, and nothing to predict."""
        return self.parts.table is not None or self.output.kind == "transformer"


def pipeline_fields(graph: Graph) -> dict[str, Any]:
    """The fields of a `Package` that tell what stands in front of the kernels of a graph."""
    table = getattr(graph.anchor, "table", None)
    return {
        "parts": Parts(graph.feeds, table),
        "float32_apart": any(one is not None for one in (graph.single, *(s.single for s in graph.stages))),
        "steps": graph.steps,
        "told": graph.told,
        "frame": getattr(graph.anchor, "frame", None),
    }


def anchor_facts(anchor: Anchor) -> dict[str, Any]:
    """What the runtime and its user need to know of what kernels compute.

    Its ``operator`` is ``"trees"``, ``"linear"`` or ``"columns"``.
    """
    return forest_facts(anchor) if isinstance(anchor, TreeEnsemble) else anchor.facts()


def forest_facts(ensemble: TreeEnsemble) -> dict[str, Any]:
    """What the runtime and its user need to know of a forest."""
    leaves = int(ensemble.is_leaf().sum())
    return {
        "operator": "trees",
        "n_features": ensemble.n_features,
        "n_outputs": ensemble.n_outputs,
        "compare_dtype": ensemble.compare_dtype,
        "base_score": ensemble.base_score.tolist(),
        "divisor": float(ensemble.divisor),
        "trees": ensemble.n_trees,
        "nodes": ensemble.n_nodes,
        "leaves": leaves,
        "depth": ensemble.max_depth(),
    }
