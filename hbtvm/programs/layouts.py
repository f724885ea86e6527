"""Layouts of operands that follow the order of the loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.programs.computation import Axis, Operand
from hbtvm.programs.tiling import Roles
from hbtvm.schedules.space import Config


@dataclass(frozen=True)
class Layout:
    """A packed layout of an array: its dimensions are split, then reordered.

    `shape`: the array's shape.
    `parts`: for each dimension of the packed array: a dimension of the array, the size of that dimension's
        inner part, and whether this is the inner part.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[int, int, bool], ...]

    def index(self, *indices: Any) -> list[Any]:
        """Return the packed indices of an element."""
        return [
            (indices[dim] % inner if within else indices[dim] // inner) if self._split(dim, inner)
            else indices[dim]
            for dim, inner, within in self.parts
        ]  # fmt: skip

    def pack(self, array: np.ndarray) -> np.ndarray:
        """Return a packed copy of an array."""
        sizes: list[int] = []
        places: dict[tuple[int, bool], int] = {}
        for dim, extent in enumerate(self.shape):
            inner = next((size for number, size, _ in self.parts if number == dim), 1)
            for within in (False, True) if self._split(dim, inner) else (False,):
                places[dim, within] = len(sizes)
                sizes.append((inner if within else extent // inner) if self._split(dim, inner) else extent)
        order = [
            places[dim, within and self._split(dim, inner)] for dim, inner, within in self.parts
        ]  # fmt: skip
        return np.ascontiguousarray(array.reshape(sizes).transpose(order))

    def _split(self, dim: int, inner: int) -> bool:
        return 1 < inner < self.shape[dim]


def layout_of(operand: Operand, roles: Roles, config: Config) -> Layout:
    """Return the layout in which the loops read an operand in order."""
    order = [axis.number for axis in reductions(roles, config)]
    split = roles.reduce.number if roles.reduce is not None else None
    position = {number: 100 + 2 * place for place, number in enumerate(order)}
    within = 100 + 2 * len(order)  # the inner part of the split reduction
    if split is not None and str(config.get("small", "outside")) == "outside":
        position[split] = 99
    elif split is not None:
        within = position[split] + 1
    tiles = {axis.number: roles.tile(role, config) for role, axis in roles.spatial.items()}
    inner_rank = {axis.number: 1000 - place for place, axis in enumerate(roles.spatial.values())}
    parts: list[tuple[float, int, int, bool]] = []
    for dim, (axes, pure) in enumerate(zip(operand.dims, operand.pure, strict=True)):
        if pure is not None and (pure in tiles or pure == split):
            inner = tiles[pure] if pure in tiles else int(config["reduce"])
            outer_rank = float(dim) if pure in tiles else position[pure]
            whole, single = inner >= operand.shape[dim], inner == 1
            if not whole:
                parts.append((outer_rank, dim, inner, False))
            if not single or whole:
                parts.append((inner_rank.get(pure, within), dim, inner, True))
        elif pure is not None:
            parts.append((position.get(pure, dim), dim, 1, False))
        else:
            ranks = [position[axis] for axis in axes if axis in position]
            parts.append((min(ranks, default=dim), dim, 1, False))
    parts.sort(key=lambda part: part[:2])
    return Layout(operand.shape, tuple((dim, inner, inside) for _, dim, inner, inside in parts))


def reductions(roles: Roles, config: Config) -> list[Axis]:
    """Return the reductions in the order of their outer loops."""
    long = [roles.reduce] if roles.reduce is not None else []
    return [*long, *roles.small]
