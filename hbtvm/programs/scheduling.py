"""Schedule a program by a configuration of its default space (see `hbtvm.programs.tiling`)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir

from hbtvm.programs.computation import ENTRY, Axis, Main, Operand, blocks
from hbtvm.programs.tiling import PACKED, PACKED_TILE, PLAIN, PLAIN_TILE, Roles
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
    order = [axis.number for axis in _reductions(roles, config)]
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


def _reductions(roles: Roles, config: Config) -> list[Axis]:
    """Return the reductions in the order of their outer loops."""
    long = [roles.reduce] if roles.reduce is not None else []
    return [*long, *roles.small]


@dataclass(frozen=True)
class Scheduled:
    """A scheduled program.

    `module`: a `tvm.IRModule` with the function ``main``.
    `layouts`: by a parameter's position: its packed layout.
    """

    module: Any
    layouts: dict[int, Layout]


def schedule(
    module: Any, main: Main, roles: Roles, config: Config, constants: Sequence[int], threads: int
) -> Scheduled:
    """Schedule a program."""
    sch = s_tir.Schedule(module)
    return _Scheduling(sch, main, roles, config, constants, threads).run()


class _Scheduling:
    def __init__(
        self, sch: Any, main: Main, roles: Roles, config: Config, constants: Sequence[int], threads: int
    ) -> None:
        self.sch, self.main, self.roles, self.config = sch, main, roles, config
        self.constants, self.threads = constants, threads
        self.block = sch.get_sblock(main.block, func_name=ENTRY)
        self.layouts: dict[int, Layout] = {}
        self.copies: list[tuple[Any, bool]] = []  # blocks that write operands, and whether for each tile

    def run(self) -> Scheduled:
        sch = self.sch
        others = [str(sch.get(block).name_hint) for block in blocks(sch)]
        for place, operand in enumerate(self.main.operands):
            self._operand(operand, str(self.config[f"operand_{place}"]))
        writer = self._writer()
        outer, inner, reductions, tile = self._loops()
        # Blocks whose loops are attached must be computed before loops are fused.
        if self.threads > 1:
            count = min(int(self.config["parallel"]), len(outer))
            fused = sch.fuse(*outer[:count])
            sch.parallel(fused)
            outer = [fused, *outer[count:]]
        last = (inner or outer)[-1]
        sch.reverse_compute_at(writer, last)
        for copy, at_tile in self.copies:
            if at_tile:
                sch.compute_at(copy, outer[-1])
        self._write(writer, last)
        self._unroll(reductions, tile)
        self._others(others, writer)
        return Scheduled(sch.mod, self.layouts)

    def _operand(self, operand: Operand, choice: str) -> None:
        """Pack an operand, or the buffer that another block computes."""
        sch = self.sch
        layout = layout_of(operand, self.roles, self.config)
        tile = choice in (PLAIN_TILE, PACKED_TILE)
        if operand.argument is None:
            producer = sch.get_producers(self.block)
            copy = next(
                (b for b in producer if str(sch.get(b).writes[0].source.name) == operand.name), None
            )  # fmt: skip
            if copy is None:
                return
            if choice in (PACKED, PACKED_TILE):
                sch.transform_layout(copy, ("write", 0), layout.index)
            self.copies.append((copy, tile))
        elif choice != PLAIN and operand.argument in self.constants:
            sch.transform_layout(self.block, ("read", operand.number), layout.index)
            self.layouts[operand.argument] = layout
        elif choice != PLAIN:
            copy = sch.cache_read(self.block, operand.number, "global")
            sch.transform_layout(copy, ("write", 0), layout.index)
            self.copies.append((copy, tile))

    def _writer(self) -> Any:
        """Keep the register tile in a local buffer; return the block that writes it."""
        sch = self.sch
        consumers = sch.get_consumers(self.block)
        writer = None
        if len(consumers) == 1 and self._elementwise(consumers[0]):
            writer = consumers[0]
            sch.set_scope(self.block, 0, "local")
        else:
            writer = sch.cache_write(self.block, 0, "local")
        vector = self.main.written.index(self.roles.vector.number)
        sch.transform_layout(
            self.block,
            ("write", 0),
            lambda *indices: [*(i for n, i in enumerate(indices) if n != vector), indices[vector]],
        )
        return writer

    def _elementwise(self, block: Any) -> bool:
        """Whether a block has the main block's output axes, and reads its output at the place it writes."""
        if len(self.sch.get_consumers(block)) > 0 and not self._inline_after(block):
            return False
        known = self.sch.get(block)
        axes = [axis.var for axis in known.iter_vars]
        if any(axis.iter_type != 0 for axis in known.iter_vars) or len(known.writes) != 1:
            return False
        produced = self.sch.get(self.block).writes[0].source
        extents = [int(axis.dom.extent) for axis in known.iter_vars]
        if extents != [int(extent) for extent in produced.shape]:
            return False
        reads = [region for region in known.reads if region.source.same_as(produced)]
        return all(
            len(region.region) == len(axes)
            and all(part.min.same_as(axis) for part, axis in zip(region.region, axes, strict=True))
            for region in [*reads, known.writes[0]]
        )

    def _inline_after(self, block: Any) -> bool:
        """Inline the only consumers of a block into it; whether none is left."""
        with contextlib.suppress(s_tir.ScheduleError):
            while consumers := self.sch.get_consumers(block):
                self.sch.reverse_compute_inline(consumers[0])
            return True
        return False

    def _loops(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Split and reorder; return loops of outer tiles, blocks, reductions and the register tile."""
        sch, roles, config = self.sch, self.roles, self.config
        loops = sch.get_loops(self.block)
        outers: dict[str, Any] = {}
        middles: dict[str, Any] = {}
        tile: list[Any] = []
        lanes: list[Any] = []
        for role, axis in roles.spatial.items():
            factors = [None, int(config[f"block_{role}"]), int(config[f"tile_{role}"])]
            if role == "v":
                a, b, c, d = sch.split(loops[axis.number], [*factors, roles.lanes])
                lanes = [c, d]
            else:
                a, b, c = sch.split(loops[axis.number], factors)
                tile.insert(0, c)
            outers[role], middles[role] = a, b
        tile += lanes
        numbered = {**{axis.number: role for role, axis in roles.spatial.items()}}
        natural = [numbered[axis.number] for axis in self.main.spatial if axis.number in numbered]
        first, deepest = str(config["outer"]), str(config["inner"])
        outer = [outers[first], *(outers[role] for role in natural if role != first)]
        inner = [*(middles[role] for role in natural if role != deepest), middles[deepest]]
        outer = [*(loops[axis.number] for axis in roles.rest), *outer]
        reductions = self._reduction_loops(loops)
        sch.reorder(*outer, *inner, *reductions, *tile)
        return outer, inner, reductions, tile

    def _reduction_loops(self, loops: Sequence[Any]) -> list[Any]:
        roles, config = self.roles, self.config
        small = [loops[axis.number] for axis in roles.small]
        if roles.reduce is None:
            return small
        unroll = int(config["unroll"])
        outer, inner, unrolled = self.sch.split(
            loops[roles.reduce.number], [None, int(config["reduce"]) // unroll, unroll]
        )
        self.sch.unroll(unrolled)
        if config.get("small", "outside") == "outside":
            return [outer, *small, inner, unrolled]
        if config["small"] == "unrolled":
            for loop in small:
                self.sch.unroll(loop)
        return [outer, inner, *small, unrolled]

    def _unroll(self, reductions: list[Any], tile: list[Any]) -> None:
        """Unroll the register tile, and set it to zero before the reductions."""
        sch = self.sch
        for loop in tile[:-1]:
            sch.unroll(loop)
        sch.vectorize(tile[-1])
        if not reductions:
            return
        before = len(sch.get_loops(self.block)) - len(reductions) - len(tile)
        init = sch.decompose_reduction(self.block, reductions[0])
        *unrolled, vectorized = sch.get_loops(init)[before:]
        for loop in unrolled:
            sch.unroll(loop)
        sch.vectorize(vectorized)

    def _write(self, writer: Any, last: Any) -> None:
        """Unroll and vectorise the loops that write the register tile."""
        sch, roles = self.sch, self.roles
        loops = sch.get_loops(writer)
        depth = next(n for n, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(last))) + 1
        mine = loops[depth:]
        store = str(self.config["store"])
        tiled = {axis.number: roles.tile(role, self.config) for role, axis in roles.spatial.items()}
        order = [number for number in self.main.written if number is not None and tiled.get(number, 1) > 1]
        if len(order) != len(mine):
            store = "scalar"
        if store == "lanes":
            at = order.index(roles.vector.number)
            loop = mine.pop(at)
            vectors, lanes = sch.split(loop, [None, roles.lanes])
            sch.reorder(*mine, vectors, lanes)
            mine = [*mine, vectors]
            sch.vectorize(lanes)
        elif store == "rows":
            loop = mine.pop()
            if order[-1] == roles.vector.number:
                vectors, loop = sch.split(loop, [None, roles.lanes])
                mine.append(vectors)
            sch.vectorize(loop)
        for loop in mine:
            sch.unroll(loop)

    def _others(self, names: Sequence[str], writer: Any) -> None:
        """Schedule the other blocks: parallel outside, vectorised inside."""
        sch = self.sch
        tiled = {str(sch.get(copy).name_hint) for copy, at_tile in self.copies if at_tile}
        done = {str(sch.get(writer).name_hint), self.main.block, *tiled}
        copies = [str(sch.get(copy).name_hint) for copy, at_tile in self.copies if not at_tile]
        for name in [*copies, *(name for name in names if name not in done and name not in copies)]:
            with contextlib.suppress(s_tir.ScheduleError, ValueError, RuntimeError):
                self._other(sch.get_sblock(name, func_name=ENTRY))

    def _other(self, block: Any) -> None:
        sch = self.sch
        loops = sch.get_loops(block)
        spatial = [n for n, axis in enumerate(sch.get(block).iter_vars) if axis.iter_type == 0]
        if not loops or spatial != list(range(len(loops))):
            return
        if self.threads > 1 and len(loops) > 1:
            count = max(1, min(2, len(loops) - 1))
            sch.parallel(sch.fuse(*loops[:count]))
