"""Find and rewrite radial kernels ``exp(-g |x - p|**2)`` of float32 rows that may be computed in float32.

Support vector machines and their kin add hundreds or thousands of kernel values. Float32 takes half the time
of float64 and has errors of about 1e-7 each, as long as distances do not cancel (so rows and points are first
centred on the points' mean) and exponents stay moderate. The errors of the sums, which stay in float64, are
estimated for rows near the model's points.
"""

from __future__ import annotations

import numpy as np

from hbtvm.operators.base import Constant, Node, rewrite
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.products import Contract

_LARGEST = 8.0
"""Upper bound of g times the largest squared distance from the mean. Exponents have errors of a few times
that times float32's relative error."""

_NOISE = 1.5e-7  # a kernel value's error

_SHARE = 3e-6
"""Upper bound of the sums' errors relative to their root mean square: a third of the promised tolerance."""

_SAMPLES = 256


def in_float32(output: Node) -> tuple[Node, frozenset[int]]:
    """Centre the kernels that may be computed in float32.

    Returns the output, and the ids of its nodes to compute in float32.
    """
    readers: dict[int, list[Node]] = {}
    single_ids: set[int] = set()

    def note(node: Node) -> Node:
        for input_ in node.inputs:
            readers.setdefault(id(input_), []).append(node)
        return node

    rewrite([output], note)

    def change(node: Node) -> Node:
        centred = _centred(node)
        if centred is not None:
            single_ids.update(id(centred_node) for centred_node in centred)
            return centred[0]
        return node

    chosen = {id(node) for node in _kernels(output, readers)}
    (changed,) = rewrite([output], lambda node: change(node) if id(node) in chosen else node)
    return changed, frozenset(single_ids)


def _kernels(output: Node, readers: dict[int, list[Node]]) -> list[Elementwise]:
    """Return the exponentials that may be computed in float32."""
    return [
        node
        for nodes in readers.values()
        for node in {id(input_): input_ for reader in nodes for input_ in reader.inputs}.values()
        if isinstance(node, Elementwise) and _may_round(node, readers)
    ]


def _parts(node: Node) -> tuple[Distance, float] | None:
    """Return the distances and the factor g of a kernel; None for other nodes."""
    if not isinstance(node, Elementwise) or node.function != "exp":
        return None
    (exponent,) = node.operands
    if not isinstance(exponent, Elementwise) or exponent.function != "multiply":
        return None
    away, factor = exponent.operands
    if isinstance(away, Constant):
        away, factor = factor, away
    if not isinstance(away, Distance) or not isinstance(factor, Constant) or factor.width != 1:
        return None
    if away.metric != "squared_euclidean" or away.scale is not None:
        return None
    return away, -float(factor.values[0])


def _may_round(node: Elementwise, readers: dict[int, list[Node]]) -> bool:
    parts = _parts(node)
    if parts is None:
        return False
    away, g = parts
    sums = readers.get(id(node), [])
    alone = all(len(readers[id(reader)]) == 1 for reader in (away, node.operands[0]))
    if not alone or not sums or not all(isinstance(reader, Contract) and reader.x is node for reader in sums):
        return False
    points = away.points - away.points.mean(axis=0)
    largest = float((points**2).sum(axis=1).max(initial=0.0))
    if not 0 < g * largest <= _LARGEST or not np.isfinite(points.astype(np.float32)).all():
        return False
    rng = np.random.default_rng(0)
    sample = points[rng.permutation(len(points))[:_SAMPLES]]
    rows = sample + 0.3 * points.std(axis=0) * rng.normal(size=sample.shape)
    values = np.exp(-g * Distance(away.x, points).reference(rows))
    for product in sums:
        assert isinstance(product, Contract)
        total = values @ product.weight
        noise = _NOISE * np.sqrt(values**2 @ product.weight**2).max(axis=0)
        if not (noise <= _SHARE * np.sqrt((total**2).mean(axis=0))).all():
            return False
    return True


def _centred(node: Node) -> tuple[Node, ...] | None:
    """Return a kernel over centred rows and points, then its parts to compute in float32."""
    parts = _parts(node)
    if parts is None:
        return None
    away, g = parts
    mean = away.points.mean(axis=0).astype(np.float32).astype(np.float64)
    rows = apply("round_float32", apply("subtract", away.x, mean))
    moved = Distance(rows, away.points - mean)
    exponent = apply("multiply", moved, -g)
    return apply("exp", exponent), exponent, moved
