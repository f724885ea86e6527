"""Checked descriptions of runs: searches, compilations and exports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import checks
from hbtvm.compiler.assemble import stamp
from hbtvm.compiler.building.compilers import is_cross
from hbtvm.compiler.candidates import fleet, tasks
from hbtvm.compiler.recursion.tree_gru import make_scorer
from hbtvm.compiler.targets import opencl as opencl_target
from hbtvm.compiler.targets.cuda import measured_here
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import DeviceError, InputError, InputTypeError, TargetError
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.files import recursive_kind
from hbtvm.frontends.kept import from_pipeline
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.passes.in_kernel import in_kernel
from hbtvm.graph.views import with_views
from hbtvm.logs.bounds import MOST_NAME, MOST_SIZE
from hbtvm.logs.store import Log
from hbtvm.options import CompileOptions, Dtype, SearchOptions
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.gpu.names import device_index, on_gpu
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.workload import Target
from hbtvm.strategies.trees.forest import DType
from hbtvm.tuning.choices import ENOUGH, ChoiceError, Choices, assembled
from hbtvm.tuning.settings import Settings
from hbtvm.words.printable import shown

TRIALS, TIME_BUDGET = 240, 100.0
"""Default candidates and seconds of a search; an export has the default number of candidates."""

BATCH_SIZES, RECURSIVE_SIZES = (1, 100, 10_000), (1, 10)
"""Default batch sizes in rows, and in structures for recursive models."""


@dataclass(frozen=True)
class Run:
    """The parameters of a compilation."""

    target: Target  # the machine that runs the code
    # Batch sizes in rows or, for a recursive model, structures; None for the model's default
    sizes: tuple[int, ...] | None
    threads: int  # most threads of a call
    device: int  # number of the GPU; 0 for CPUs
    dtype: DType  # type of leaf values
    strategies: tuple[str, ...] | None  # names of the strategies to try; None for all
    log: Log | None  # the tuning log
    max_bytes: int | None  # bytes to which a compressed pickle may expand
    sample: Structures | None  # structures to measure a recursive model on
    keep: bool  # whether pipelines' steps that can't be compiled stay in Python
    explain: bool  # whether packages have views (`hbtvm.graph.views`)

    @property
    def on_gpu(self) -> bool:
        """Whether the target is a GPU."""
        return on_gpu(self.target)

    @property
    def place(self) -> str | None:
        """The device that runs the model here; None for CPUs."""
        return f"{self.target['kind']}:{self.device}" if self.on_gpu else None

    def sizes_of(self, recursive: bool) -> tuple[int, ...]:
        """Return the batch sizes of a model."""
        return self.sizes or (RECURSIVE_SIZES if recursive else BATCH_SIZES)


@dataclass(frozen=True)
class SearchRun(Run):
    """A run that searches."""

    settings: Settings  # the settings of the search
    stops_early: bool = True  # whether to leave batch sizes whose calls are nearly all overhead
    # The fleet to measure on: a tracker's host, port and key; None for this machine
    fleet: fleet.Place | None = None


def compile_run(options: CompileOptions) -> Run:
    """Check the options of `hbtvm.compile`; errors as for `hbtvm.search`."""
    return Run(**_common(options))


def search_run(options: SearchOptions, model: Any = None) -> SearchRun:
    """Check the options of `hbtvm.search`; it also documents the errors. Records name the model."""
    settings = _settings(options, options.trials, options.time_budget)
    if model is not None:
        settings = replace(settings, stamp={**settings.stamp, "model": _name(model)})
    if options.trials is None:
        settings = replace(settings, enough=ENOUGH)
    place = fleet.place(options.rpc_tracker, options.rpc_key, options.threads)
    if place is not None and options.device is not None:
        raise InputError(
            f"a fleet measures on its own devices, so device can't be {options.device!r}; leave it out"
        )
    common = _common(options, threads=None if place is None else 1)
    if place is not None:
        _refuse_elsewhere(common["target"])
    if place is None:
        common["target"] = _measurable(common["target"], common["device"])
    return SearchRun(**common, settings=settings, stops_early=options.trials is None, fleet=place)


def _name(model: Any) -> str:
    """Return the name of a model's file, without its folder, or of its class."""
    name = Path(model).name if isinstance(model, str | os.PathLike) else type(model).__name__
    return shown(name, MOST_NAME)


def export_run(options: SearchOptions) -> SearchRun:
    """Check the options of `hbtvm.trials.export`, whose candidates another machine measures."""
    for name in ("time_budget", "rpc_tracker", "rpc_key", "sample"):
        if getattr(options, name) is not None:
            raise InputError(f"an export measures nothing, so it takes no {name}")
    if options.explain:
        raise InputError("an export writes no package, so it takes no explain; pass it to compile")
    settings = _settings(options, TRIALS if options.trials is None else options.trials, None)
    common = _common(options)
    _refuse_elsewhere(common["target"])
    return SearchRun(**common, settings=settings)


def _refuse_elsewhere(target: Target) -> None:
    """Raise `InputError` if candidates for a target can't be measured on another machine."""
    if target["kind"] == "opencl":
        raise InputError("candidates for OpenCL are measured on this machine only; tune where the device is")


def _common(options: CompileOptions, threads: int | None = None) -> dict[str, Any]:
    """Return the fields of `Run`; `threads` overrides the option."""
    target, device = _target(options.target, options.device)
    sizes = None if options.batch_sizes is None else _sizes(options.batch_sizes)
    if options.dtype not in ("float32", "float64"):
        raise InputError(f"dtype is {options.dtype!r}; expected 'float32' or 'float64'")
    if options.python_steps not in ("refuse", "keep"):
        raise InputError(f"python_steps is {options.python_steps!r}; expected 'refuse' or 'keep'")
    return {
        "target": target,
        "sizes": sizes,
        "threads": _threads(target, options.threads if threads is None else threads),
        "device": device,
        "dtype": options.dtype,
        "strategies": _strategies(options.strategies),
        "log": _log(options.log),
        "max_bytes": options.max_bytes,
        "sample": options.sample,
        "keep": options.python_steps == "keep",
        "explain": checks.flag("explain", options.explain),
    }


def _settings(options: SearchOptions, trials: int | None, time_budget: float | None) -> Settings:
    """Return the settings of a search; without limits it gets the default limits."""
    if time_budget is not None:
        time_budget = checks.seconds("time_budget", time_budget)
    elif trials is None:
        time_budget = TIME_BUDGET
    if trials is not None:
        trials = checks.whole("trials", trials, 1, 100)
    else:
        trials = TRIALS if options.time_budget is None else 10**9
    if options.progress is not None and not callable(options.progress):
        raise InputTypeError(f"progress is {checks.kind(options.progress)}; expected a function")
    return Settings(
        trials=trials,
        time_budget=time_budget,
        log=_log(options.log),
        seed=checks.whole("seed", options.seed, 0, 1),
        transfer=checks.flag("transfer", options.transfer),
        choices=_choices(options),
        progress=options.progress,
        describe=tasks.describe,
        make_scorer=make_scorer,
        stamp=stamp(),
    )


def _choices(options: SearchOptions) -> Choices:
    if options.diversity is not None:
        checks.whole("diversity", options.diversity, 1, 8)
    if options.epsilon is not None:
        checks.share("epsilon", options.epsilon)
    try:
        choices = assembled(
            options.preset,
            explorer=options.explorer,
            cost_model=options.cost_model,
            features=options.features,
            acquisition=options.acquisition,
            diversity=options.diversity,
            epsilon=options.epsilon,
        )
        choices.require()
    except ChoiceError as error:
        raise InputError(str(error)) from None
    return choices


def _sizes(batch_sizes: int | Sequence[int]) -> tuple[int, ...]:
    expected = "whole numbers of rows in a list, such as [1, 100]"
    sizes = checks.several("batch_sizes", batch_sizes, (int, np.integer), expected)
    if not sizes:
        raise InputError(f"batch_sizes is empty; expected {expected}")
    return tuple(dict.fromkeys(checks.whole("a batch size", rows, 1, 100, MOST_SIZE) for rows in sizes))


def _threads(target: Target, threads: int | None) -> int:
    if threads is not None:
        threads = checks.whole("threads", threads, 1, 2, checks.MOST_THREADS)
    if on_gpu(target):
        if threads not in (None, 1):
            raise InputError(f"a GPU is driven by one thread, so threads can't be {threads}")
        return 1
    return len(os.sched_getaffinity(0)) if threads is None else threads


def _target(target: str | dict[str, Any], device: str | int | None) -> tuple[Target, int]:
    """Resolve the target, and return it with the number of the GPU."""
    if not isinstance(target, str | Mapping):
        raise InputTypeError(
            f"target is {target!r}; expected 'cpu', 'cuda', 'opencl' or a TVM target as a text or dict"
        )
    kind = str(device).partition(":")[0]
    kind = kind if kind in ("cpu", "opencl") else "cuda"
    try:
        index = 0 if device is None or device == "cpu" else device_index(device, kind)
    except DeviceError as error:
        raise InputError(str(error)) from None
    machine = resolve(target, index)
    known = machine["kind"] if on_gpu(machine) else "cpu"
    numbered = isinstance(device, int) and known != "cpu"
    if not (device is None or numbered or kind == known):
        article = "a CPU" if known == "cpu" else "a GPU" if known == "cuda" else "for OpenCL"
        raise InputError(
            f"the target is {article}, so it can't be on device {device!r}; name both, as --target {kind} "
            f"--device {device}"
        )
    return machine, index


def _measurable(target: Target, device: int) -> Target:
    """Return the target that this machine measures.

    Raises `TargetError` if this machine can't run the target's code.
    """
    if on_gpu(target):
        return (measured_here if target["kind"] == "cuda" else opencl_target.measured_here)(target, device)
    lacking = missing_features(target)
    if lacking and is_cross(target):
        raise TargetError(
            f"tuning runs its candidates, but target {target['mcpu']} is {lacking[0]}, which this machine is "
            "not; tune on such a machine or on a fleet of them (with a tracker), or compile without a search"
        )
    if lacking:
        raise TargetError(
            f"tuning runs its candidates, but this machine lacks {', '.join(lacking)}, which target "
            f"{target['mcpu']} has; tune on such a machine, or compile without a search"
        )
    return target


def _strategies(strategies: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of strategies; `hbtvm.compiler.candidates.tasks.usable` checks that they exist."""
    if strategies is None:
        return None
    expected = "names in a list, such as ['gemm', 'bitvector']"
    names = checks.several("strategies", strategies, str, expected)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"strategies is {strategies!r}; expected {expected}")
    return names


def _log(log: Log | str | os.PathLike[str] | None) -> Log | None:
    return log if isinstance(log, Log) or log is None else Log(checks.path("log", log))


def read_model(model: Any, max_bytes: int | None = None, keep: bool = False) -> Graph:
    """Return the graph of a model object or file; errors as for `hbtvm.frontends`.

    `keep`: see `Run`.
    """
    if max_bytes is not None and max_bytes < 1:
        raise InputError(f"expected max_bytes of at least 1, got {max_bytes}")
    if isinstance(model, Graph):
        return model
    if isinstance(model, str | os.PathLike):
        if keep:
            raise InputError(
                "python_steps='keep' takes pipelines in memory, as a file may name any code: load the "
                "pipeline, and pass it"
            )
        return load_model(model, max_bytes=max_bytes)
    return from_pipeline(model) if keep else from_object(model)


def recursive_model(
    model: Any, dtype: Dtype = "float32", names: Sequence[str] | None = None
) -> RecursiveModel | None:
    """Return a recursive model, or the model in a ``.rec`` file; None for all others.

    Raises `InputError` if recursive models don't support the strategies or the type. Raises `ModelError` if
    the file is damaged.
    """
    recursive = model if isinstance(model, RecursiveModel) else None
    if isinstance(model, str | os.PathLike) and recursive_kind(model) == "rec":
        from hbtvm.recursive.model import load

        recursive = load(model)
    if recursive is not None and dtype != "float32":
        raise InputError(f"recursive models are computed in float32, so dtype can't be {dtype!r}")
    if recursive is not None and names is not None and set(names) != {"levels"}:
        raise InputError(f"recursive models have the strategy levels only, not {', '.join(names)}")
    return recursive


def graph_for(machine: Target, graph: Graph, dtype: Dtype, names: Sequence[str] | None) -> Graph:
    """Return the part of a graph that kernels compute; for GPUs, the host computes transforms if it can.

    ``names=["linear"]`` keeps the linear kernel.
    """
    graph = keep_second(graph, exact=dtype == "float64")
    if not on_gpu(machine):
        return graph if names is not None and "linear" in names and "fused" not in names else in_kernel(graph)
    if graph.host is not None:
        return replace(graph, anchor=graph.host, feeds=(), single=None, host=None)
    return graph


def graph_of(model: Any, run: Run) -> Graph:
    """Return the graph of a model object or file that kernels compute, with views if the run explains."""
    graph = read_model(model, run.max_bytes, run.keep)
    graph = with_views(graph) if run.explain else graph
    return graph_for(run.target, graph, run.dtype, run.strategies)


def refuse_columns(graph: Graph) -> None:
    """Raise `InputError` if the model only transforms, which no kernel computes."""
    if isinstance(graph.anchor, Columns):
        raise InputError(
            f"{graph.model}, the last step, only transforms, and no kernel does that: there is nothing to "
            "tune; use compile"
        )


def refuse_explain(explain: bool) -> None:
    """Raise `InputError` for views of a recursive model, which has none."""
    if explain:
        raise InputError("recursive models have no trees to explain, so explain can't be True")


def refuse_sample(sample: Structures | None) -> None:
    """Raise `InputError` for a sample of structures with a model of rows."""
    if sample is not None:
        raise InputError("sample holds structures, which only recursive models take")
