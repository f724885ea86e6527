"""Descriptions of candidates: the loops of their lowered programs, called as executors call them."""

from __future__ import annotations

from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Strategy

CHUNKS_PER_THREAD = 4  # ``HBTVM_CHUNKS_PER_THREAD`` of the executor


def describe_kernel(strategy: Strategy, workload: Workload, gpu: bool, config: Config) -> Nest:
    """Lower a configuration's kernel and describe its loops, for a call with all of a workload's rows.

    If threads share rows or trees (see ``hbtvm/native/executor/run.c``), their calls are the outermost loop.
    """
    # Imported here, because only searches that learn on loops need it.
    from hbtvm.compiler.features.loop_nest import loop_nest

    sizes = strategy.sizes(workload, config)
    parallel, threads = config.get("parallel", "none"), workload["threads"]
    calls, shared = 1, ""
    if parallel == "rows":
        shared = "tiles"
        calls = min(sizes[shared] // int(config["grain"]), CHUNKS_PER_THREAD * threads)
    elif parallel == "trees":
        shared = "tree_tiles"
        calls = min(sizes[shared], threads)
    calls = max(calls, 1)
    if shared:
        sizes[shared] = -(-sizes[shared] // calls)
    return loop_nest(strategy.module(workload, config), sizes, gpu=gpu, calls=calls, shared=shared)
