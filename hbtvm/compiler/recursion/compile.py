"""Compile or tune a recursive model: its kernels by batch size, the layers behind, the package of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.assemble import stamp
from hbtvm.compiler.building import cuda_toolkit
from hbtvm.compiler.building.cpu import executor, host_executor, require_compilers
from hbtvm.compiler.building.limited import results
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.recursion.head import LIBRARY, bare_output, head_of, width_of
from hbtvm.compiler.recursion.program import PROGRAM, write_study
from hbtvm.compiler.recursion.samples import check_sample, sample, sample_words, shape_of, taken
from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.errors import TargetError
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.logs.query import shipped
from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import Record, canonical, utc_now
from hbtvm.logs.store import Log
from hbtvm.logs.targets import target_key
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.recursive.entry import RecursionEntry, RecursionKernels
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Classes, Levels, classes_of
from hbtvm.tuning import session
from hbtvm.tuning.learning.transfer import translate
from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.result import Result
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Task
from hbtvm.words.quantities import count


@dataclass(frozen=True)
class Work:
    """A recursive model, ready to be compiled or tuned."""

    # `model`, `classes`: the model, and its cell for each class of nodes
    model: RecursiveModel
    classes: Classes
    # `target`, `threads`: the machine, and most threads of a call
    target: Target
    threads: int
    structures: Mapping[int, Structures]  # typical structures, by batch size
    sample: str = ""  # their description

    def workload(self, rows: int) -> dict[str, Any]:
        """Return the workload of calls with `rows` structures, a part of a log's key."""
        nodes, levels = shape_of(self.structures[rows])
        return Levels().workload(self.classes, rows, nodes, levels, self.threads)


def work_of(
    model: RecursiveModel,
    target: Target,
    sizes: Sequence[int],
    threads: int,
    sampled: Structures | None = None,
) -> Work:
    """Prepare a model.

    `sizes`: structures of a call, by batch size.
    `sampled`: structures to measure on; by default, random structures.
    Raises `TargetError` if there are no kernels for such a target. Raises `InputError` if the given
    structures don't fit the model.
    """
    if target["kind"] not in ("llvm", "cuda"):
        raise TargetError(
            "recursive models have kernels for CPUs and NVIDIA GPUs only; compile the model for one of these"
        )
    if sampled is not None:
        check_sample(model.cell, sampled)
    structures = {
        rows: sample(model.cell, rows, seed=rows) if sampled is None else taken(sampled, rows, seed=rows)
        for rows in sizes
    }
    words = sample_words(model.cell, sampled)
    return Work(model, classes_of(model.cell), target, threads, structures, words)


def chosen(work: Work, rows: int, records: Sequence[Record]) -> tuple[Config, float | None, str]:
    """Return a configuration without a search, its measured time, and its origin.

    It is the fastest of the records of this workload and target, by the rule of `hbtvm.logs.ranking`, else a
    default.
    """
    levels, workload = Levels(), work.workload(rows)
    key = canonical(workload), target_key(work.target)
    space, default = levels.space(workload, work.target), levels.default(workload, work.target)
    for record in ranking(
        record
        for record in records
        if record.strategy == levels.name and (record.workload_key, record.target_key) == key
    ):
        config = translate(record.config, space, default)
        if config is not None:
            return config, record.cost, "log"
    return default, None, "default"


def tasks_of(work: Work, sizes: Sequence[int], folder: Path, device: int = 0) -> list[Task]:
    """Return a tuning task for each batch size; write the workers' files to `folder`.

    `device`: number of the GPU that candidates run on.
    """
    write_study(folder, work.model, work.classes, work.structures, _executor(work.target))
    levels, tasks = Levels(), []
    for rows in sizes:
        workload = work.workload(rows)
        group = "1 structure" if rows == 1 else f"{rows:,} structures"
        tasks.append(
            Task(
                name=f"{group}, {levels.name}",
                workload=workload,
                target=work.target,
                strategy=levels.name,
                group=group,
                space=levels.space(workload, work.target),
                describe=partial(_described, work),
                program=PROGRAM,
                payload={
                    "folder": str(folder),
                    "workload": workload,
                    "target": work.target,
                    "device": device,
                },
                initial=(levels.default(workload, work.target),),
            )
        )
    return tasks


def _described(work: Work, config: Config) -> Nest:
    """Return the loops of a configuration's programs, for cost models that learn on them."""
    # Imported here, because only searches that learn on loops need it.
    from hbtvm.compiler.features.loop_nest import loop_nest

    kernels = Levels().kernels(work.classes, config, work.target)
    gpu = work.target["kind"] == "cuda"
    steps = (*kernels.inner.main, *kernels.leaf.main) if kernels.persistent is None else (kernels.persistent,)
    statements: list[Any] = []
    for step in steps:
        module = tvm.IRModule({"main": kernels.functions[step.function]})
        statements += loop_nest(module, {"tiles": 1, "blocks": step.panels}, gpu=gpu)
    return tuple(statements)


Head = Callable[[Graph, Target, tuple[int, ...]], Package]
"""From the graph of the layers, a target and batch sizes to their package."""


def _kernels(
    work: Work, rows: int, config: Config, seconds: float | None, built: tuple[bytes, bytes] | None = None
) -> Callable[[], RecursionKernels]:
    """Return the call that builds a batch size's kernels, or only describes built kernels."""
    workload = work.workload(rows)
    return partial(kernels_of, work.classes, workload, config, work.target, seconds=seconds, built=built)


def _recursion(work: Work, kernels: Sequence[RecursionKernels]) -> RecursionEntry:
    model = work.model
    return entry_of(model.cell, work.classes, model.readout, tuple(kernels), model.vocabulary)


def compiled(work: Work, log: Log | None, head: Head) -> Package:
    """Return the package of a model without a search.

    `log`: the tuning log to choose kernels from, besides the shipped records.
    `head`: compiles the layers behind.
    Raises `BuildError` if there is no C compiler.
    """
    records: list[Record] = shipped()
    if log is not None:
        records += log.read().records
    require_compilers(work.target, linked=work.target["kind"] != "cuda")
    configs = {rows: chosen(work, rows, records) for rows in work.structures}
    tuning = {"trials": 0, "started": utc_now(), "origins": [config[2] for config in configs.values()]}
    calls = {rows: _kernels(work, rows, *configs[rows][:2]) for rows in configs}
    logged = {} if log is None else {rows: call for rows, call in calls.items() if configs[rows][2] == "log"}
    built = dict(
        zip(
            logged,
            results([(f"levels, {count(rows, 'structure')}", call) for rows, call in logged.items()]),
            strict=True,
        )
    )
    kernels = [built[rows] if rows in built else call() for rows, call in calls.items()]
    return _package(work, _recursion(work, kernels), tuning, head)


def searched(work: Work, settings: Settings, head: Head, device: int = 0) -> tuple[Package | None, Result]:
    """Search for a model's fastest kernels.

    `device`: as in `tasks_of`.
    Returns the package, None if nothing was measured, and the search's result. Raises `BuildError` if there
    is no C compiler, or none for the GPU.
    """
    on_gpu = work.target["kind"] == "cuda"
    require_compilers(work.target, linked=not on_gpu)
    sizes = tuple(work.structures)
    started, artifacts = utc_now(), Artifacts()
    with Scratch("hbtvm-") as folder:
        result = session.tune(tasks_of(work, sizes, folder, device), replace(settings, artifacts=artifacts))
    winners = [group.best for group in result.groups.values()]
    if not any(winners):
        return None, result
    records = [*shipped(), *result.history]
    kernels, origins = [], []
    for rows, best in zip(sizes, winners, strict=True):
        built = None
        if best is None:
            config, seconds, origin = chosen(work, rows, records)
        else:
            config, seconds, origin = best.config, best.time, "tuned"
            # (A package's code also runs on other GPUs, unlike a candidate's.)
            library = None if on_gpu else artifacts.library(best.task, config)
            if library is not None:
                built = library, artifacts.object(best.task, config)
        kernels.append(_kernels(work, rows, config, seconds, built)())
        origins.append(origin)
    tuning = {**result.provenance(settings.seed, started), "origins": origins}
    return _package(work, _recursion(work, kernels), tuning, head), result


def _executor(target: Target) -> bytes:
    """Return the executor; with a GPU, too, a CPU finds levels and reads results."""
    return host_executor() if target["kind"] == "cuda" else executor(target)


def _package(work: Work, recursion: RecursionEntry, tuning: dict[str, Any], head: Head) -> Package:
    """Return the package of the recursion, and of the layers behind, if any."""
    own_executor = _executor(work.target)
    graph = head_of(work.model)
    if graph is not None:
        package = head(graph, work.target, tuple(work.structures))
        return replace(package, recursion=recursion, tuning=tuning, executor=own_executor)
    model = work.model
    columns = width_of(model)
    facts = {
        "operator": "network", "n_features": columns, "n_outputs": columns, "compare_dtype": "float32",
        "base_score": [0.0] * columns, "divisor": 1.0, "operators": [],
    }  # fmt: skip
    return Package(
        library=LIBRARY,
        model=model.cell.name,
        input=InputSpec(columns),
        output=bare_output(model),
        forest=facts,
        target=work.target,
        kernels=(),
        tuning=tuning,
        tvm_version=stamp()["tvm"],
        hbtvm_version=stamp()["hbtvm"],
        cuda_version=cuda_toolkit.toolkit_version() if work.target["kind"] == "cuda" else "",
        executor=own_executor,
        recursion=recursion,
    )
