"""Small networks, one for each operator, and kernels of networks run as the product does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm_ffi

from hbtvm.compiler.candidates.program import make_executor
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input, Node, constant
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.distances import Distance, Take, TopK
from hbtvm.operators.imputation import Imputation
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract, LinearSum, Monomials
from hbtvm.operators.shapes import Reduce, Repeat, Select, concat, reduce, select
from hbtvm.operators.tables import Bucketize, Interpolate, OneHot, lookup
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies import make_network, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.kernels import CPU, build_unchecked

F = 7
"""Columns of the rows: the last two are codes, 0 to 3."""


def rows(n: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Rows for `NETWORKS`; the first few have NaN in the first column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, F))
    X[:, 5:] = rng.integers(0, 4, (n, 2))
    X[: n // 8, 0] = np.nan
    return X.astype(dtype)


def run(
    network: Network,
    config: Config,
    X: np.ndarray,
    batch: int = 1000,
    scores: DType = "float64",
    narrow: bool = False,
    target: Target = CPU,
    name: str = "fused",
) -> np.ndarray:
    """Scores of a kernel of a strategy; `scores`, `narrow` (also of sums) as for `make_network`."""
    dtype: DType = "float32" if X.dtype == np.float32 else "float64"
    operand = make_network(network, dtype, scores, narrow, narrow)
    strategy = strategies_on(target, operand.family)[name]
    workload = workload_of(operand, batch)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        build_unchecked(strategy, workload, config, target, path)
        function = tvm_ffi.load_module(path)["main"]
        return make_executor(function, operand, strategy, workload, config, 1).run(np.ascontiguousarray(X))


def default(network: Network, batch: int) -> Config:
    """The default configuration for so many rows."""
    operand = make_network(network, "float64")
    strategy = strategies_on(CPU, operand.family)["fused"]
    return strategy.default(workload_of(operand, batch), CPU)


def _numbers(x: Node) -> Node:
    return select(x, range(1, 5))


def _elementwise(x: Node) -> Node:
    n = _numbers(x)
    parts = [
        apply("multiply", apply("subtract", n, np.array([0.1, 0.2, 0.3, 0.4])), 2.0),
        apply("where", apply("isnan", select(x, [0])), 3.0, select(x, [0])),
        apply("maximum", apply("minimum", n, 0.5), -0.5),
        apply("power", apply("absolute", n), 1.5),
        apply("cbrt", n),
        apply("tanh", apply("divide", n, select(x, [1]))),
    ]
    return concat(parts)


def _softmax(x: Node) -> Node:
    rng = np.random.default_rng(1)
    scores = Contract(_numbers(x), rng.normal(size=(4, 3)))
    powers = apply("exp", apply("subtract", scores, reduce("max", scores)))
    shares = apply("divide", powers, reduce("sum", powers))
    return concat([reduce("argmax", shares), shares, scores])


def _machine(x: Node) -> Node:
    rng = np.random.default_rng(2)
    away = Distance(_numbers(x), rng.normal(size=(301, 4)))
    kernel = apply("exp", apply("multiply", away, -0.5))
    return apply("add", Contract(kernel, rng.normal(size=(301, 3))), np.array([0.1, 0.2, 0.3]))


def _nearest(x: Node) -> Node:
    rng = np.random.default_rng(3)
    found = TopK(Distance(_numbers(x), np.repeat(rng.normal(size=(20, 4)), 2, axis=0)), 3)
    values = Take(select(found, range(3, 6)), rng.normal(size=(40, 2)))
    return concat([found, reduce("sum", values, 2)])


def _tables(x: Node) -> Node:
    rng = np.random.default_rng(4)
    n = _numbers(x)
    edges = np.sort(rng.normal(size=(4, 5)), axis=1)
    many = np.sort(rng.normal(size=(4, 40)), axis=1)
    edges[1, 3:] = np.inf
    points = np.sort(rng.normal(size=(4, 30)), axis=1)
    points[2, 25:] = points[2, 24]
    return concat(
        [
            Bucketize(n, edges),
            Bucketize(n, many, "left"),
            Interpolate(n, points, rng.normal(size=(4, 30))),
            Interpolate(select(x, [0]), points[:1, :4], rng.normal(size=(1, 4))),
            lookup(x, [5, 6, 5], [rng.normal(size=4), rng.normal(size=3), rng.normal(size=5)]),
            OneHot(x, np.array([5, 5, 6], np.int32), np.array([0.0, 3.0, 2.0])),
        ]
    )


def _metrics(x: Node) -> Node:
    rng = np.random.default_rng(5)
    points = rng.normal(size=(5, 4))
    lacking = points.copy()
    lacking[0, 1] = lacking[1] = np.nan
    n = _numbers(x)
    with_nan = select(x, [0, 1, 2, 3])
    return concat(
        [
            Distance(n, points, "manhattan"),
            Distance(n, points, "chebyshev"),
            Distance(n, points, "minkowski", p=3.0),
            Distance(n, points, scale=np.abs(points)),
            Distance(with_nan, lacking, "nan_euclidean"),
        ]
    )


def _shapes(x: Node) -> Node:
    n = _numbers(x)
    grid = apply("multiply", Repeat(n, 3), Repeat(select(x, [1, 2, 3]), 4, tiled=True))
    return concat(
        [
            Select(x, np.array([6, 1, 1, 3], np.int32)),
            reduce("sum", grid, 4),
            reduce("product", grid, 3),
            Reduce("argmin", grid, 2),
            reduce("min", grid, 6),
            Monomials(n, np.array([[0, 4], [1, 1], [2, 3], [4, 4]], np.int32)),
        ]
    )


def _linear(x: Node) -> Node:
    rng = np.random.default_rng(6)
    total = LinearSum(
        x,
        np.array([0, 2, 3], np.int32),
        np.array([0.5, 0.0, -1.0]),
        rng.normal(size=(3, 2)),
        rng.normal(size=(3, 2)),
        np.array([5, 6], np.int32),
        (4, 4),
        rng.normal(size=(8, 2)),
    )
    return apply("sigmoid", apply("add", total, constant([0.1, 0.2])))


def _layers(x: Node) -> Node:
    rng = np.random.default_rng(7)
    hidden = apply("relu", apply("add", Contract(_numbers(x), rng.normal(size=(4, 50))), rng.normal(size=50)))
    second = apply("tanh", apply("add", Contract(hidden, rng.normal(size=(50, 20))), rng.normal(size=20)))
    return Contract(second, rng.normal(size=(20, 1)))


def _imputation(x: Node) -> Node:
    rng = np.random.default_rng(8)
    marks = apply("isnan", select(x, range(4)))
    missing = apply("maximum", marks, apply("greater", select(x, [1, 2, 3, 4]), 1.0))
    begin = apply("where", marks, 0.5, select(x, range(4)))
    steps = 9
    column, weight = np.arange(steps, dtype=np.int32) * 3 % 4, rng.normal(size=(steps, 4))
    weight[np.arange(steps), column] = 0.0
    low = np.where(np.arange(steps) < 4, -np.inf, -1.0)
    found = Imputation(begin, missing, column, weight, rng.normal(size=steps), low, low + 2.0).checked()
    every = Imputation(begin, marks, column[:4], weight[:4], np.ones(4), low[:4], -low[:4]).checked()
    return concat([found, reduce("sum", found), every])


def _coupled(x: Node) -> Node:
    rng = np.random.default_rng(9)
    pairs = apply("sigmoid", Contract(_numbers(x), 2.0 * rng.normal(size=(4, 7))))
    return concat([Coupling(select(pairs, range(6)), 4).checked(), Coupling(select(pairs, [6]), 2).checked()])


NETWORKS: dict[str, Callable[[Node], Node]] = {
    "elementwise": _elementwise,
    "softmax": _softmax,
    "machine": _machine,
    "nearest": _nearest,
    "tables": _tables,
    "metrics": _metrics,
    "shapes": _shapes,
    "linear": _linear,
    "layers": _layers,
    "imputation": _imputation,
    "coupled": _coupled,
}
"""From the rows to an output, by name."""


def network(name: str) -> Network:
    """One of `NETWORKS`."""
    return Network(F, NETWORKS[name](Input(F)))
