"""`Network` and `Linear`: operators between rows and scores; the leaves that tie them to tables.

A front end states what an estimator computes as nodes (`hbtvm.operators`) over the table that it reads
(`TableRows`). `hbtvm.graph.lower_network` turns these leaves into nodes over the columns that a kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.graph.columns.table import Column, Made, RowOperation, Table
from hbtvm.graph.columns.table import side_by_side as joined
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.operators.base import Input, Leaf, Node, Unary, evaluate, in_order
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import LinearSum


@dataclass(frozen=True, eq=False)
class TableRows(Leaf):
    """The columns of a table.

    Attributes
    ----------
    table
        The columns.
    allow_nan, allow_inf
        Whether the reader accepts NaN, and infinities; else such rows are refused.
    """

    table: Table
    allow_nan: bool = False
    allow_inf: bool = False
    kind = "table"

    @property
    def width(self) -> int:
        return len(self.table)


@dataclass(frozen=True, eq=False)
class Trees(Unary):
    """Raw scores of trees, with base score and divisor applied.

    Attributes
    ----------
    x
        The trees' features, width `ensemble.n_features`.
    ensemble
        The trees.
    """

    ensemble: TreeEnsemble
    kind = "trees"

    @property
    def width(self) -> int:
        return int(self.ensemble.n_outputs)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return margins(self.ensemble, inputs[0].astype(self.ensemble.compare_dtype))

    def on_ensemble(self, ensemble: TreeEnsemble) -> Trees:
        """Return other trees on the same input."""
        return Trees(self.x, ensemble)


@dataclass(frozen=True, eq=False)
class Computed(RowOperation):
    """Columns that a network computes from tables, such as a projection.

    Attributes
    ----------
    inputs
        The tables of the leaves of `output` side by side, in the order of `leaves`.
    rows
        The leaf of `output`, if it has a single leaf.
    output
        The columns.
    narrow
        Whether the library returns float32 numbers for float32 rows.
    """

    inputs: Table
    rows: TableRows | None
    output: Node
    narrow: bool = False

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns."""
        return self.output.width

    def reference(self, x: np.ndarray) -> np.ndarray:
        first, at = 0, {}
        for leaf in leaves(self.output):
            at[id(leaf)] = slice(first, first + leaf.width)
            first += leaf.width
        values = evaluate([self.output], lambda leaf: x[:, at[id(leaf)]].astype(np.float64))[0]
        dtype = x.dtype if self.narrow else np.float64
        return np.ascontiguousarray(np.broadcast_to(values, (len(x), self.width)), dtype)


def leaves(*outputs: Node) -> list[TableRows]:
    """Return the tables that nodes are computed from, each once."""
    return [node for node in in_order(*outputs) if isinstance(node, TableRows)]


def computed_columns(output: Node) -> tuple[Column, ...]:
    """Return the columns of a node over any tables as columns of a table."""
    operation = Computed(joined([leaf.table for leaf in leaves(output)]), None, output)
    return tuple(Column(Made(operation, i)) for i in range(output.width))


@dataclass(frozen=True, eq=False)
class Network:
    """Operators from the columns that a kernel reads to scores.

    Attributes
    ----------
    n_features
        Number of columns of the input.
    output
        float64 scores, width O, over an `Input`.
    """

    n_features: int
    output: Node

    compare_dtype = "float64"
    divisor = 1.0

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return self.output.width

    @property
    def base_score(self) -> np.ndarray:
        """float64, shape (O,): zeros."""
        return np.zeros(self.n_outputs)

    @property
    def nodes(self) -> list[Node]:
        """The operators, each behind its inputs."""
        return in_order(self.output)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the scores of rows, shape (n, n_features): float64, shape (n, O)."""
        x = X.astype(np.float64)
        scores = evaluate([self.output], lambda leaf: x)[0]
        return np.ascontiguousarray(np.broadcast_to(scores, (len(X), self.n_outputs)))

    def facts(self) -> dict[str, Any]:
        """Facts for the runtime, and for descriptions."""
        return {
            "operator": "network",
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "compare_dtype": "float64",
            "base_score": self.base_score.tolist(),
            "divisor": 1.0,
            "operators": [node.kind for node in self.nodes if not isinstance(node, Input)],
        }


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model: a network of a single `LinearSum`, with a separate strategy for kernels.

    Attributes
    ----------
    sums
        Of numbers and codes of an `Input`.
    base_score
        float64, shape (O,): added to the sums.
    """

    sums: LinearSum
    base_score: np.ndarray

    compare_dtype = "float64"
    divisor = 1.0

    @property
    def n_features(self) -> int:
        """Number of columns of the input: numbers, and codes of categories as whole numbers."""
        return self.sums.x.width

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return self.sums.width

    def node(self) -> Node:
        """Return the scores."""
        return apply("add", self.sums, self.base_score) if self.base_score.any() else self.sums

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the scores of rows, shape (n, n_features): float64, shape (n, O)."""
        scores: np.ndarray = self.sums.reference(X.astype(np.float64)) + self.base_score
        return scores

    def facts(self) -> dict[str, Any]:
        """Facts for the runtime, and for descriptions."""
        return {
            "operator": "linear",
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "compare_dtype": "float64",
            "base_score": self.base_score.tolist(),
            "divisor": 1.0,
            "numbers": len(self.sums.feature),
            "categories": len(self.sums.sizes),
            "entries": len(self.sums.entries),
        }


def dense(weight: np.ndarray, intercept: np.ndarray) -> Linear:
    """Return ``rows @ weight + intercept``, float64, shapes (F, O) and (O,)."""
    columns, outputs = weight.shape
    none = np.zeros(0, np.int32), (), np.zeros((0, outputs)), False
    in_order = np.arange(columns, dtype=np.int32)
    weight = np.ascontiguousarray(weight)
    sums = LinearSum(Input(columns), in_order, np.zeros(columns), weight, np.zeros(weight.shape), *none)
    return Linear(sums, intercept)
