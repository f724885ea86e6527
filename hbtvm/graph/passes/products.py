"""Merge products with products, scales, sums, concatenations, one-hot columns and look-ups around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.passes.sweep import Readers
from hbtvm.operators.base import Constant, Node, in_order, rewrite
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.products import Contract, LinearSum
from hbtvm.operators.shapes import Concat, Select, concat
from hbtvm.operators.tables import Bucketize, Lookup, OneHot

_MOST_ENTRIES = 1 << 22  # bound of the entries of a product's tables


@dataclass(frozen=True)
class _Scaled:
    """``x * factor + offset``, with numbers for each column."""

    x: Node
    factor: np.ndarray
    offset: np.ndarray

    @property
    def shifts(self) -> bool:
        """Whether there is an offset."""
        return bool(self.offset.any())


def _scaled(node: Node) -> _Scaled | None:
    """Return a node as ``x * factor + offset``; None if it has another form, or an infinite constant."""
    if not isinstance(node, Elementwise):
        return None
    if node.function == "negative":
        return _Scaled(node.operands[0], np.full(node.width, -1.0), np.zeros(node.width))
    if node.function not in ("add", "subtract", "multiply", "divide"):
        return None
    first, second = node.operands
    turned = isinstance(first, Constant)
    x, other = (second, first) if turned else (first, second)
    if x.width != node.width or isinstance(x, Constant) or not isinstance(other, Constant):
        return None
    values = np.broadcast_to(other.values, node.width)
    ones, zero = np.ones(node.width), np.zeros(node.width)
    match node.function:
        case "multiply":
            result = _Scaled(x, values, zero)
        case "divide" if not turned:
            with np.errstate(all="ignore"):
                result = _Scaled(x, 1.0 / values, zero)
        case "add":
            result = _Scaled(x, ones, values)
        case "subtract":
            result = _Scaled(x, -ones, values) if turned else _Scaled(x, ones, -values)
        case _:
            return None
    return result if np.isfinite(result.factor).all() and np.isfinite(result.offset).all() else None


_MOST_TERMS = 64  # bound of a sum's terms: each sum of a chain is visited, which takes quadratic time


def product(node: Node, readers: Readers) -> Node:
    """Merge a product, or arithmetic on products, with its inputs."""
    if isinstance(node, Contract):
        return _of_product(node, readers)
    if isinstance(node, Elementwise):
        return _summed(node, readers) if node.function == "add" else _behind_product(node, readers)
    return node


def _summed(node: Elementwise, readers: Readers) -> Node:
    """Merge terms of a sum: products of the same columns, products of tables' columns, and constants."""
    terms = _terms(node, readers)
    products: dict[Any, list[Contract]] = {}
    constants, rest = list[np.ndarray](), list[Node]()
    for term in terms:
        if isinstance(term, Constant):
            constants.append(np.broadcast_to(term.values, node.width))
        elif isinstance(term, Contract):
            x = term.x
            key = (x.allow_nan, x.allow_inf) if isinstance(x, TableRows) else id(x)
            products.setdefault(key, []).append(term)
        else:
            rest.append(term)
    if len(constants) < 2 and len(products) + len(rest) + len(constants) == len(terms):
        return node
    if not products:
        # Sums of other numbers stay in their order: their last bits may decide.
        return node
    parts = [_joined(group) for group in products.values()] + rest
    if constants:
        parts.append(Constant(np.sum(constants, axis=0)))
    return reduce(lambda a, b: apply("add", a, b), parts)


def _terms(node: Elementwise, readers: Readers) -> list[Node]:
    """Return the terms of a sum, from left to right; the sum itself if they are more than `_MOST_TERMS`."""
    terms, stack = list[Node](), list[Node]([node])
    while stack:
        if len(terms) + len(stack) > _MOST_TERMS:
            return [node]
        term = stack.pop()
        if isinstance(term, Elementwise) and term.function == "add" and (term is node or readers(term) == 1):
            first, second = term.operands
            if first.width == second.width or isinstance(second, Constant):
                stack += [second, first]
                continue
        terms.append(term)
    return terms


def _joined(products: Sequence[Contract]) -> Contract:
    """Return the sum of products of the same node, or of tables."""
    first, weights = products[0], [product.weight for product in products]
    if len(products) == 1:
        return first
    if all(product.x is first.x for product in products):
        return Contract(first.x, np.sum(weights, axis=0))
    leaves = [product.x for product in products if isinstance(product.x, TableRows)]
    table = Table(tuple(column for leaf in leaves for column in leaf.table.columns))
    rows = TableRows(table, leaves[0].allow_nan, leaves[0].allow_inf)
    return Contract(rows, np.concatenate(weights))


def _of_product(node: Contract, readers: Readers) -> Node:
    x, weight = node.x, node.weight
    if isinstance(x, Contract):
        features, middle, outputs = len(x.weight), x.width, node.width
        saved = middle * outputs + (features * middle if readers(x) == 1 else 0)
        return Contract(x.x, x.weight @ weight) if features * outputs <= saved else node
    if isinstance(x, Concat):
        return _of_parts(node, x)
    if isinstance(x, OneHot | Lookup):
        return _entries(node, x)
    scaled = _scaled(x)
    # An offset in front of a product keeps numbers near 0, which saves digits; behind another product, the
    # digits are lost already.
    if scaled is None or (scaled.shifts and not isinstance(scaled.x, Contract)):
        return node
    result: Node = Contract(scaled.x, scaled.factor[:, None] * weight)
    return apply("add", result, scaled.offset @ weight) if scaled.shifts else result


def _behind_product(node: Elementwise, readers: Readers) -> Node:
    """Merge arithmetic on a product into its weights, and an offset."""
    outer = _scaled(node)
    if outer is None:
        return node
    inner = _scaled(outer.x)
    if isinstance(outer.x, Contract) and not outer.shifts and readers(outer.x) == 1:
        return Contract(outer.x.x, outer.x.weight * outer.factor)
    if inner is None or not isinstance(inner.x, Contract) or readers(outer.x) > 1 or readers(inner.x) > 1:
        return node
    factor, offset = inner.factor * outer.factor, inner.offset * outer.factor + outer.offset
    return apply("add", Contract(inner.x.x, inner.x.weight * factor), offset)


def _merges(node: Node) -> bool:
    """Return whether a product of a node can be merged with the node."""
    if isinstance(node, Contract | OneHot | Lookup | Constant):
        return True
    scaled = _scaled(node)
    return scaled is not None and (isinstance(scaled.x, Contract) or not scaled.shifts)


def _of_parts(node: Contract, x: Concat) -> Node:
    parts = x.parts
    if not any(map(_merges, parts)):
        return node
    ends = np.cumsum([part.width for part in parts])
    weights = [node.weight[end - part.width : end] for part, end in zip(parts, ends.tolist(), strict=True)]
    merged = [i for i, part in enumerate(parts) if _merges(part)]
    rest = [i for i in range(len(parts)) if i not in merged]
    terms: list[Node] = [Contract(parts[i], weights[i]) for i in merged]
    if rest:
        terms.append(Contract(concat([parts[i] for i in rest]), np.concatenate([weights[i] for i in rest])))
    return reduce(lambda a, b: apply("add", a, b), terms)


def _entries(node: Contract, x: OneHot | Lookup) -> Node:
    """Return a product of one-hot columns, or of look-ups, as sums of entries of tables."""
    codes, outputs = x.x, node.width
    if isinstance(x, OneHot):
        whole = np.all((x.value >= 0) & (x.value == np.floor(x.value)))
        # Other nodes may have values other than codes.
        if not (isinstance(codes, Bucketize) or not codes.inputs) or not whole:
            return node
    used = np.unique(x.column)
    tables = []
    for column in used.tolist():
        places = np.flatnonzero(x.column == column)
        if isinstance(x, OneHot):
            # The last entry serves all codes above the largest value.
            size = int(x.value[places].max()) + 2
            table = np.zeros((size, outputs)) if size * outputs <= _MOST_ENTRIES else None
        else:
            size = int(x.last[places].max()) + 1
            table = np.zeros((size, outputs)) if np.all(x.last[places] == size - 1) else None
        if table is None or size * outputs * len(used) > _MOST_ENTRIES:
            return node
        for i in places.tolist():
            if isinstance(x, OneHot):
                table[int(x.value[i])] += node.weight[i]
            else:
                table += x.entries[x.first[i] : x.first[i] + size, None] * node.weight[i]
        tables.append(table)
    none = np.zeros((0, outputs))
    return LinearSum(
        codes,
        np.zeros(0, np.int32),
        np.zeros(0),
        none,
        none,
        used.astype(np.int32),
        tuple(map(len, tables)),
        np.concatenate(tables),
        False,
    )


def side_by_side(outputs: Sequence[Node]) -> tuple[list[Node], int]:
    """Join products of the same node.

    Returns the outputs, and the number of products saved.
    """
    groups: dict[int, list[Contract]] = {}
    for node in in_order(*outputs):
        if isinstance(node, Contract):
            groups.setdefault(id(node.x), []).append(node)
    several = [group for group in groups.values() if len(group) > 1]
    place = {id(product.weight): (group, i) for group in several for i, product in enumerate(group)}
    wide: dict[int, Node] = {}

    def change(node: Node) -> Node:
        if not isinstance(node, Contract) or id(node.weight) not in place:
            return node
        group, i = place[id(node.weight)]
        if group[i].weight is not node.weight:
            return node
        if id(group) not in wide:
            wide[id(group)] = Contract(node.x, np.concatenate([part.weight for part in group], axis=1))
        first = sum(part.width for part in group[:i])
        return Select(wide[id(group)], np.arange(first, first + node.width, dtype=np.int32))

    # Two products may share an array of weights.
    if len(place) < sum(map(len, several)):
        return list(outputs), 0
    return rewrite(outputs, change), sum(len(group) - 1 for group in several)
