"""Read the caller's model, and choose the part of it that kernels compute on a target."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hbtvm.errors import InputError
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.files import recursive_kind
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.complement import keep_second
from hbtvm.graph.graph import Graph
from hbtvm.graph.in_kernel import in_kernel
from hbtvm.options import Dtype
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.workload import Target


def read_model(model: Any, max_bytes: int | None = None) -> Graph:
    """Return the graph of a model object or file; errors as of `hbtvm.frontends`."""
    if max_bytes is not None and max_bytes < 1:
        raise InputError(f"expected max_bytes of at least 1, got {max_bytes}")
    if isinstance(model, Graph):
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(model, max_bytes=max_bytes)
    return from_object(model)


def recursive_model(
    model: Any, dtype: Dtype = "float32", names: Sequence[str] | None = None
) -> RecursiveModel | None:
    """Return a recursive model, or the model in a ``.rec`` file; None for all others.

    Raises
    ------
    InputError
        If recursive models don't support the strategies or the type.
    ModelError
        If the file is damaged.
    """
    found = model if isinstance(model, RecursiveModel) else None
    if isinstance(model, str | os.PathLike) and recursive_kind(model) == "rec":
        from hbtvm.recursive.model import load

        found = load(model)
    if found is not None and dtype != "float32":
        raise InputError(f"recursive models are computed in float32, so dtype can't be {dtype!r}")
    if found is not None and names is not None and set(names) != {"levels"}:
        raise InputError(f"recursive models have the strategy levels only, not {', '.join(names)}")
    return found


def graph_for(machine: Target, graph: Graph, dtype: Dtype, names: Sequence[str] | None) -> Graph:
    """Return the part of a graph that kernels compute: on GPUs no transforms, where the host can do them.

    ``names=["linear"]`` keeps the linear kernel.
    """
    graph = keep_second(graph, exact=dtype == "float64")
    if machine["kind"] != "cuda":
        return graph if names is not None and "linear" in names and "fused" not in names else in_kernel(graph)
    if graph.host is not None:
        return replace(graph, anchor=graph.host, feeds=(), single=None, host=None)
    return graph


def refuse_columns(graph: Graph) -> None:
    """Raise `InputError` if the model only transforms, which no kernel computes."""
    if isinstance(graph.anchor, Columns):
        raise InputError(
            f"{graph.model}, the last step, only transforms, and no kernel does that: there is nothing to "
            "tune; use compile"
        )


def refuse_sample(sample: Structures | None) -> None:
    """Raise `InputError` for a sample of structures with a model of rows."""
    if sample is not None:
        raise InputError("sample holds structures, which only recursive models take")
