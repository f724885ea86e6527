"""Workloads and targets: the shapes of a model and a batch, and the machine.

Both are dictionaries of plain JSON values, and part of the key of tuning records: renaming an entry or
changing its type would invalidate every log.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints


class Workload(TypedDict):
    """Shapes and types of a forest and of a call, see `hbtvm.strategies.workload_of`."""

    # `rows`, `threads`: rows of a call, and threads that it may use; 1 if a call is too short to share
    rows: int
    threads: int
    features: int  # columns of the input
    # `numeric`, `categorical`: columns that kernels compare (see `hbtvm.strategies.trees.forest`): values,
    # and category tests
    numeric: int
    categorical: int
    # `category_words`, `category_size`: 32-bit words of a category test's table, and one more than the
    # largest category
    category_words: int
    category_size: int
    negative_fraction_is_zero: bool  # whether -0.5, as a category, is category 0
    # `fills_missing`, `zeros_missing`: whether any numeric column replaces NaN, or treats zeros as missing
    fills_missing: bool
    zeros_missing: bool
    # `groups`, `trees`, `width`: groups of outputs, most trees of a group, and outputs of a group
    groups: int
    trees: int
    width: int
    # `nodes`, `leaves`, `depth`: nodes and leaves of the largest tree, and splits on the longest path
    nodes: int
    leaves: int
    depth: int
    rank_bits: int  # bits to count the distinct thresholds of any column
    # `dtype`, `value_dtype`: types of the input (of what trees compare, in a `PrologueWorkload`) and of leaf
    # values
    dtype: Literal["float32", "float64"]
    value_dtype: Literal["float32", "float64"]


RANK_GROUP = 7  # thresholds of a group, whose count takes three bits (see `WideWorkload`)


class WideWorkload(Workload):
    """Workload of a wide forest for GPUs, whose kernels may count thresholds group by group."""

    rank_groups: int  # number of groups of up to `RANK_GROUP` neighbouring thresholds, over all columns


class ObliviousWorkload(Workload):
    """Workload of a forest in which all splits of a level of a tree make the same test."""

    oblivious: bool


class ApartWorkload(Workload):
    """Workload of a forest for CPUs in which each tree has outputs of its own; `groups` is 1."""

    apart: int  # number of trees, a multiple of `hbtvm.strategies.trees.forest.APART`; some may be missing


class DigitsWorkload(ObliviousWorkload):
    """Workload of such a forest whose leaf values digits can hold, see `hbtvm.strategies.trees.digits`."""

    leaf_digits: bool


class PrologueWorkload(Workload):
    """Workload of a forest whose kernels compute the compared numbers from float64 rows."""

    # Names of the operations of any column (`hbtvm.graph.trees.prologue.OPERATIONS`), separated by spaces;
    # the results are rounded to `dtype`
    prologue: str


class ReasonsWorkload(Workload):
    """Workload of the Shapley values of a forest."""

    family: Literal["reasons"]
    splits: int  # mean number of splits of a tree
    # `players`, `points`: scores of a row for each output of the forest, and points of the quadrature
    players: int
    points: int


class LinearWorkload(TypedDict):
    """Shapes and types of a linear model and of a call; strategies for these `cast` a `Workload` to it."""

    family: Literal["linear"]  # ``"linear"``; forests' workloads have no such entry
    # `rows`, `threads`: as in `Workload`
    rows: int
    threads: int
    features: int  # columns of the input
    # `numbers`, `codes`: weighted columns, and columns of codes with a table each
    numbers: int
    codes: int
    entries: int  # of all tables together
    outputs: int  # scores of a row
    in_order: bool  # whether number k is column k
    # `shifts`, `fills_missing`: whether numbers are shifted first, and whether NaN has a separate value
    shifts: bool
    fills_missing: bool
    dtype: Literal["float32", "float64"]  # type of the input; sums are in float64


class _NetworkShapes(TypedDict):
    family: str
    rows: int
    threads: int
    features: int
    outputs: int
    widest: int
    operations: int
    nodes: list[dict[str, Any]]
    dtype: Literal["float32", "float64"]


class NetworkWorkload(_NetworkShapes, total=False):
    """Shapes of a network of operators and of a call, as `LinearWorkload`.

    `family`: the dominant kind of work: ``"contract"``, ``"distance"``, ``"select"`` or ``"pointwise"``.
    `rows`, `threads`: as in `Workload`.
    `features`, `outputs`: columns of the input, and scores of a row.
    `widest`: columns of the widest node.
    `operations`: estimated multiplications for a row.
    `nodes`: kind, width, inputs, attributes and shapes of tables of each node, after its inputs (see
        `hbtvm.operators.base.form`).
    `dtype`: type of the input; kernels compute in float64, except for nodes with ``"single"``.
    """

    scores: Literal["float32", "float64"]  # type of the scores; by default float64
    narrow_sums: bool  # whether products may sum in float32 where the error's bound allows; by default not


def family_of(workload: Mapping[str, Any]) -> str:
    """Return the family of a workload, perhaps from a log: ``"trees"``, ``"linear"``, or others."""
    return str(workload.get("family", "trees"))


def prologue_of(workload: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the operations of a `PrologueWorkload`, perhaps none; None for other workloads."""
    known = workload.get("prologue")
    return None if known is None else tuple(str(known).split())


def apart_of(workload: Mapping[str, Any]) -> int:
    """Return the number of trees of an `ApartWorkload`; 0 for other workloads."""
    return int(workload.get("apart", 0))


def rank_groups_of(workload: Mapping[str, Any]) -> int:
    """Return the number of groups of a `WideWorkload`; 0 for other workloads."""
    return int(workload.get("rank_groups", 0))


def row_dtype_of(workload: Mapping[str, Any]) -> Literal["float32", "float64"]:
    """Return the type of the rows that kernels for a workload read."""
    dtype: Literal["float32", "float64"] = "float64" if "prologue" in workload else workload["dtype"]
    return dtype


class Target(TypedDict, total=False):
    """A machine, as `hbtvm.compiler.targets.target.resolve` describes it."""

    kind: str  # ``"llvm"`` for a CPU, ``"cuda"`` or ``"opencl"`` for a GPU; always present
    # `mcpu`, `features`, `vector_bits`: a CPU's name in LLVM, instruction sets for kernels, and bits of its
    # widest vector
    mcpu: str
    features: list[str]
    vector_bits: int
    # A CUDA GPU's architecture, such as ``"sm_90"``, or an OpenCL device's name; for a CPU ``"aarch64"``, or
    # absent for x86-64. All entries below are of GPUs.
    arch: str
    # `max_threads_per_block`, `thread_warp_size`: most threads of a block, and threads of a warp
    max_threads_per_block: int
    thread_warp_size: int
    max_shared_memory_per_block: int  # bytes
    # `registers_per_block`, `max_registers_per_thread`: registers of 32 bits
    registers_per_block: int
    max_registers_per_thread: int
    # Multiprocessors of the device, else the usual number of the architecture; absent if unknown
    cores: int


_NOT_SIZES = frozenset({"kind", "features", "arch"})
_CPU = frozenset({"kind", "features", "vector_bits"})
_GPU = frozenset(
    {
        "kind", "arch", "max_threads_per_block", "thread_warp_size", "max_shared_memory_per_block",
        "registers_per_block", "max_registers_per_thread",
    }
)  # fmt: skip
"""Required entries of a target of each kind."""

_ARCH = {"cuda": r"sm_[0-9]{2,3}[af]?", "opencl": r"[a-z0-9.-]{1,60}"}


def is_known(workload: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether a workload and target, perhaps from a log, have the entries that schedules read."""
    family = family_of(workload)
    if family == "trees":
        forms: list[type] = [Workload]
        more = {
            "prologue": PrologueWorkload,
            "rank_groups": WideWorkload,
            "oblivious": ObliviousWorkload,
            "leaf_digits": DigitsWorkload,
            "apart": ApartWorkload,
        }
        forms += [form for name, form in more.items() if name in workload]
    elif family == "reasons":
        forms = [ReasonsWorkload]
    else:
        forms = [LinearWorkload if family == "linear" else NetworkWorkload]
    machine = _GPU if target.get("kind") in _ARCH else _CPU
    sizes = [target.get(name) for name in machine if name not in _NOT_SIZES]
    return (
        all(_has_form(workload, form) for form in forms)
        and machine <= target.keys()
        and _has_form(target, Target)
        and all(isinstance(size, int) and size > 0 for size in sizes)
        and (machine is _CPU or re.fullmatch(_ARCH[target["kind"]], str(target["arch"])) is not None)
    )


def _has_form(value: Mapping[str, Any], form: Any) -> bool:
    hints = _hints(form)
    return form.__required_keys__ <= value.keys() and all(
        _is_of(value[name], hint) for name, hint in hints.items() if name in value
    )


@functools.cache
def _hints(form: Any) -> dict[str, Any]:
    return get_type_hints(form)


def _is_of(value: object, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is list:
        (entry,) = get_args(hint)
        return isinstance(value, list) and all(isinstance(item, get_origin(entry) or entry) for item in value)
    return type(value) is hint
