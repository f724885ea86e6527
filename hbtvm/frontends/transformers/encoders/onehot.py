"""``OneHotEncoder``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.dispatch import names_in, require_width
from hbtvm.frontends.transformers.encoders.categories import Known, encode, known_categories
from hbtvm.frontends.transformers.typed import accepting
from hbtvm.frontends.transformers.values import dtype_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Cast, Equals
from hbtvm.graph.columns.table import Column, Table

_INFREQUENT = "infrequent_sklearn"


def one_hot(record: Record, table: Table, where: Where) -> Table:
    """``OneHotEncoder``: a column for each category not dropped; infrequent categories share a column."""
    known = known_categories(record, len(table), where)
    handling = one_of(record, "handle_unknown", ("error", "ignore", "infrequent_if_exist", "warn"))
    dropped = _dropped(record, known, where)
    cast = Cast(_float(record, where))
    names = names_in(record, table)
    if record.get("feature_name_combiner", "concat") != "concat":
        names = None
    columns: list[Column] = []
    named: list[str] = []
    for at, (column, categories) in enumerate(zip(accepting(table).columns, known, strict=True)):
        codes = encode(categories, "error" if handling == "error" else "code", column, where)
        groups = _groups(categories, handling, dropped[at])
        require_width(len(columns) + len(groups), where)
        for group in groups:
            columns.append(codes.then(Equals(group.codes), cast))
            named.append("" if names is None else f"{names[at]}_{group.text}")
    # Releases before 1.2 called it `sparse`.
    sparse = bool(record.get("sparse_output", record.get("sparse", True)))
    return Table(tuple(columns), sparse, None if names is None else tuple(named))


@dataclass(frozen=True)
class _Group:
    """The codes of an output column, and its name."""

    codes: tuple[int, ...]
    text: str


def _groups(known: Known, handling: str, dropped: int | None) -> list[_Group]:
    count = int(known.groups.max()) + 1
    result = []
    for number, codes in enumerate(_by_group(known.groups, count)):
        if number == dropped:
            continue
        if number == known.infrequent:
            if handling in ("infrequent_if_exist", "warn"):
                codes = (*codes, len(known.values))
            result.append(_Group(codes, _INFREQUENT))
        else:
            result.append(_Group(codes, known.texts[codes[0]]))
    return result


def _by_group(groups: np.ndarray, count: int) -> list[tuple[int, ...]]:
    """Return the codes of each group."""
    members: list[list[int]] = [[] for _ in range(count)]
    for code, group in enumerate(groups.tolist()):
        members[group].append(code)
    return [tuple(codes) for codes in members]


def _dropped(record: Record, known: list[Known], where: Where) -> list[int | None]:
    """Return the group that each column drops, if any."""
    # Releases before 1.1 had no infrequent categories, and a single attribute.
    stored: Any = record.get("_drop_idx_after_grouping", record.get("drop_idx_", None))
    if stored is None:
        return [None] * len(known)
    items = stored.items if isinstance(stored, ObjectArray) else np.asarray(stored).tolist()
    if len(items) != len(known):
        raise where.damaged(f"it drops categories of {len(items)} columns, not {len(known)}.")
    result: list[int | None] = []
    for item, categories in zip(items, known, strict=True):
        if item is not None and not 0 <= int(item) <= int(categories.groups.max()):
            raise where.damaged("it drops a category that does not exist.")
        result.append(None if item is None else int(item))
    return result


def _float(record: Record, where: Where) -> Literal["float32", "float64"]:
    """Return the type of its columns for later steps: whole numbers become float64."""
    dtype = dtype_of(record.get("dtype", np.dtype(np.float64)), where)
    return "float32" if dtype == np.float32 else "float64"
