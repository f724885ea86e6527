"""TVM's MetaSchedule on a workload, with our clock and with weights packed ahead.

TVM 0.27's default builder imports the matrix instructions of all processors, which takes a minute, in each
new worker; `build` does not. Its evaluator times by the wall clock; `evaluate` times one thread by
processor time, as the other search does, so that a busy machine does not mislead one of them.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import tvm
from tvm import s_tir, te
from tvm.s_tir import meta_schedule as ms

from benchmarks.tensor_programs.workloads import Workload


def target_of(target: dict[str, Any], threads: int) -> Any:
    """Return a target with a number of cores, which MetaSchedule's parallel loops need."""
    return tvm.target.Target({**target, "num-cores": threads})


def module_of(workload: Workload) -> Any:
    """Return a workload's module, its constants marked as free to be packed."""
    tensors = workload.program(*workload.args)
    function = te.create_prim_func(tensors)
    names = [str(parameter.name) for parameter in function.params]
    free = [names.index(name) for name in workload.constants]
    if free:
        function = function.with_attr("layout_free_buffers", free)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def build(mod: Any, target: Any, _: Any) -> Any:
    """Build a candidate whose constants are packed ahead."""
    return tvm.compile(_without_rewrite(mod), target=target).mod


def evaluate(module: Any, device: Any, config: Any, repeated: Any) -> list[float]:
    """Time a candidate: processor time of one thread, or wall time of several."""
    clock = time.thread_time if os.environ.get("TVM_NUM_THREADS") == "1" else time.perf_counter
    times = []
    for arguments in repeated:
        function = module["main"]
        function(*arguments)
        begin = clock()
        function(*arguments)
        number = max(1, int(0.01 / max(clock() - begin, 1e-7)))
        for _ in range(3):
            begin = clock()
            for _ in range(number):
                function(*arguments)
            times.append((clock() - begin) / number)
    return times


def search(workload: Workload, target: Any, threads: int, trials: int, folder: Path, seed: int = 1) -> None:
    """Search until the database in the folder has a number of trials; measured ones are kept."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    known = records(folder)
    if known >= trials:
        return
    _register_x86()
    ms.tune_tir(
        module_of(workload),
        target_of(target, threads),
        str(folder),
        trials - known,
        num_trials_per_iter=min(32, trials),
        builder=ms.builder.LocalBuilder(max_workers=2, f_build=build),
        runner=ms.runner.LocalRunner(timeout_sec=10, f_run_evaluator=evaluate),
        num_tuning_cores=2,
        seed=seed,
    )


def _register_x86() -> None:
    """Register the instructions that the rules for x86 name; those of all processors take a minute."""
    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(Path(s_tir.__file__).parent / "tensor_intrin")]
        sys.modules[name] = package
    importlib.import_module(f"{name}.x86")


def records(folder: Path) -> int:
    """Return the trials in a database, failures included."""
    path = folder / "database_tuning_record.json"
    return len(path.read_text().splitlines()) if path.exists() else 0


def best(workload: Workload, target: Any, threads: int, folder: Path) -> tuple[Any, Any] | None:
    """Return the best candidate's function, and the shape and dtype of its arguments; None without one."""
    _register_x86()
    database = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    schedule = database.query_schedule(module_of(workload), target_of(target, threads), "main")
    if schedule is None:
        return None
    mod = schedule.mod
    library = build(mod, target_of(target, threads), None)
    shapes = [
        ([int(extent) for extent in parameter.shape], str(parameter.dtype))
        for parameter in _without_rewrite(mod)["main"].params
    ]
    return library["main"], shapes


def _without_rewrite(mod: Any) -> Any:
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
