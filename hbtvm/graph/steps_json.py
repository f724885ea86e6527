"""Feeds and tables, with the steps and row operations that they share, as plain values for packages.

What is read is checked: whatever wrote it may be damaged, or newer than this hbtvm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph import curves, text_json
from hbtvm.graph import steps as kinds
from hbtvm.graph.feeds import Feed
from hbtvm.graph.row_operations import Normalize
from hbtvm.graph.steps import UFUNCS, Cast, Encode, Lookup, Step
from hbtvm.graph.table import AllColumns, Column, Joined, Made, Raw, RowOperation, Table, parts_of
from hbtvm.graph.text import Vectorize
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

    @property
    def reads_texts(self) -> bool:
        """Whether some operation cuts texts into terms, for which there is code beside the kernels."""
        sources = [feed.source for feed in self.feeds]
        tables = [] if self.table is None else [self.table]
        while tables:
            for part in parts_of(tables.pop().columns):
                if isinstance(part, AllColumns):
                    sources.append(Made(part.operation, 0))
                else:
                    sources += [column.source for column in part]
        seen = {source.operation for source in sources if isinstance(source, Made)}
        waiting = list(seen)
        while waiting:
            operation = waiting.pop()
            if isinstance(operation, Vectorize):
                return True
            inner = {one.source.operation for one in operation.inputs.columns if isinstance(one.source, Made)}
            waiting += inner - seen
            seen |= inner
        return False


def to_json(parts: Parts, add: text_json.Add | None = None) -> dict[str, Any]:
    """Return plain values from which `from_json` makes equal parts.

    Parameters
    ----------
    add
        Takes an array that is to be a member of its own; gives the member's name.

    Raises
    ------
    PackageError
        If something has no such form.
    """
    writer = _Writer(add)
    feeds = [
        {**writer.column(feed), "where": feed.where}
        for feed in parts.feeds
    ]  # fmt: skip
    table = None if parts.table is None else writer.table(parts.table)
    return {"steps": writer.steps, "operations": writer.operations, "feeds": feeds, "table": table}


def from_json(data: Any, n_features: int, tables: Mapping[str, np.ndarray] | None = None) -> Parts:
    """Return the parts whose `to_json` is given.

    Parameters
    ----------
    n_features
        Columns of the input.
    tables
        Members that are arrays, by name.

    Raises
    ------
    ValueError
        If the values make no sense.
    PackageError
        If it has steps that only a newer hbtvm knows.
    """
    given = _fields(data, {"steps", "operations", "feeds", "table"})
    reader = _Reader(n_features, tuple(_step(one) for one in _list(given["steps"])), tables or {})
    for one in _list(given["operations"]):
        reader.add_operation(one)
    feeds = tuple(reader.feed(one) for one in _list(given["feeds"]))
    return Parts(feeds, None if given["table"] is None else reader.table(given["table"]))


class _Writer:
    """Lists steps and operations once, however many columns share them."""

    def __init__(self, add: text_json.Add | None) -> None:
        self._add = add
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
        columns: list[Any] = []
        for part in parts_of(table.columns):
            if isinstance(part, AllColumns):
                columns.append({"all": self._operation(part.operation)})
            else:
                columns += [self.column(column) for column in part]
        return {"columns": columns, "sparse": bool(table.sparse), "names": names}

    def _source(self, source: Raw | Made) -> list[Any]:
        if isinstance(source, Raw):
            return ["raw", int(source.index)]
        return ["made", self._operation(source.operation), int(source.index)]

    def _operation(self, operation: RowOperation) -> int:
        at = self._at.get(id(operation))
        if at is None:
            if isinstance(operation, Vectorize):
                name, told = text_json.KIND, text_json.to_json(operation, self._add)
            else:
                name, fields = _kind(OPERATIONS, operation)
                told = {field: write(getattr(operation, field)) for field in fields}
            # After the operations that it reads: each reads earlier ones only.
            inputs = self.table(operation.inputs)
            at = self._at[id(operation)] = len(self.operations)
            self.operations.append({"kind": name, "inputs": inputs, **told})
        return at

    def _step(self, step: Step) -> int:
        at = self._at.get(id(step))
        if at is None:
            name, fields = _kind(STEPS, step)
            told = {field: write(getattr(step, field)) for field in fields}
            at = self._at[id(step)] = len(self.steps)
            self.steps.append({"kind": name, **told})
        return at


class _Reader:
    def __init__(self, n_features: int, steps: Sequence[Step], tables: Mapping[str, np.ndarray]) -> None:
        self._n_features, self._steps, self._tables = n_features, steps, tables
        self._operations: list[RowOperation] = []

    def add_operation(self, data: Any) -> None:
        if isinstance(data, dict) and data.get("kind") == text_json.KIND:
            rest = {name: value for name, value in data.items() if name not in ("kind", "inputs")}
            inputs = self.table(data.get("inputs"))
            self._operations.append(text_json.from_json(rest, inputs, self._tables))
            return
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
        columns = self._columns(_list(given["columns"]))
        names = None if given["names"] is None else items(text)(given["names"])
        if not columns or (names is not None and len(names) != len(columns)):
            raise ValueError(f"a table has {len(columns)} columns, and their names are {names!r:.100}")
        return Table(columns, boolean(given["sparse"]), names)

    def _columns(self, data: list[Any]) -> Sequence[Column]:
        parts: list[Sequence[Column]] = []
        single: list[Column] = []
        for one in data:
            if not (isinstance(one, dict) and set(one) == {"all"}):
                single.append(self._column(one))
                continue
            at = whole(one["all"])
            if at >= len(self._operations):
                raise ValueError(f"columns of operation {at}, but there are {len(self._operations)}")
            parts += [tuple(single)] if single else []
            parts.append(AllColumns(self._operations[at]))
            single = []
        if single or not parts:
            parts.append(tuple(single))
        return parts[0] if len(parts) == 1 else Joined(parts)

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
