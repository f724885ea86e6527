"""`NetworkOperand`: a network prepared for kernels that read rows of one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Form, form
from hbtvm.operators.pointwise import FUNCTIONS
from hbtvm.schedules.cpu.product import TERMS
from hbtvm.schedules.network.nodes import is_product
from hbtvm.schedules.workload import NetworkWorkload, Workload
from hbtvm.strategies.network.kernel_values import in_float32
from hbtvm.strategies.network.rounded_sums import linear_function, pays
from hbtvm.strategies.network.single import singles
from hbtvm.strategies.trees.forest import DType

PARALLEL_WORK = 200_000  # operations of a call from which handing work to a thread may pay

FAMILIES = ("contract", "distance", "select", "pointwise")
"""Families of networks, which select strategies and separate logs and transfer between models."""


@dataclass(frozen=True, eq=False)
class NetworkOperand:
    """A network's forms and tables."""

    # Type of the rows. Kernels compute in float64, except for nodes whose form has ``"single"``.
    dtype: DType
    # `n_features`, `n_outputs`: columns of the rows, and scores
    n_features: int
    n_outputs: int
    nodes: tuple[Form, ...]  # the forms, each after its inputs; the last is the output
    tables: tuple[Mapping[str, np.ndarray], ...]  # each node's tables by name

    score_dtype: DType = "float64"  # type of the scores
    narrow_sums: bool = False  # whether products may sum in float32 (`hbtvm.strategies.network.rounded_sums`)
    missing: bool = True

    @property
    def value_dtype(self) -> DType:
        """Type of the terms of sums, which decides how exact scores are."""
        return "float32" if self.narrow_sums else "float64"

    @property
    def row_dtype(self) -> DType:
        """Type of the rows."""
        return self.dtype

    @property
    def family(self) -> str:
        """The dominant kind of work: one of `FAMILIES`."""
        kinds = {str(node["kind"]) for node in self.nodes}
        if "top_k" in kinds:
            return "select"
        if "distance" in kinds:
            return "distance"
        return "contract" if kinds & {"contract", "linear_sum", "imputation"} else "pointwise"

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of strategies' results that no configuration changes."""
        return {}

    @property
    def operations(self) -> int:
        """Estimated multiplications (or equivalents) for a row."""
        return sum(_operations(node) for node in self.nodes)

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `hbtvm.strategies.workload_of`; the result is a `NetworkWorkload`."""
        network: NetworkWorkload = {
            "family": self.family,
            "rows": rows,
            "threads": threads if rows * self.operations >= PARALLEL_WORK else 1,
            "features": self.n_features,
            "outputs": self.n_outputs,
            "widest": max(int(node["width"]) for node in self.nodes),
            "operations": self.operations,
            "nodes": [dict(node) for node in self.nodes],
            "dtype": self.dtype,
        }
        if self.score_dtype != "float64":
            network["scores"] = self.score_dtype
        if self.narrow_sums:
            network["narrow_sums"] = True
        return cast(Workload, network)


def _operations(node: Form) -> int:
    """Estimate a node's multiplications."""
    width = int(node["width"])
    match node["kind"]:
        case "contract" | "distance" | "imputation":
            name = "points" if node["kind"] == "distance" else "weight"
            first, second = node["tables"][name]
            return int(first) * int(second)
        case "linear_sum":
            terms = sum(int(node["tables"].get(name, [0])[0]) for name in ("weight", "code_feature"))
            return max(1, terms * width)
        case "coupling":
            # A few rounds, each of several operations for each pair of classes.
            return 20 * width * width
        case "reduce":
            return width * int(node["size"])
        case "top_k":
            return int(node["among"]) * int(node["k"])
        case "elementwise":
            return width * (10 if FUNCTIONS[node["function"]].slow else 1)
    return width


def make_network(
    network: Network,
    dtype: DType,
    score_dtype: DType = "float64",
    narrow: bool = False,
    narrow_sums: bool = False,
) -> NetworkOperand:
    """Return a network's operand for rows of a type.

    `score_dtype`: type of the scores.
    `narrow`: whether kernels for float32 rows compute in float32 where that gives the same numbers, or
        numbers well within 1e-5 of them (`hbtvm.strategies.network.kernel_values`).
    `narrow_sums`: whether products of float32 rows may sum in float32 where that pays
        (`hbtvm.strategies.network.rounded_sums`).
    """
    approximate: frozenset[int] = frozenset()
    if narrow and dtype == "float32":
        output, approximate = in_float32(network.output)
        network = Network(network.n_features, output)
    nodes = network.nodes
    names = {id(node): at for at, node in enumerate(nodes)}
    forms = [form(node, names) for node in nodes]
    rounds = any(node_form.get("function") == "round_float32" for node_form in forms)
    if narrow and dtype == "float32" and (rounds or score_dtype == "float32"):
        narrow_nodes = singles(nodes, approximate)
        forms = [
            {**node_form, "single": True} if at in narrow_nodes else node_form
            for at, node_form in enumerate(forms)
        ]
    tables = tuple(node.tables() for node in nodes)
    if narrow_sums and dtype == "float32" and is_product(forms):
        narrow_sums = pays(*linear_function(forms, tables), TERMS)
    else:
        narrow_sums = False
    return NetworkOperand(
        dtype, network.n_features, network.n_outputs, tuple(forms), tables, score_dtype, narrow_sums
    )
