"""Steps of `hbtvm.graph.columns.steps` in the format of `hbtvm/native/arrow/arrow.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.graph.columns.curves import Bins, Quantile
from hbtvm.graph.columns.steps import (
    NA,
    Above,
    Arithmetic,
    Cast,
    Clip,
    Encode,
    Equals,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Missing,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.runtime.native.front.values import Codes, Constant, Kind, constant, of_encoder
from hbtvm.runtime.native.functions import EXACT, NUMBERS


class StepKind(IntEnum):
    """``enum feed_step_kind``."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    CLIP = 4
    WITHIN = 5
    ABOVE = 6
    CAST = 7
    FILL = 8
    IS_MISSING = 9
    ZERO_IS_MISSING = 10
    ENCODE = 11
    LOOKUP = 12
    EQUALS = 13
    BINS = 14
    QUANTILE = 15
    FUNCTION = 16


class MissingKind(IntEnum):
    """``enum missing``."""

    NONE = 0
    NAN = 1
    ANY = 2
    VALUE = 3


_OTHER_NAMES = {"fabs": "absolute", "deg2rad": "radians", "rad2deg": "degrees"}  # numpy's, of functions


@dataclass(frozen=True, eq=False)
class FrontStep:
    """``struct feed_step``; see there."""

    kind: StepKind
    flag: int = 0
    a: float = 0.0
    b: float = 0.0
    narrow: float = 0.0
    narrow_b: float = 0.0
    value: Constant = field(default_factory=Constant)
    lost: Constant = field(default_factory=Constant)
    codes: Codes | None = None
    table: np.ndarray | None = None  # float64; None if the step has none
    count: int = 0  # the value of the C structure's length


def front_steps(steps: Sequence[Step], where: str, exact: bool = True) -> tuple[FrontStep, ...]:
    """Convert steps.

    `where`: the column, for errors.
    `exact`: whether the last bits matter, as they do to trees.
    Raises `UnsupportedModel` if C can't compute one as numpy does; it names the step.
    """
    try:
        return tuple(_step(step, exact) for step in steps)
    except _Unknown as error:
        raise UnsupportedModel(f"{where}: {error} can't be computed outside of Python.") from None


class _Unknown(Exception):
    """C cannot compute a step."""


def _step(step: Step, exact: bool) -> FrontStep:
    if isinstance(step, Arithmetic):
        # Rounded to float32 before or after the operation.
        single = _narrow(step.constant)
        return FrontStep(
            StepKind[step.operation.upper()], int(step.cast), _number(step.constant), narrow=single
        )
    if isinstance(step, Clip | Within):
        kind = StepKind.CLIP if isinstance(step, Clip) else StepKind.WITHIN
        return FrontStep(
            kind, 0, _number(step.low), _number(step.high), _narrow(step.low), _narrow(step.high)
        )
    if isinstance(step, Above):
        return FrontStep(StepKind.ABOVE, a=_number(step.threshold), narrow=_narrow(step.threshold))
    if isinstance(step, Cast):
        return FrontStep(StepKind.CAST, int(step.dtype == "float64"))
    if isinstance(step, Fill | IsMissing):
        return _of_missing(step, step.missing)
    if isinstance(step, ZeroIsMissing):
        return FrontStep(StepKind.ZERO_IS_MISSING)
    if isinstance(step, Encode):
        return FrontStep(StepKind.ENCODE, codes=of_encoder(step))
    if isinstance(step, Lookup):
        return _of_table(StepKind.LOOKUP, step.values)
    if isinstance(step, Equals):
        return _of_table(StepKind.EQUALS, np.array(step.codes, np.float64))
    if isinstance(step, Bins):
        return _of_table(StepKind.BINS, step.edges)
    if isinstance(step, Quantile):
        table = np.concatenate([step.quantiles, step.references]).astype(np.float64)
        margin = _number(step.margin)
        return FrontStep(
            StepKind.QUANTILE, a=margin, narrow=_narrow(margin), table=table, count=len(step.quantiles)
        )
    if isinstance(step, Function):
        name = _OTHER_NAMES.get(step.name, step.name)
        if name not in (EXACT if exact else NUMBERS):
            raise _Unknown(f"numpy's function {step.name}")
        return FrontStep(StepKind.FUNCTION, NUMBERS[name])
    raise _Unknown(f"the step {type(step).__name__}")


def _of_missing(step: Fill | IsMissing, missing: Missing) -> FrontStep:
    lost, b, narrow_b = Constant(), 0.0, 0.0
    if missing is None:
        flag = MissingKind.NONE
    elif missing is NA:
        flag = MissingKind.ANY
    elif missing != missing:
        flag = MissingKind.NAN
    else:
        flag, lost = MissingKind.VALUE, _constant(missing)
        if lost.kind != Kind.TEXT:
            b, narrow_b = _number(missing), _narrow(missing)
    if isinstance(step, IsMissing):
        return FrontStep(StepKind.IS_MISSING, flag, b=b, narrow_b=narrow_b, lost=lost)
    value = _constant(step.value)
    number = value.kind in (Kind.INTEGER, Kind.UNSIGNED, Kind.NUMBER)
    a, narrow = (_number(step.value), _narrow(step.value)) if number else (np.nan, np.nan)
    return FrontStep(StepKind.FILL, flag, a, b, narrow, narrow_b, value, lost)


def _of_table(kind: StepKind, table: np.ndarray) -> FrontStep:
    return FrontStep(kind, table=np.ascontiguousarray(table, np.float64), count=len(table))


def _constant(value: Any) -> Constant:
    converted = constant(value)
    if converted is None:
        raise _Unknown(f"the value {value!r:.60}")
    return converted


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _Unknown(f"the number {value!r:.60}") from None


def _narrow(value: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(_number(value)))
