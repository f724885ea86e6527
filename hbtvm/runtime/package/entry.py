"""`Package`: a package's contents, and checks that its parts match each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from hbtvm import codec
from hbtvm.graph.columns_anchor import Frame
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.parts import Parts
from hbtvm.graph.python_steps import PythonStep
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.package.calls import CallTimes
from hbtvm.runtime.package.facts import CudaVersion, Facts, Target
from hbtvm.runtime.package.kernel import KernelEntry, StageEntry
from hbtvm.runtime.recursive.check import check_entry
from hbtvm.runtime.recursive.entry import RecursionEntry


@dataclass(frozen=True)
class Package:
    """A compiled model, ready to be written or loaded."""

    # `library`, `model`: the training library and the model's class
    library: str
    model: str
    # `input`, `output`: specifications of rows and of results
    input: InputSpec
    output: OutputSpec
    forest: Facts  # from `anchor_facts`; base score and divisor are applied to the kernels' sums
    target: Target  # the machine that it was compiled for; see `hbtvm.compiler.targets.target`
    # At least one; none for pipelines that transform, and for recursive models without layers behind
    kernels: tuple[KernelEntry, ...]
    # The kernels' provenance: trials, time, date and other facts of the tuner, as JSON values
    tuning: Mapping[str, Any]
    # `hbtvm_version`, `tvm_version`: versions that compiled it; if empty, the installed versions
    hbtvm_version: str = ""
    tvm_version: str = ""
    # The CUDA toolkit that compiled a GPU's kernels, such as ``"13.0"``; empty for a CPU's, or if unknown
    cuda_version: CudaVersion = ""
    # A pipeline's feeds, whose matrix the kernels read, or the table of a pipeline that transforms
    parts: Parts = field(default_factory=Parts)
    # Whether kernels for float32 compute another anchor (`hbtvm.graph.graph.Graph.single`)
    float32_apart: bool = False
    steps: tuple[tuple[str, str], ...] = ()  # a pipeline's steps: names and classes
    rewrites: tuple[str, ...] = ()  # sentences on the graph's rewrites
    # The library of a transforming pipeline's data frames; None for arrays
    frame: Frame | None = None
    # The shared library that cuts texts into terms; empty without texts
    text_library: Annotated[bytes, codec.Member("kernels")] = b""
    stages: tuple[StageEntry, ...] = ()  # stages before `kernels`, in order
    columns: tuple[codec.Index, ...] = ()  # with stages: the columns of the matrix that `kernels` read
    # The shared library that runs the kernels (`hbtvm/native`); beside kernels for a GPU, empty unless there
    # is a recursive model or there are counters of categories
    executor: Annotated[bytes, codec.Member("kernels")] = b""
    # The package of the library's ``transform``, for a model that also has ``predict``
    transform: Annotated[Package | None, codec.SKIP] = None
    # The package of a transformer's ``score_samples``, if the library has it
    scores: Annotated[Package | None, codec.SKIP] = None
    # Packages of further results for the same rows, by name, and why a name has none; see `hbtvm.graph.views`
    views: Annotated[Mapping[str, Package], codec.SKIP] = field(default_factory=dict)
    no_views: Mapping[str, str] = field(default_factory=dict)
    # `python`, `lead`: as in `hbtvm.graph.graph.Graph`; the rest of the package is behind them
    python: tuple[PythonStep, ...] = ()
    lead: Annotated[Package | None, codec.SKIP] = None
    # `transform_predicts`, `keeps_integers`: as in `hbtvm.graph.graph.Graph`
    transform_predicts: bool = False
    keeps_integers: bool = False
    # The recursive model, whose readout is the rows of the rest; None for models of rows
    recursion: RecursionEntry | None = None
    calls: tuple[CallTimes, ...] = ()  # measured times of whole calls, if any

    def validate(self) -> None:
        """Raise `ValueError` if parts of the package do not match each other."""
        _check(self)

    @property
    def n_read(self) -> int:
        """Number of columns of the rows: the feeds, or the caller's columns."""
        return len(self.parts.feeds) or self.input.n_features

    @property
    def all_kernels(self) -> tuple[KernelEntry, ...]:
        """All stages' kernels, then `kernels`."""
        return (*(kernel for stage in self.stages for kernel in stage.kernels), *self.kernels)

    @property
    def threads(self) -> int:
        """Most threads that a kernel was tuned for."""
        threads = [kernel.threads for kernel in self.all_kernels]
        if self.recursion is not None:
            threads += [kernels.threads for kernels in self.recursion.kernels]
        return max(threads, default=1)

    @property
    def row_dtypes(self) -> tuple[str, ...]:
        """Types of rows that kernels take."""
        # After stages, kernels read a float64 matrix whatever the rows' type.
        return (
            ("float32", "float64")
            if self.stages
            else tuple(sorted({kernel.dtype for kernel in self.kernels}))
        )

    @property
    def rows_apart(self) -> bool:
        """Whether kernels for float32 take only float32 rows, and no integers that float32 holds.

        The library converts integers to float64: it rounds differently, or returns float64.
        """
        return self.float32_apart or self.output.label_dtype == "rows"

    @property
    def transforms(self) -> bool:
        """Whether it only transforms."""
        return self.parts.table is not None or self.output.kind == "transformer"


def pipeline_fields(graph: Graph) -> dict[str, Any]:
    """Return the fields of a `Package` for the part of a graph before its kernels."""
    table = getattr(graph.anchor, "table", None)
    return {
        "parts": Parts(graph.feeds, table),
        "float32_apart": any(
            single is not None for single in (graph.single, *(s.single for s in graph.stages))
        ),
        "steps": graph.steps,
        "rewrites": graph.rewrites,
        "frame": getattr(graph.anchor, "frame", None),
        "transform_predicts": graph.transform_predicts,
        "keeps_integers": graph.keeps_integers,
    }


def _check(package: Package) -> None:
    """Raise `ValueError` if parts of a package do not match each other."""
    forest, inputs, output = package.forest, package.input, package.output
    table, feeds = package.parts.table, package.parts.feeds
    gpu = on_gpu(package.target)
    package.parts.check(inputs.n_features)
    if package.parts.reads_texts and not package.text_library:
        raise ValueError("it reads texts, but has no library for them")
    if package.frame is not None and (table is None or table.names is None):
        raise ValueError(f"it returns data frames of {package.frame} without names")
    if package.recursion is not None:
        check_entry(package.recursion, gpu)
    if package.lead is not None and not (package.python and package.lead.transforms):
        raise ValueError("a package leads to no Python step, or does not transform")
    hosted = table is not None
    bare = package.recursion is not None and _check_recursion(package)
    if (forest["operator"] == "columns") != hosted or bool(package.kernels) == (hosted or bare):
        raise ValueError(f"there are {len(package.kernels)} kernels of {forest['operator']}")
    if table is not None and len(table) != forest["n_outputs"]:
        raise ValueError(f"n_outputs is {forest['n_outputs']} and {len(table)}")
    read = len(feeds) or inputs.n_features
    if package.stages:
        read = _check_stages(package)
    elif package.columns:
        raise ValueError(f"columns are {package.columns!r:.100} of no matrix")
    if read != forest["n_features"]:
        raise ValueError(f"n_features is {forest['n_features']} and {read}")
    if output.n_outputs != forest["n_outputs"]:
        raise ValueError(f"n_outputs is {forest['n_outputs']} and {output.n_outputs}")
    if not gpu and package.kernels and not package.executor:
        raise ValueError("it has no executor for a CPU")
    if any((kernel.launch is not None) != gpu for kernel in package.all_kernels):
        raise ValueError(f"a kernel is not for {package.target.get('kind', 'a CPU')!r:.100}")
    dtypes = {kernel.dtype for kernel in package.kernels}
    if dtypes != {kernel.dtype for kernel in package.kernels if kernel.missing}:
        raise ValueError("no kernel takes missing values")
    for kernel in package.kernels:
        signature = kernel.signature
        if signature.outputs != output.n_outputs:
            raise ValueError(f"a kernel has {signature.groups} groups of {signature.width} outputs")
        if signature.n_features != read:
            raise ValueError(f"a kernel takes rows of {signature.n_features} columns")


def _check_recursion(package: Package) -> bool:
    """Check the reader of a recursive model's readout; return True if the readout is the output."""
    assert package.recursion is not None
    forest, width = package.forest, math.prod(package.recursion.shape)
    if package.input.n_features != width:
        raise ValueError(f"n_features is {package.input.n_features}, and the readout has {width} numbers")
    if package.parts.table is not None or package.parts.feeds or package.transforms:
        raise ValueError("a recursive model is in front of a pipeline")
    if not package.executor:
        raise ValueError("a recursive model has no executor for a CPU")
    if package.kernels:
        return False
    plain = forest["divisor"] == 1 and not any(forest["base_score"]) and not package.stages
    if not plain or forest["operator"] != "network" or forest["n_outputs"] != width:
        raise ValueError(f"no kernel makes {forest['n_outputs']} outputs of {width} columns")
    return True


def _check_stages(package: Package) -> int:
    """Check that each stage reads existing columns; return the number of columns of the last kernels."""
    count = package.n_read
    if package.forest["operator"] not in ("trees", "network"):
        raise ValueError(f"there are stages in front of {package.forest['operator']!r:.100}")
    for stage in package.stages:
        _check_columns(stage.columns, count)
        facts = stage.facts
        if facts["operator"] not in ("trees", "network") or facts["divisor"] != 1 or any(facts["base_score"]):
            raise ValueError(
                f"a stage computes {facts['operator']!r:.100}, divided by {facts['divisor']!r:.100}"
            )
        if facts["n_features"] != len(stage.columns):
            raise ValueError(f"a stage reads {len(stage.columns)} columns, not {facts['n_features']}")
        if not stage.kernels:
            raise ValueError("a stage has no kernel")
        for kernel in stage.kernels:
            signature = kernel.signature
            if (signature.n_features, signature.outputs) != (facts["n_features"], facts["n_outputs"]):
                raise ValueError(
                    f"a stage's kernel makes {signature.outputs} of {signature.n_features} columns"
                )
            if not kernel.missing:
                raise ValueError("a stage's kernel takes no missing values")
        count += facts["n_outputs"]
    _check_columns(package.columns, count)
    if not all(kernel.missing for kernel in package.kernels):
        raise ValueError("a kernel behind stages takes no missing values")
    return len(package.columns)


def _check_columns(columns: Sequence[int], count: int) -> None:
    if not columns or max(columns) >= count:
        raise ValueError(f"columns are {columns!r:.100} of {count}")
