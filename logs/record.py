"""A tuning record: a candidate, the machine, and the result.

A record is one line of JSON. Schema version 1 has these fields:

===================  =====================================================================
``version``          1
``workload``         object: the shape of the computation (no strategy, no weights)
``strategy``         name of the tensor program that computes it
``target``           object: the machine, see `hbtvm.logs.targets.target_key`
``config``           object: the choice at each knob
``times``            seconds of each repeat; empty if the candidate failed
``error``            null, or ``{"kind": ..., "message": ...}``
``build_seconds``    time spent compiling
``measure_seconds``  time spent measuring, waiting excluded
``tvm``, ``hbtvm``   versions of the compiler and of this project
``date``             time of the measurement: ISO 8601, UTC
``session``          null, or the name of the run
``model``            name of the model's file or class; a field of `Record.extra`, may be missing
===================  =====================================================================

Unknown fields are kept in `Record.extra` and written back. The tuner adds ``final`` (measured again, in turns
with the other finalists, see `hbtvm.logs.ranking`), ``calls`` (seconds of whole calls with a winner, by
container of the rows), ``waited`` and ``drift`` (the machine was busy, see `hbtvm.tuning.measuring.noise`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from hbtvm.logs.bounds import (
    RecordError,
    brief,
    check_marks,
    check_seconds,
    check_target,
    check_times,
    check_workload,
    is_name,
    parsed,
    plain,
)
from hbtvm.logs.targets import target_key

VERSION = 1  # schema version that this module writes, and the only one that it reads

_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)", re.ASCII)


def canonical(value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON; equal mappings give equal text.

    Raises `RecordError` if a value has no form in JSON.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"not JSON: {error}") from None


def utc_now() -> str:
    """Return the current time in the form of `Record.date`."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A candidate and the result of its measurement.

    Parameters
    ----------
    workload, strategy, target, config
        The candidate; see the module's table. Choices are ``int``, ``str`` or ``bool``.
    times
        Seconds of each repeat, all positive; empty if and only if `error` is set.
    error
        ``None``, or the keys ``kind`` and ``message``.
    build_seconds, measure_seconds
        Durations in seconds; 0 if unknown.
    tvm, hbtvm
        Version strings.
    date
        ISO 8601 in UTC; by default the current time.
    session
        Name of the run.
    extra
        Fields that a newer writer added.

    Raises
    ------
    RecordError
        If a field breaks the schema.
    """

    workload: Mapping[str, Any]
    strategy: str
    target: Mapping[str, Any]
    config: Mapping[str, int | str | bool]
    times: tuple[float, ...] = ()
    error: Mapping[str, str] | None = None
    build_seconds: float = 0.0
    measure_seconds: float = 0.0
    tvm: str = ""
    hbtvm: str = ""
    date: str = field(default_factory=utc_now)
    session: str | None = None
    version: int = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.version) is not int or self.version != VERSION:
            raise RecordError(f"version is {brief(self.version)}; this reader knows only {VERSION}")
        for name in ("workload", "target", "config", "extra"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise RecordError(f"{name} must be an object, not {brief(value)}")
            plain(name, value)
        check_workload(self.workload)
        check_target(self.target)
        check_marks(self.extra)
        for name in ("strategy", "tvm", "hbtvm"):
            if not is_name(getattr(self, name)):
                raise RecordError(f"{name} must be a string, not {brief(getattr(self, name))}")
        if not self.strategy:
            raise RecordError("strategy is empty")
        for knob, choice in self.config.items():
            if type(choice) not in (int, str, bool):
                raise RecordError(f"config[{knob!r}] must be an int, str or bool, not {brief(choice)}")
        check_times(self.times)
        object.__setattr__(self, "times", tuple(self.times))
        self._check_outcome()
        for name in ("build_seconds", "measure_seconds"):
            check_seconds(name, getattr(self, name))
        if not isinstance(self.date, str) or not _DATE.fullmatch(self.date):
            raise RecordError(f"date must be like 2025-01-31T12:00:00Z, not {brief(self.date)}")
        if self.session is not None and not is_name(self.session):
            raise RecordError(f"session must be a string, not {brief(self.session)}")

    def _check_outcome(self) -> None:
        if self.error is None:
            if not self.times:
                raise RecordError("a record needs times or an error")
            return
        if self.times:
            raise RecordError("a record has either times or an error, not both")
        if not isinstance(self.error, Mapping) or set(self.error) != {"kind", "message"}:
            raise RecordError(f"error must have kind and message, not {brief(self.error)}")
        if not is_name(self.error["kind"]) or not isinstance(self.error["message"], str):
            raise RecordError(f"error's kind and message must be strings, not {brief(self.error)}")
        plain("error", self.error)

    @cached_property
    def cost(self) -> float:
        """Median time in seconds; infinite if the candidate failed."""
        return statistics.median(self.times) if self.times else math.inf

    @cached_property
    def workload_key(self) -> str:
        """Key of the workload: equal if and only if the workloads are equal."""
        return canonical(self.workload)

    @cached_property
    def target_key(self) -> str:
        """Key of the machine: equal for machines whose times are comparable."""
        return target_key(self.target)

    @property
    def task(self) -> tuple[str, str, str]:
        """Workload, target and strategy, within which costs are comparable."""
        return self.workload_key, self.target_key, self.strategy

    def to_line(self) -> str:
        """Return the record as one line of JSON, without the newline.

        Equal records give equal lines. Raises `RecordError` if the workload, target or extra fields hold a
        value that JSON has no form for.
        """
        fields = {name: getattr(self, name) for name in _FIELDS}
        return canonical({**self.extra, **fields})

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """Read a record from one line of JSON; the inverse of `to_line`.

        Raises `RecordError` if the line is torn or foreign, breaks the schema or the bounds of
        `hbtvm.logs.bounds`, or has another schema version.
        """
        fields = parsed(line)
        if not isinstance(fields, dict):
            raise RecordError("not a JSON object")
        missing = _REQUIRED.difference(fields)
        if missing:
            raise RecordError(f"missing {', '.join(sorted(missing))}")
        known = {name: fields.pop(name) for name in _FIELDS if name in fields}
        return cls(**known, extra=fields)


_FIELDS = tuple(name for name in Record.__dataclass_fields__ if name != "extra")
_REQUIRED = frozenset({"version", "workload", "strategy", "target", "config", "date"})
