"""Default spaces: tiles, order of loops, unrolling, packing of operands, and parallel loops.

A program's main block runs in these loops, outermost first (the paper's CPU templates, "SSRS")::

    outer tiles of the spatial axes         parallel
        blocks of the spatial axes
            reductions                      one is split, and part of it unrolled
                register tile               unrolled, the vector axis innermost

The register tile stays in registers over all reductions, and is then written. Knobs are named by the role of
an axis, so that their effects transfer between programs: ``v`` is the vectorised axis, 1 and 2 are the
innermost other spatial axes, ``reduce`` is the longest reduction, and ``small`` the other reductions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hbtvm.programs.computation import Axis, Main, Operand
from hbtvm.schedules.space import Choice, Config, Knob, Space

MOST_BODY = 640  # most vector operations in the unrolled body of the innermost loop
MOST_CHOICES = 12  # most divisors that a knob offers

PLAIN, PACKED, PLAIN_TILE, PACKED_TILE = "plain", "packed", "plain tile", "packed tile"
"""Layouts of an operand: as it is; in the order of the loops; and each computed for every outer tile."""


@dataclass(frozen=True)
class Roles:
    """The roles of a main block's axes, for one vectorised axis.

    `lanes`: elements of a vector.
    `registers`: vectors that the target's registers hold.
    """

    vector: Axis
    tiled: tuple[Axis, ...]  # at most two other spatial axes, the innermost first
    rest: tuple[Axis, ...]  # other spatial axes
    reduce: Axis | None
    small: tuple[Axis, ...]
    lanes: int
    registers: int

    @property
    def spatial(self) -> dict[str, Axis]:
        """The spatial axes with tiles, by role: ``"v"``, ``"1"``, ``"2"``."""
        return {"v": self.vector, **{str(n + 1): axis for n, axis in enumerate(self.tiled)}}

    def tile(self, role: str, config: Config) -> int:
        """Return the register tile of an axis."""
        tile = int(config[f"tile_{role}"])
        return tile * self.lanes if role == "v" else tile


def roles_of(main: Main, vector: Axis, lanes: int, registers: int) -> Roles:
    """Assign roles to the axes of a main block, for one vectorised axis."""
    others = [axis for axis in reversed(main.spatial) if axis != vector]
    tiled = [axis for axis in others if axis.extent > 1][:2]
    reduced = sorted(main.reduced, key=lambda axis: -axis.extent)
    reduce = reduced[0] if reduced else None
    small = tuple(axis for axis in main.reduced if axis != reduce)
    rest = tuple(axis for axis in main.spatial if axis != vector and axis not in tiled)
    return Roles(vector, tuple(tiled), rest, reduce, small, lanes, registers)


def vector_axes(main: Main, native: int) -> list[tuple[Axis, int]]:
    """Return the axes that can be vectorised with their lanes, the most promising first.

    An axis can be vectorised if its lanes read contiguous or equal elements of every operand, packed if
    necessary. `native`: elements of the target's vectors.
    """
    chosen = []
    for axis in main.spatial:
        lanes = math.gcd(axis.extent, native)
        if lanes < min(4, native) or axis.number not in main.written:
            continue
        if all(_reads_vectors(operand, axis) for operand in main.operands):
            packed = any(axis.number in operand.pure for operand in main.operands)
            chosen.append((lanes, packed, axis))
    chosen.sort(key=lambda entry: (-entry[0], not entry[1], -entry[2].number))
    return [(axis, lanes) for lanes, _, axis in chosen[:2]]


def _reads_vectors(operand: Operand, axis: Axis) -> bool:
    """Whether lanes along an axis read one element, or can read neighbours."""
    if not any(axis.number in dims for dims in operand.dims):
        return True
    places = [place for place, dims in enumerate(operand.dims) if axis.number in dims]
    if len(places) > 1:
        return False
    if operand.pure[places[0]] == axis.number:
        return True
    return places[0] == len(operand.dims) - 1 and operand.strides[axis.number] == 1


def divisors(number: int, most: int | None = None) -> list[int]:
    """Return the divisors of a number, up to a largest, thinned to `MOST_CHOICES`."""
    known = [n for n in range(1, min(number, most or number) + 1) if number % n == 0]
    step = max(1, (len(known) - 1) / (MOST_CHOICES - 1)) if len(known) > MOST_CHOICES else 1
    places = sorted({round(step * n) for n in range(MOST_CHOICES)} & set(range(len(known))))
    return [known[place] for place in places]


def space_of(main: Main, roles: Roles, threads: int, constants: Sequence[int]) -> Space:
    """Return the space of one vectorised axis.

    `constants`: positions of the parameters that can be packed before the program runs.
    """
    vectors = roles.vector.extent // roles.lanes
    knobs = [Knob("tile_v", _numbers(divisors(vectors, 8))), Knob("block_v", _numbers(divisors(vectors)))]
    for role, axis in list(roles.spatial.items())[1:]:
        knobs.append(Knob(f"tile_{role}", _numbers(divisors(axis.extent, 28))))
        knobs.append(Knob(f"block_{role}", _numbers(divisors(axis.extent))))
    names = tuple(roles.spatial)
    knobs.append(Knob("outer", names))
    knobs.append(Knob("inner", names))
    if roles.reduce is not None:
        knobs.append(Knob("reduce", _numbers(divisors(roles.reduce.extent))))
        knobs.append(Knob("unroll", _numbers([n for n in (1, 2, 4, 8) if roles.reduce.extent % n == 0])))
    if any(axis.extent > 1 for axis in roles.small):
        knobs.append(Knob("small", ("outside", "inside", "unrolled")))
    for place, operand in enumerate(main.operands):
        knobs.append(Knob(f"operand_{place}", _layouts(operand, constants)))
    knobs.append(Knob("store", ("lanes", "rows", "scalar")))
    if threads > 1:
        knobs.append(Knob("parallel", _numbers(list(range(1, len(names) + len(roles.rest) + 1)))))
    return Space(tuple(knobs), lambda config: fits(roles, config))


def _numbers(numbers: list[int]) -> tuple[Choice, ...]:
    return tuple(numbers)


def _layouts(operand: Operand, constants: Sequence[int]) -> tuple[Choice, ...]:
    if operand.argument in constants:
        return PLAIN, PACKED
    if operand.argument is not None:
        return PLAIN, PACKED, PACKED_TILE
    return PLAIN, PLAIN_TILE, PACKED, PACKED_TILE


def fits(roles: Roles, config: Config) -> bool:
    """Whether tiles divide the extents, and the register tile fits the registers and the code's size."""
    tile = int(config["tile_v"])
    for role, axis in roles.spatial.items():
        if axis.extent % (roles.tile(role, config) * int(config[f"block_{role}"])):
            return False
        if role != "v":
            tile *= int(config[f"tile_{role}"])
    if tile > roles.registers:
        return False
    body = tile
    if roles.reduce is not None:
        reduce, unroll = int(config["reduce"]), int(config["unroll"])
        if reduce % unroll:
            return False
        body *= unroll
    if config.get("small") == "unrolled":
        body *= math.prod(axis.extent for axis in roles.small)
    return body <= MOST_BODY


def defaults(main: Main, roles: Roles, space: Space, threads: int) -> list[Config]:
    """Return configurations to measure first: large register tiles, packed operands."""
    choices = {knob.name: knob.choices for knob in space.knobs}
    wanted: dict[str, Choice] = {
        "outer": "v",
        "inner": "1" if roles.tiled else "v",
        "small": "outside",
        "store": "scalar",
        "unroll": 1,
    }
    wanted["reduce"] = roles.reduce.extent if roles.reduce is not None else 1
    if threads > 1:
        wanted["parallel"] = max(n for n in choices["parallel"] if type(n) is int)
    for place, operand in enumerate(main.operands):
        pure = roles.vector.number in operand.pure
        wanted[f"operand_{place}"] = PACKED if pure and operand.argument is not None else PLAIN
    tiles: list[Config] = []
    for vectors in choices["tile_v"]:
        for first in choices.get("tile_1", (1,)):
            for second in choices.get("tile_2", (1,)):
                tile: Config = {"tile_v": vectors, "tile_1": first, "tile_2": second}
                tiles.append(tile)

    def badness(tile: Config) -> tuple[float, int]:
        """Rank register tiles by loads for each operation; packed vectors often come from a farther cache."""
        vectors, pixels = int(tile["tile_v"]), int(tile["tile_1"]) * int(tile["tile_2"])
        return 0.5 / vectors + 2 / pixels, int(tile["tile_2"])

    found: list[Config] = []
    for tile in sorted(tiles, key=badness):
        config = {name: wanted.get(name, tile.get(name, 1)) for name in choices}
        for block in ("block_v", "block_1", "block_2"):
            if block in config:
                config[block] = 1
        if roles.tiled:  # a row of tiles shares what the vector axis indexes
            config["block_1"] = roles.tiled[0].extent // int(tile["tile_1"])
            if config["block_1"] not in choices["block_1"]:
                config["block_1"] = 1
        if space.contains(config) and config not in found:
            found.append(config)
        if len(found) == 3:
            break
    return found
