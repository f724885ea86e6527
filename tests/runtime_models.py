"""Packages with real kernels, compiled for this machine, for the tests of the runtime."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import build_kernel, executor, strip_object
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.runtime.package.file import KernelEntry, Package, anchor_facts, pipeline_fields
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.tuning.measuring.program import OBJECT

TARGET = resolve("cpu")


def kernel(
    graph: Graph,
    rows: int,
    *,
    dtype: Any = "float32",
    strategy: str = "perfect_tree_traversal",
    target: Any = None,
    **entry: Any,
) -> KernelEntry:
    """Return a kernel with a strategy's default schedule; `entry` overrides fields, `config` knobs."""
    target = target or TARGET
    forest = make_forest(graph.anchor, dtype, "float64" if dtype == "float64" else "float32")
    workload = workload_of(forest, rows)
    how = STRATEGIES[strategy]
    config = {**how.default(workload, target), **entry.pop("config", {})}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.so")
        build_kernel(how, workload, config, target, str(path))
        library, linked = path.read_bytes(), Path(f"{path}{OBJECT}").read_bytes()
    return replace(
        entry_of(forest, how, workload, config, library, object_file=strip_object(linked, target)), **entry
    )


def package(graph: Graph, *kernels: KernelEntry, **fields: Any) -> Package:
    """Return a package of kernels of a model; `fields` overrides fields."""
    given: dict[str, Any] = {
        "library": graph.library,
        "model": graph.model,
        "input": graph.input,
        "output": graph.output,
        "forest": anchor_facts(graph.anchor),
        **pipeline_fields(graph),
        "target": TARGET,
        "kernels": kernels,
        "tuning": {"trials": 0},
        "executor": executor(TARGET) if fields.get("target", TARGET)["kind"] == "llvm" else b"",
    }
    return Package(**{**given, **fields})


@functools.cache
def trained(name: str) -> tuple[Any, Graph]:
    """Return a model of `models.ZOO`, and its graph."""
    from tests.models import ZOO

    model = ZOO[name]()
    return model, from_object(model)


@functools.cache
def compiled(name: str, dtypes: tuple[str, ...] = ("float32",)) -> Package:
    """Return a package of a model of `models.ZOO`: kernels for one row and for many."""
    graph = trained(name)[1]
    kernels = [kernel(graph, rows, dtype=dtype) for dtype in dtypes for rows in (1, 64)]
    return package(graph, *kernels)


def random_rows(n: int, columns: int = 4, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Return rows of normally distributed numbers, C-contiguous."""
    return np.random.default_rng(seed).normal(size=(n, columns)).astype(dtype)
