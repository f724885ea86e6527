"""Schedule a program by a configuration of its default space (see `hbtvm.programs.tiling`)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir
from tvm.tirx import IndexMap

from hbtvm.programs.computation import ENTRY, Main, Operand, blocks
from hbtvm.programs.fusing import fused
from hbtvm.programs.layouts import Layout, layout_of
from hbtvm.programs.tiling import IN_BLOCK, IN_TILE, PACKED, PACKED_TILE, PLAIN, PLAIN_TILE, Roles
from hbtvm.schedules.space import Config


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
    if roles.fuses:
        known = fused(module, main)
        assert known is not None
        module, main = known
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
        self.contiguous: list[Any] = []  # those of them whose innermost loop reads and writes neighbours
        self.blocked = config.get("accumulate", IN_TILE) == IN_BLOCK

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
        last = outer[-1] if self.blocked else inner[-1]
        sch.reverse_compute_at(writer, last)
        for copy, at_tile in self.copies:
            if at_tile:
                sch.compute_at(copy, outer[-1])
        self._write(writer, last)
        self._unroll(inner, reductions, tile)
        self._others(others, writer)
        for copy in self.contiguous:
            self._vectorize_copy(copy)
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
                self._in_packed_order(copy, layout)
            self.copies.append((copy, tile))
        elif choice != PLAIN and operand.argument in self.constants:
            sch.transform_layout(self.block, ("read", operand.number), layout.index)
            self.layouts[operand.argument] = layout
        elif choice != PLAIN:
            copy = sch.cache_read(self.block, operand.number, "global")
            self._in_packed_order(copy, layout)
            self.copies.append((copy, tile))

    def _in_packed_order(self, copy: Any, layout: Layout) -> None:
        """Pack what a block writes, and let its loops follow; in the array's order, LLVM would scatter."""
        self.sch.transform_layout(copy, ("write", 0), layout.index)
        order = IndexMap.from_func(layout.index, ndim=len(layout.shape))
        self.sch.transform_block_layout(copy, order)
        last, inner, within = layout.parts[-1]
        if last == len(layout.shape) - 1 and (within or inner == 1):
            self.contiguous.append(copy)

    def _vectorize_copy(self, copy: Any) -> None:
        loop = self.sch.get_loops(copy)[-1]
        lanes = math.gcd(int(self.sch.get(loop).extent), self.roles.lanes)
        if lanes > 1:
            self.sch.vectorize(self.sch.split(loop, [None, lanes])[1])

    def _writer(self) -> Any:
        """Keep the register tile, or the block of them, in a buffer; return the block that writes it."""
        sch = self.sch
        scope = "global" if self.blocked else "local"
        consumers = sch.get_consumers(self.block)
        writer = None
        if len(consumers) == 1 and self._elementwise(consumers[0]):
            writer = consumers[0]
            sch.set_scope(self.block, 0, scope)
        else:
            writer = sch.cache_write(self.block, 0, scope)
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
        writes = [] if self.roles.fuses else [known.writes[0]]
        return all(
            len(region.region) == len(axes)
            and all(part.min.same_as(axis) for part, axis in zip(region.region, axes, strict=True))
            for region in [*reads, *writes]
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
        if self.blocked:
            sch.reorder(*outer, reductions[0], *inner, *reductions[1:], *tile)
        else:
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

    def _unroll(self, inner: list[Any], reductions: list[Any], tile: list[Any]) -> None:
        """Unroll the register tile, and set the sums to zero before the reductions."""
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
        if self.blocked:
            mine = self._tiles_within(mine, tiled)
        order = [number for number in self.main.written if number is not None and tiled.get(number, 1) > 1]
        if len(order) != len(mine) or roles.vector.number not in order:
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

    def _tiles_within(self, loops: list[Any], tiled: dict[int, int]) -> list[Any]:
        """Split loops that write a block into register tiles; return the loops of a tile."""
        sch, roles, config = self.sch, self.roles, self.config
        sizes = {
            axis.number: tiled[axis.number] * int(config[f"block_{role}"])
            for role, axis in roles.spatial.items()
        }
        order = [number for number in self.main.written if number is not None and sizes.get(number, 1) > 1]
        if len(order) != len(loops):
            return loops
        blocks, tiles = [], []
        for number, loop in zip(order, loops, strict=True):
            if tiled[number] == 1:
                blocks.append(loop)
                continue
            if tiled[number] == sizes[number]:
                tiles.append(loop)
                continue
            block, tile = sch.split(loop, [None, tiled[number]])
            blocks.append(block)
            tiles.append(tile)
        sch.reorder(*blocks, *tiles)
        return tiles

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
