"""Tasks: a tensor program, its spaces, and how results are checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError
from hbtvm.programs import computation, fusing, scheduling, tiling
from hbtvm.programs.computation import ENTRY, Main
from hbtvm.programs.scheduling import Scheduled
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target

Pack = Callable[..., Sequence[np.ndarray]]
"""Turns the program's arguments into the arguments of a scheduled function."""

TEMPLATE = "template"  # the strategy of spaces that users define


@dataclass(frozen=True, eq=False)
class Strategy:
    """One space of a program.

    `roles`: of a default space; None for a space that the user defined.
    """

    name: str
    space: Space
    roles: tiling.Roles | None
    initial: tuple[Config, ...]


@dataclass(frozen=True, eq=False)
class Definition:
    """A program as workers need it; it is pickled."""

    module: Any  # the program, not scheduled: a `tvm.IRModule` with the function ``main``
    apply: Callable[..., Any] | None
    args: tuple[Any, ...]
    main: Main | None
    constants: tuple[int, ...]
    threads: int
    target: Target


@dataclass(frozen=True, eq=False)
class TensorTask:
    """A tensor program to search schedules for; `tensor_task` makes it.

    Attributes
    ----------
    name
        Its name in logs.
    workload
        The extents of its axes, for logs and transfer.
    strategies
        Its spaces by name: a default space for each axis that can be vectorised, or the user's.
    """

    name: str
    definition: Definition
    workload: dict[str, Any]
    strategies: dict[str, Strategy]
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    arguments: list[tuple[tuple[int, ...], str]] = field(default_factory=list)

    @property
    def target(self) -> Target:
        """The machine to compile for."""
        return self.definition.target

    def scheduled(self, strategy: str, config: Config) -> tuple[Any, Pack | None]:
        """Return the scheduled `tvm.IRModule` of a configuration, and what packs its arguments, if anything.

        Raises `InputError` if there is no such strategy, or its space lacks the configuration.
        """
        known = self.strategies.get(strategy)
        if known is None:
            names = ", ".join(self.strategies)
            raise InputError(f"there is no strategy {strategy!r}; expected one of {names}")
        if not known.space.contains(config):
            raise InputError(f"not a configuration of the space: {config}")
        return applied(self.definition, known.roles, config)


def tensor_task(
    program: Any,
    args: Sequence[Any] = (),
    *,
    space: Space | Sequence[Knob] | None = None,
    apply: Callable[..., Any] | None = None,
    initial: Sequence[Config] = (),
    constants: Sequence[str] = (),
    target: str | dict[str, Any] = "cpu",
    threads: int = 1,
    name: str | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> TensorTask:
    """Describe a tensor program whose schedule is to be searched.

    Parameters
    ----------
    program
        A Python function that returns a list of `te` tensors (inputs, then outputs); such a list; a
        `PrimFunc`; or a `tvm.IRModule` with one function. All sizes must be numbers.
    args
        Arguments of the Python function.
    space
        Knobs, or a `Space` of knobs with a constraint. By default, spaces of tiles, loop orders, unrolling,
        packed operands and parallel loops are made from the program (`hbtvm.programs.tiling`).
    apply
        With `space`: ``apply(config, *args)`` returns the scheduled program of a configuration: a
        `tvm.s_tir.Schedule`, a module, a function, or a list of `te` tensors, so that it may build the
        computation from the configuration. If the layout of a parameter depends on the configuration, it
        returns a pair of the program and ``pack``, which turns the program's arguments into the scheduled
        function's.
    initial
        With `space`: configurations to try first.
    constants
        Names of parameters, such as weights, that default spaces may pack before the program runs.
    target
        ``"cpu"`` for this machine, or a TVM target for a CPU of the same architecture.
    threads
        Threads that candidates use.
    name
        Name in logs; by default, that of the Python function.
    reference
        Returns the expected output, or a tuple of them, from the inputs as numpy arrays. By default, the
        program is compiled without a schedule.
    tolerance
        Largest difference from the reference, relative to the reference's largest magnitude: by default
        1e-4 for float32, 1e-9 for float64, 1e-2 for float16, and 0 for integers.

    Raises
    ------
    InputError
        If the program can't be scheduled, `space` comes without `apply`, or an option is invalid.
    TargetError
        If the target is not a CPU.
    """
    if threads < 1 or type(threads) is not int:
        raise InputError(f"threads must be a positive number, not {threads!r}")
    if (space is None) != (apply is None):
        raise InputError(
            "a space needs the function `apply` that schedules its configurations, and vice versa"
        )
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise InputError(f"tolerance must be a number of at least 0, not {tolerance!r}")
    device = resolve(target)
    if device["kind"] != "llvm":
        raise InputError(f"tensor programs are searched for CPUs, not for the target kind {device['kind']!r}")
    module = computation.module_of(program, args)
    given = computation.arguments(module[ENTRY])
    names = [str(parameter.name) for parameter in module[ENTRY].params]
    unknown = [constant for constant in constants if constant not in names]
    if unknown:
        raise InputError(f"the program has no parameter {unknown[0]!r}; it has {', '.join(names)}")
    places = tuple(names.index(constant) for constant in constants)
    main = None if apply is not None else computation.main_of(module)
    definition = Definition(module, apply, tuple(args), main, places, threads, device)
    if main is not None:
        strategies = _default_strategies(definition, main, given)
    else:
        whole = space if isinstance(space, Space) else Space(tuple(cast(Sequence[Knob], space)))
        for config in initial:
            if not whole.contains(dict(config)):
                raise InputError(f"the initial configuration {config} is not in the space")
        strategies = {TEMPLATE: Strategy(TEMPLATE, whole, None, tuple(map(dict, initial)))}
    label = name or getattr(program, "__name__", None) or "program"
    workload = _workload(label, module, main, args, threads)
    return TensorTask(label, definition, workload, strategies, reference, tolerance, given)


def _default_strategies(
    definition: Definition, main: Main, given: list[tuple[tuple[int, ...], str]]
) -> dict[str, Strategy]:
    """Return a default space for each axis that can be vectorised."""
    target = definition.target
    size = np.dtype(given[-1][1]).itemsize
    native = max(1, int(target["vector_bits"]) // 8 // size)
    registers = 32 if target["vector_bits"] >= 512 or target.get("arch") == "aarch64" else 16
    axes = tiling.vector_axes(main, native)
    if not axes:
        known = [axis for axis in main.spatial if axis.number in main.written]
        if not known:
            raise InputError("the program's main block writes no element by an axis; define a space for it")
        axes = [(known[-1], 1)]
    strategies = {}

    def add(main: Main, roles: tiling.Roles, name: str) -> None:
        space = tiling.space_of(main, roles, definition.threads, definition.constants)
        first = tuple(tiling.defaults(main, roles, space, definition.threads))
        strategies[name] = Strategy(name, space, roles, first)

    fused = fusing.fused(definition.module, main) if fusing.widens(main, native) else None
    # Vectors over both axes are longer than over the last.
    last = main.written[-1] if fused is not None else None
    for axis, lanes in axes:
        if axis.number != last:
            add(main, tiling.roles_of(main, axis, lanes, registers), f"vector {axis.name}")
    if fused is not None:
        whole = fused[1]
        axis = whole.spatial[-1]
        roles = tiling.roles_of(whole, axis, math.gcd(axis.extent, native), registers)
        names = [main.axes[number].name for number in main.written[-2:] if number is not None]
        add(whole, replace(roles, fuses=True), f"vector {' and '.join(names)}")
    return strategies


def _workload(name: str, module: Any, main: Main | None, args: Sequence[Any], threads: int) -> dict[str, Any]:
    """Return the log's description of a program; a digest tells programs of equal sizes apart."""
    sizes: dict[str, Any] = {"family": "tensor program", "program": name, "threads": threads}
    if main is not None:
        sizes |= {f"axis {axis.name}": axis.extent for axis in main.axes}
    sizes |= {f"argument {n}": value for n, value in enumerate(args) if type(value) in (int, float)}
    sizes["digest"] = hashlib.sha256(module.script().encode()).hexdigest()[:16]
    return sizes


def applied(definition: Definition, roles: tiling.Roles | None, config: Config) -> tuple[Any, Pack | None]:
    """Return the scheduled module of a configuration, and what packs its arguments; None for no packing.

    Raises `InputError` if the user's function returns something else than a scheduled program.
    """
    if definition.apply is None:
        assert definition.main is not None and roles is not None
        done = scheduling.schedule(
            definition.module, definition.main, roles, config, definition.constants, definition.threads
        )
        return done.module, _packing(done) if done.layouts else None
    result = definition.apply(dict(config), *definition.args)
    pack: Pack | None = None
    if isinstance(result, tuple) and len(result) == 2 and callable(result[1]):
        result, pack = result
    if hasattr(result, "mod") and hasattr(result, "get_sblock"):  # a schedule
        result = result.mod
    return computation.module_of(result), pack


def _packing(done: Scheduled) -> Pack:
    def pack(*arrays: np.ndarray) -> list[np.ndarray]:
        return [
            done.layouts[number].pack(array) if number in done.layouts else array
            for number, array in enumerate(arrays)
        ]

    return pack
