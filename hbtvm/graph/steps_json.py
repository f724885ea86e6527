"""Feeds and tables, with the steps and row operations that they share, as plain values for packages.

What is read is checked: whatever wrote it may be damaged, or newer than this hbtvm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.errors import PackageError
from hbtvm.graph import curves
from hbtvm.graph import steps as kinds
from hbtvm.graph.feeds import Feed
from hbtvm.graph.row_operations import Normalize
from hbtvm.graph.steps import UFUNCS, Cast, Encode, Lookup, Step
from hbtvm.graph.table import Column, Made, Raw, RowOperation, Table
from hbtvm.graph.values_json import (
    Check,
    array,
    boolean,
    choice,
    items,
    missing,
    number,
    rising,
    scalar,
    text,
    whole,
    write,
)

Fields = Mapping[str, Check]
"""A class's arguments, and what reads them."""

STEPS: dict[str, tuple[type[Step], Fields]] = {
    "arithmetic": (
        kinds.Arithmetic,
        {
            "operation": choice(("subtract", "divide", "multiply", "add")),
            "constant": number,
            "cast": boolean,
        },
    ),
    "clip": (kinds.Clip, {"low": number, "high": number}),
    "within": (kinds.Within, {"low": number, "high": number}),
    "above": (kinds.Above, {"threshold": number}),
    "cast": (kinds.Cast, {"dtype": choice(("float32", "float64"))}),
    "function": (kinds.Function, {"name": choice(UFUNCS)}),
    "fill": (kinds.Fill, {"value": scalar, "missing": missing}),
    "is_missing": (kinds.IsMissing, {"missing": missing}),
    "zero_is_missing": (kinds.ZeroIsMissing, {}),
    "encode": (
        kinds.Encode,
        {"categories": items(scalar), "unknown": choice(("error", "code")), "where": text},
    ),
    "lookup": (kinds.Lookup, {"values": array}),
    "equals": (kinds.Equals, {"codes": items(whole)}),
    "bins": (curves.Bins, {"edges": rising}),
    "quantile": (curves.Quantile, {"quantiles": rising, "references": rising, "margin": number}),
    "normal_quantile": (curves.NormalQuantile, {}),
    "power": (
        curves.Power,
        {"method": choice(("yeo-johnson", "box-cox")), "exponent": number, "narrow": boolean},
    ),
}
"""Steps by the name that they have in packages."""

OPERATIONS: dict[str, tuple[type[RowOperation], Fields]] = {
    "normalize": (Normalize, {"norm": choice(("l1", "l2", "max")), "sparse": boolean}),
}
"""Row operations by the name that they have in packages; all take ``inputs``, beside these fields."""


@dataclass(frozen=True)
class Parts:
    """What of a graph stands in front of its kernel.

    Attributes
    ----------
    feeds
        The columns of the kernel's matrix.
    table
        What a pipeline returns that transforms; None for one that predicts.
    """

    feeds: tuple[Feed, ...] = ()
    table: Table | None = None


def to_json(parts: Parts) -> dict[str, Any]:
    """Return plain values from which `from_json` makes equal parts.

    Raises
    ------
    PackageError
        If something has no such form.
    """
    writer = _Writer()
    feeds = [
        {**writer.column(feed), "where": feed.where}
        for feed in parts.feeds
    ]  # fmt: skip
    table = None if parts.table is None else writer.table(parts.table)
    return {"steps": writer.steps, "operations": writer.operations, "feeds": feeds, "table": table}


def from_json(data: Any, n_features: int) -> Parts:
    """Return the parts whose `to_json` is given.

    Parameters
    ----------
    n_features
        Columns of the input.

    Raises
    ------
    ValueError
        If the values make no sense.
    PackageError
        If it has steps that only a newer hbtvm knows.
    """
    given = _fields(data, {"steps", "operations", "feeds", "table"})
    reader = _Reader(n_features, tuple(_step(one) for one in _list(given["steps"])))
    for one in _list(given["operations"]):
        reader.add_operation(one)
    feeds = tuple(reader.feed(one) for one in _list(given["feeds"]))
    return Parts(feeds, None if given["table"] is None else reader.table(given["table"]))


class _Writer:
    """Lists steps and operations once, however many columns share them."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.operations: list[Any] = []
        self._at: dict[int, int] = {}

    def column(self, column: Column | Feed) -> dict[str, Any]:
        return {
            "source": self._source(column.source),
            "steps": [self._step(step) for step in column.steps],
            "allow_nan": column.allow_nan,
            "allow_inf": column.allow_inf,
        }

    def table(self, table: Table) -> dict[str, Any]:
        names = None if table.names is None else list(map(str, table.names))
        columns = [self.column(column) for column in table.columns]
        return {"columns": columns, "sparse": table.sparse, "names": names}

    def _source(self, source: Raw | Made) -> list[Any]:
        if isinstance(source, Raw):
            return ["raw", int(source.index)]
        operation = source.operation
        at = self._at.get(id(operation))
        if at is None:
            name, fields = _kind(OPERATIONS, operation)
            # After the operations that it reads: each reads earlier ones only.
            inputs = self.table(operation.inputs)
            told = {field: write(getattr(operation, field)) for field in fields}
            at = self._at[id(operation)] = len(self.operations)
            self.operations.append({"kind": name, "inputs": inputs, **told})
        return ["made", at, int(source.index)]

    def _step(self, step: Step) -> int:
        at = self._at.get(id(step))
        if at is None:
            name, fields = _kind(STEPS, step)
            told = {field: write(getattr(step, field)) for field in fields}
            at = self._at[id(step)] = len(self.steps)
            self.steps.append({"kind": name, **told})
        return at


class _Reader:
    def __init__(self, n_features: int, steps: Sequence[Step]) -> None:
        self._n_features, self._steps = n_features, steps
        self._operations: list[RowOperation] = []

    def add_operation(self, data: Any) -> None:
        cls, fields = _known(OPERATIONS, data, "an operation")
        given = _fields(data, {"kind", "inputs", *fields})
        values = {name: read(given[name]) for name, read in fields.items()}
        operation: Any = cls
        self._operations.append(operation(inputs=self.table(given["inputs"]), **values))

    def feed(self, data: Any) -> Feed:
        given = dict(_fields(data, {"source", "steps", "allow_nan", "allow_inf", "where"}))
        where = text(given.pop("where"))
        column = self._column(given)
        return Feed(column.source, column.steps, column.allow_nan, column.allow_inf, where)

    def table(self, data: Any) -> Table:
        given = _fields(data, {"columns", "sparse", "names"})
        columns = tuple(map(self._column, _list(given["columns"])))
        names = None if given["names"] is None else items(text)(given["names"])
        if not columns or (names is not None and len(names) != len(columns)):
            raise ValueError(f"a table has {len(columns)} columns, and their names are {names!r:.100}")
        return Table(columns, boolean(given["sparse"]), names)

    def _column(self, data: Any) -> Column:
        given = _fields(data, {"source", "steps", "allow_nan", "allow_inf"})
        at = items(whole)(given["steps"])
        if any(one >= len(self._steps) for one in at):
            raise ValueError(f"a column's steps are {at!r:.100}, but there are {len(self._steps)}")
        steps = tuple(self._steps[one] for one in at)
        _check_codes(steps)
        return Column(
            self._source(given["source"]), steps, boolean(given["allow_nan"]), boolean(given["allow_inf"])
        )

    def _source(self, data: Any) -> Raw | Made:
        kind, *at = _list(data) or [None]
        at = list(items(whole)(at))
        if kind == "raw" and len(at) == 1 and at[0] < self._n_features:
            return Raw(at[0])
        if kind == "made" and len(at) == 2 and at[0] < len(self._operations):
            operation = self._operations[at[0]]
            if at[1] < operation.width:
                return Made(operation, at[1])
        raise ValueError(f"a column's source is {data!r:.100}")


def _step(data: Any) -> Step:
    cls, fields = _known(STEPS, data, "a step")
    given = _fields(data, {"kind", *fields})
    made: Any = cls
    step: Step = made(**{name: read(given[name]) for name, read in fields.items()})
    if isinstance(step, curves.Quantile) and not 0 < len(step.quantiles) == len(step.references):
        raise ValueError(f"{len(step.quantiles)} quantiles have {len(step.references)} shares")
    return step


def _check_codes(steps: Sequence[Step]) -> None:
    """Numbers are looked up by codes only, and there is one for each code."""
    codes = 0
    for step in steps:
        if isinstance(step, Lookup) and not 0 < codes <= len(step.values):
            raise ValueError(f"{len(step.values)} numbers are looked up by {codes} codes")
        if isinstance(step, Encode):
            codes = len(step)
        elif not isinstance(step, Cast):
            codes = 0


def _kind(known: Mapping[str, tuple[type, Fields]], value: Any) -> tuple[str, Fields]:
    for name, (cls, fields) in known.items():
        if type(value) is cls:
            return name, fields
    raise PackageError(f"can't pack a {type(value).__name__}: packages have no form of it.")


def _known(known: Mapping[str, tuple[type, Fields]], data: Any, what: str) -> tuple[type, Fields]:
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"{what} is {data!r:.100}")
    if kind not in known:
        raise PackageError(
            f"was made by a newer hbtvm: it has {what} {kind!r:.60} that this one does not know"
        )
    return known[kind]


def _fields(data: Any, names: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict) or set(data) != names:
        raise ValueError(f"expected the fields {', '.join(sorted(names))}, got {data!r:.100}")
    return data


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"expected a list, got {data!r:.100}")
    return data
