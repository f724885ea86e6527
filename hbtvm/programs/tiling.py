"""Default spaces: tiles, order of loops, unrolling, packing of operands, and parallel loops.

A program's main block runs in these loops, outermost first (the paper's CPU templates, "SSRS")::

    outer tiles of the spatial axes         parallel
        blocks of the spatial axes
            reductions                      one is split, and part of it unrolled
                register tile               unrolled, the vector axis innermost

The register tile stays in registers over all reductions, and is then written. Or a block of tiles accumulates
in a buffer, and the outer part of the split reduction runs outside the block, whose tiles then read the same
part of an operand from a near cache.

Knobs are named by the role of an axis, so that their effects transfer between programs: ``v`` is the vector
axis, 1 and 2 are the innermost other spatial axes, ``reduce`` is the longest reduction, and ``small`` the
other reductions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hbtvm.programs.computation import Axis, Main, Operand
from hbtvm.schedules.space import Choice, Config, Knob, Space

MOST_BODY = 640  # most vector operations in the unrolled body of the innermost loop
MOST_CHOICES = 12  # most divisors that a knob offers
FEW_USES = 32  # operations with an element, up to which computing it near them pays
_BLOCK = 4  # register tiles of a product's block in each direction, and unrolled steps of its reduction
NEAR = 2048  # elements that stay in the nearest cache while a block of tiles reads them

PLAIN, PACKED, PLAIN_TILE, PACKED_TILE = "plain", "packed", "plain tile", "packed tile"
"""Layouts of an operand: as it is; in the order of the loops; and each computed for every outer tile."""


IN_TILE, IN_BLOCK = "tile", "block"
"""Where sums are kept: a register tile over all reductions, or a block over a part of the longest one."""


@dataclass(frozen=True)
class Roles:
    """The roles of a main block's axes, for one vectorised axis.

    `lanes`: elements of a vector.
    `registers`: the target's vector registers.
    `fuses`: whether the axes are those of the program with two axes fused (`hbtvm.programs.fusing`).
    """

    vector: Axis
    tiled: tuple[Axis, ...]  # at most two other spatial axes, the innermost first
    rest: tuple[Axis, ...]  # other spatial axes
    reduce: Axis | None
    small: tuple[Axis, ...]
    lanes: int
    registers: int
    fuses: bool = False

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
        knobs.append(Knob("accumulate", (IN_TILE, IN_BLOCK)))
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
    if operand.fixed:
        return (PLAIN,)
    if operand.argument in constants:
        return PLAIN, PACKED
    if operand.argument is not None:
        return PLAIN, PACKED, PACKED_TILE
    return PLAIN, PLAIN_TILE, PACKED, PACKED_TILE


def fits(roles: Roles, config: Config) -> bool:
    """Whether tiles divide the extents, and the register tile fits the registers and the code's size."""
    vectors = int(config["tile_v"])
    tile = vectors
    for role, axis in roles.spatial.items():
        if axis.extent % (roles.tile(role, config) * int(config[f"block_{role}"])):
            return False
        if role != "v":
            tile *= int(config[f"tile_{role}"])
    # Sums, and what is loaded: vectors that several sums use, and one element or vector that one sum uses.
    if tile + (vectors if tile > vectors else 0) + 1 > roles.registers:
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
    """Return configurations to measure first.

    Register tiles that fill the registers need the fewest loads, but LLVM spills them where it sees the whole
    kernel of a convolution at once; tiles of half the registers leave it room. These are the largest whose
    operations hide each other's latency.
    """
    choices = {knob.name: knob.choices for knob in space.knobs}
    tiles = sorted(_register_tiles(choices), key=_badness)
    large = [tile for tile in tiles if _vectors(tile) > roles.registers // 2] or tiles
    small = [tile for tile in tiles if _vectors(tile) <= roles.registers // 2]
    base = _base(main, roles, choices, threads)
    blocks: Config = {"accumulate": IN_BLOCK, "inner": str(len(roles.tiled)) if roles.tiled else "v"}
    if any(axis.extent > 1 for axis in roles.small):
        variants: list[tuple[list[Config], Config]] = [
            (large, {}),
            (small, {"small": "unrolled"}),
            (small, {"small": "unrolled", **blocks}),
            (large[1:], {}),
        ]
    else:
        variants = [(large, {}), (large, {"unroll": 2}), (small, {"unroll": 2}), (small, blocks)]
    found = _streamed(main, roles, base, space, tiles) or _panelled(roles, base, space, tiles)
    for candidates, changes in variants:
        for tile in candidates:
            config = {
                name: tile.get(name, choice)
                for name, choice in {**base, **changes}.items()
                if name in choices
            }
            _add_blocks(roles, choices, config)
            if space.contains(config) and config not in found:
                found.append(config)
                break
    return found


def _streamed(
    main: Main, roles: Roles, base: dict[str, Choice], space: Space, tiles: Sequence[Config]
) -> list[Config]:
    """Return the configuration that computes rows of operands just before few operations read them.

    Such a program, as a depthwise convolution with its padding, takes as long as its memory: an operand that
    another block computes stays in the nearest cache if that is done for each row of vectors. Tiles are of a
    quarter of the registers, since the others hold what the unrolled reductions share.
    """
    names = {knob.name for knob in space.knobs}
    operations = math.prod(axis.extent for axis in main.axes)
    streamed = [
        f"operand_{place}"
        for place, operand in enumerate(main.operands)
        if operand.argument is None
        and operand.strides[roles.vector.number] == 1
        and operations <= FEW_USES * math.prod(operand.shape)
    ]
    if not streamed:
        return []
    changes = {**base, "small": "unrolled", **dict.fromkeys(streamed, PLAIN_TILE)}
    for tile in tiles:
        config = {name: tile.get(name, choice) for name, choice in changes.items() if name in names}
        config["block_v"] = roles.vector.extent // roles.tile("v", config)
        if _vectors(tile) <= roles.registers // 4 and space.contains(config):
            return [config]
    return []


def _panelled(roles: Roles, base: dict[str, Choice], space: Space, tiles: Sequence[Config]) -> list[Config]:
    """Return the configuration of products that pack one operand whole, as MKL does.

    Blocks of few register tiles in both directions read parts of both operands from the nearest cache.
    """
    panels = {name: PACKED for name, layout in base.items() if layout == PACKED_TILE}
    if not panels or not roles.tiled or any(axis.extent > 1 for axis in roles.small):
        return []
    names = {knob.name for knob in space.knobs}
    for tile in tiles:
        config = {name: tile.get(name, choice) for name, choice in base.items() if name in names}
        config |= {**panels, "inner": "v"}
        for role, axis in list(roles.spatial.items())[:2]:
            config[f"block_{role}"] = math.gcd(axis.extent // roles.tile(role, config), _BLOCK)
        if roles.reduce is not None:
            config["unroll"] = math.gcd(roles.reduce.extent, _BLOCK)
            config["reduce"] = math.gcd(roles.reduce.extent, 2 * _BLOCK)
        if space.contains(config):
            return [config]
    return []


def _base(
    main: Main, roles: Roles, choices: dict[str, tuple[Choice, ...]], threads: int
) -> dict[str, Choice]:
    """Return the choices that first configurations share."""
    base: dict[str, Choice] = dict.fromkeys(choices, 1)
    base |= {
        "outer": "v",
        "inner": "1" if roles.tiled else "v",
        "small": "outside",
        "store": "lanes",
        "accumulate": IN_TILE,
        "reduce": roles.reduce.extent if roles.reduce is not None else 1,
    }
    if threads > 1:
        base["parallel"] = max(n for n in choices["parallel"] if type(n) is int)
    for place, operand in enumerate(main.operands):
        layouts = choices[f"operand_{place}"]
        pure = roles.vector.number in operand.pure and operand.argument is not None
        packed = next(layout for layout in (PACKED_TILE, PACKED, PLAIN) if layout in layouts)
        base[f"operand_{place}"] = packed if pure else PLAIN
    return base


def _register_tiles(choices: dict[str, tuple[Choice, ...]]) -> list[Config]:
    names = ("tile_v", "tile_1", "tile_2")
    return [
        dict(zip(names, sizes, strict=True))
        for sizes in itertools.product(*(choices.get(name, (1,)) for name in names))
    ]


def _vectors(tile: Config) -> int:
    return math.prod(int(size) for size in tile.values())


def _badness(tile: Config) -> tuple[float, int]:
    """Rank register tiles by loads for each operation; packed vectors often come from a farther cache."""
    vectors, second = int(tile["tile_v"]), int(tile["tile_2"])
    return 0.5 / vectors + 2 * vectors / _vectors(tile), second


def _add_blocks(roles: Roles, choices: dict[str, tuple[Choice, ...]], config: Config) -> None:
    """Let tiles that share what the vector axis indexes follow each other, near enough for a cache."""
    whole = config.get("accumulate") == IN_BLOCK
    for place, axis in enumerate(roles.tiled, 1):
        count = axis.extent // int(config[f"tile_{place}"])
        if (place == 1 or whole) and count in choices[f"block_{place}"]:
            config[f"block_{place}"] = count
    if whole and roles.reduce is not None:
        vector = roles.lanes * int(config["tile_v"]) * math.prod(axis.extent for axis in roles.small)
        fitting = [int(n) for n in choices["reduce"] if int(n) * vector <= NEAR]
        config["reduce"] = max(fitting, default=1)
