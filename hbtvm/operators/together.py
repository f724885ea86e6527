"""Operators of the same form side by side as one wide operator: many small models make a large one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hbtvm.operators.base import Constant, Node, constant
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, concat, select
from hbtvm.operators.tables import Interpolate, ragged

Join = Callable[[Sequence[Node]], Node | None]  # joins nodes of other kinds; None where it can't


def side_by_side(parts: Sequence[Node], join: Join | None = None) -> Node:
    """The columns of all nodes; like `concat`, but nodes that differ in weights only become one.

    `join`: for kinds of nodes that are not known here.
    """
    return _Joining(join).run(tuple(parts))


def grouped_sum(parts: Sequence[Node], join: Join | None = None) -> Node:
    """The sum of nodes of the same width, column by column."""
    width = parts[0].width
    wide = side_by_side(parts, join)
    if isinstance(wide, Concat):
        total = parts[0]
        for part in parts[1:]:
            total = Elementwise("add", (total, part)).checked()
        return total
    if width == 1:
        return Reduce("sum", wide).checked() if len(parts) > 1 else wide
    order = np.arange(len(parts) * width).reshape(len(parts), width).T.ravel()
    return Reduce("sum", select(wide, order), width).checked()


class _Joining:
    def __init__(self, join: Join | None) -> None:
        self._join = join
        # Nodes are kept, so that no two have the same id.
        self._known: dict[tuple[int, ...], tuple[tuple[Node, ...], Node]] = {}

    def run(self, parts: tuple[Node, ...]) -> Node:
        if len(parts) == 1:
            return parts[0]
        key = tuple(map(id, parts))
        if key not in self._known:
            self._known[key] = (parts, self._made(parts))
        return self._known[key][1]

    def _made(self, parts: tuple[Node, ...]) -> Node:
        first = parts[0]
        if all(one is first for one in parts):
            return Repeat(first, len(parts), tiled=True)
        if all(type(one) is type(first) for one in parts):
            found = self._alike(first, parts)
            if found is None and self._join is not None:
                found = self._join(parts)
            if found is not None:
                return found
        return concat(
            [inner for one in parts for inner in (one.parts if isinstance(one, Concat) else (one,))]
        )

    def _alike(self, first: Node, parts: tuple[Node, ...]) -> Node | None:
        match first:
            case Constant():
                return constant(np.concatenate([one.values for one in parts]))  # type: ignore[attr-defined]
            case Contract():
                if all(one.x is first.x for one in parts):  # type: ignore[attr-defined]
                    return Contract(first.x, np.concatenate([one.weight for one in parts], axis=1))  # type: ignore[attr-defined]
            case Elementwise():
                return self._elementwise(first, parts)  # type: ignore[arg-type]
            case Reduce():
                size = first.x.width // first.groups
                if all(one.function == first.function and one.x.width == size * one.groups for one in parts):  # type: ignore[attr-defined]
                    wide = self.run(tuple(one.x for one in parts))  # type: ignore[attr-defined]
                    return Reduce(first.function, wide, sum(one.groups for one in parts))  # type: ignore[attr-defined]
            case Repeat():
                if all(one.times == first.times and not one.tiled for one in parts):  # type: ignore[attr-defined]
                    return Repeat(self.run(tuple(one.x for one in parts)), first.times)  # type: ignore[attr-defined]
            case Select():
                return self._select(parts)  # type: ignore[arg-type]
            case Concat():
                return self._concat(parts)  # type: ignore[arg-type]
            case Interpolate():
                wide = self.run(tuple(one.x for one in parts))  # type: ignore[attr-defined]
                at = ragged([row for one in parts for row in one.at])  # type: ignore[attr-defined]
                return Interpolate(wide, at, ragged([row for one in parts for row in one.values]))  # type: ignore[attr-defined]
        return None

    def _elementwise(self, first: Elementwise, parts: tuple[Elementwise, ...]) -> Node | None:
        if any(one.function != first.function for one in parts):
            return None
        operands = []
        for position, operand in enumerate(first.operands):
            own = [one.operands[position] for one in parts]
            if operand.width == 1 and all(_equal(one, operand) for one in own):
                operands.append(operand)
                continue
            wide = tuple(_broadcast(one, part.width) for one, part in zip(own, parts, strict=True))
            operands.append(self.run(wide))
        return Elementwise(first.function, tuple(operands)).checked()

    def _select(self, parts: tuple[Select, ...]) -> Node:
        bases = list({id(one.x): one.x for one in parts}.values())
        first, start = {}, 0
        for base in bases:
            first[id(base)] = start
            start += base.width
        indices = np.concatenate([first[id(one.x)] + one.indices for one in parts])
        return select(self.run(tuple(bases)), indices)

    def _concat(self, parts: tuple[Concat, ...]) -> Node | None:
        count = len(parts[0].parts)
        if any(len(one.parts) != count for one in parts):
            return None
        pieces = [self.run(tuple(one.parts[i] for one in parts)) for i in range(count)]
        # Where a piece's columns of each part went: back to the order of the parts.
        widths = np.array([[inner.width for inner in one.parts] for one in parts])
        ends = widths.ravel(order="F").cumsum().reshape(count, len(parts)).T
        order = [
            np.arange(end - width, end)
            for end, width in zip(ends.ravel().tolist(), widths.ravel().tolist(), strict=True)
        ]
        return select(concat(pieces), np.concatenate(order))


def _equal(one: Node, other: Node) -> bool:
    if isinstance(one, Constant) and isinstance(other, Constant):
        return bool(np.array_equal(one.values, other.values, equal_nan=True))
    return one is other


def _broadcast(node: Node, width: int) -> Node:
    if node.width == width:
        return node
    return constant(np.full(width, node.values[0])) if isinstance(node, Constant) else Repeat(node, width)
