"""The model that a caller gives, and what of it kernels compute on a target."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from hbtvm.errors import InputError
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.files import recursive_kind
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.complement import keep_second
from hbtvm.graph.graph import Graph
from hbtvm.graph.in_kernel import in_kernel
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.workload import Target

Dtype = Literal["float32", "float64"]
"""Type of leaf values."""


def read_model(model: Any, max_bytes: int | None = None, trust: bool | None = None) -> Graph:
    """A model object or file, library left behind; errors as `hbtvm.frontends` raises them."""
    if trust is not None:
        warnings.warn(
            "trust=... is no longer needed: pickles are read as data, and nothing in them is run.",
            DeprecationWarning,
            stacklevel=3,
        )
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
    """A recursive model, given as such or as a ``.rec`` file; None for all others.

    Raises
    ------
    InputError
        If other strategies or another type are asked for than there are for such models.
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
    """What kernels compute there: on GPUs nothing of a pipeline that transforms, if the host can.

    Whoever asks for the strategy for weighted sums alone gets those.
    """
    graph = keep_second(graph, exact=dtype == "float64")
    if machine["kind"] != "cuda":
        return graph if names is not None and "linear" in names and "fused" not in names else in_kernel(graph)
    if graph.host is not None:
        return replace(graph, anchor=graph.host, feeds=(), single=None, host=None)
    return graph


def refuse_columns(graph: Graph) -> None:
    """Raise `InputError` for what no kernel computes."""
    if isinstance(graph.anchor, Columns):
        raise InputError(
            f"a {graph.model} as the last step transforms, which no kernel does; there is nothing to tune: "
            "use compile"
        )


def refuse_sample(sample: Structures | None) -> None:
    """Raise `InputError` for structures beside a model of rows."""
    if sample is not None:
        raise InputError("sample is of structures, which only recursive models are measured on")
