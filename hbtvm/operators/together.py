"""Join operators of the same form into one wide operator: many small models become a large one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hbtvm.operators.base import Constant, Node, constant
from hbtvm.operators.formulas import total
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, concat, select
from hbtvm.operators.tables import Interpolate, ragged

Join = Callable[[Sequence[Node]], Node | None]  # joins nodes of other kinds; returns None if it can't


def side_by_side(parts: Sequence[Node], join: Join | None = None) -> Node:
    """Return the columns of all nodes; like `concat`, but nodes that differ in weights only become one.

    `join`: for kinds of nodes of other modules.
    """
    return _Joining(join).run(tuple(parts))


def grouped_sum(parts: Sequence[Node], join: Join | None = None) -> Node:
    """Return the sum of nodes of the same width, column by column."""
    width = parts[0].width
    wide = side_by_side(parts, join)
    if isinstance(wide, Concat):
        return total(parts)
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
            self._known[key] = (parts, self._joined(parts))
        return self._known[key][1]

    def _joined(self, parts: tuple[Node, ...]) -> Node:
        first = parts[0]
        if all(part is first for part in parts):
            return Repeat(first, len(parts), tiled=True)
        if all(type(part) is type(first) for part in parts):
            wide = self._alike(first, parts)
            if wide is None and self._join is not None:
                wide = self._join(parts)
            if wide is not None:
                return wide
        return concat(
            [inner for part in parts for inner in (part.parts if isinstance(part, Concat) else (part,))]
        )

    def _alike(self, first: Node, parts: tuple[Node, ...]) -> Node | None:
        match first:
            case Constant():
                return constant(np.concatenate([part.values for part in parts]))  # type: ignore[attr-defined]
            case Contract():
                if all(part.x is first.x for part in parts):  # type: ignore[attr-defined]
                    return Contract(first.x, np.concatenate([part.weight for part in parts], axis=1))  # type: ignore[attr-defined]
            case Elementwise():
                return self._elementwise(first, parts)  # type: ignore[arg-type]
            case Reduce():
                size = first.x.width // first.groups
                sized = all(part.x.width == size * part.groups for part in parts)  # type: ignore[attr-defined]
                if sized and all(part.function == first.function for part in parts):  # type: ignore[attr-defined]
                    wide = self.run(tuple(part.x for part in parts))  # type: ignore[attr-defined]
                    return Reduce(first.function, wide, sum(part.groups for part in parts))  # type: ignore[attr-defined]
            case Repeat():
                if all(part.times == first.times and not part.tiled for part in parts):  # type: ignore[attr-defined]
                    return Repeat(self.run(tuple(part.x for part in parts)), first.times)  # type: ignore[attr-defined]
            case Select():
                return self._select(parts)  # type: ignore[arg-type]
            case Concat():
                return self._concat(parts)  # type: ignore[arg-type]
            case Interpolate():
                wide = self.run(tuple(part.x for part in parts))  # type: ignore[attr-defined]
                at = ragged([row for part in parts for row in part.at])  # type: ignore[attr-defined]
                return Interpolate(wide, at, ragged([row for part in parts for row in part.values]))  # type: ignore[attr-defined]
        return None

    def _elementwise(self, first: Elementwise, parts: tuple[Elementwise, ...]) -> Node | None:
        if any(part.function != first.function for part in parts):
            return None
        operands = []
        for position, operand in enumerate(first.operands):
            alike = [part.operands[position] for part in parts]
            if operand.width == 1 and all(_equal(other, operand) for other in alike):
                operands.append(operand)
                continue
            wide = tuple(_broadcast(other, part.width) for other, part in zip(alike, parts, strict=True))
            operands.append(self.run(wide))
        return Elementwise(first.function, tuple(operands)).checked()

    def _select(self, parts: tuple[Select, ...]) -> Node:
        bases = list({id(part.x): part.x for part in parts}.values())
        first, start = {}, 0
        for base in bases:
            first[id(base)] = start
            start += base.width
        indices = np.concatenate([first[id(part.x)] + part.indices for part in parts])
        return select(self.run(tuple(bases)), indices)

    def _concat(self, parts: tuple[Concat, ...]) -> Node | None:
        count = len(parts[0].parts)
        if any(len(part.parts) != count for part in parts):
            return None
        pieces = [self.run(tuple(part.parts[i] for part in parts)) for i in range(count)]
        # Pieces have the columns by position first: restore the order of the parts.
        widths = np.array([[inner.width for inner in part.parts] for part in parts])
        ends = widths.ravel(order="F").cumsum().reshape(count, len(parts)).T
        order = [
            np.arange(end - width, end)
            for end, width in zip(ends.ravel().tolist(), widths.ravel().tolist(), strict=True)
        ]
        return select(concat(pieces), np.concatenate(order))


def _equal(a: Node, b: Node) -> bool:
    if isinstance(a, Constant) and isinstance(b, Constant):
        return bool(np.array_equal(a.values, b.values, equal_nan=True))
    return a is b


def _broadcast(node: Node, width: int) -> Node:
    if node.width == width:
        return node
    return constant(np.full(width, node.values[0])) if isinstance(node, Constant) else Repeat(node, width)
