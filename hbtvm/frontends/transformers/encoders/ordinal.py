"""``OrdinalEncoder``, ``TargetEncoder``, and the encoders of labels."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.common import labels_of, one_of
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.encoders.categories import Known, encode, known_categories
from hbtvm.frontends.transformers.typed import accepting
from hbtvm.frontends.transformers.values import dtype_of, scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Cast, Encode, Lookup, Step, is_nan
from hbtvm.graph.columns.table import Column, Table


def ordinal(record: Record, table: Table, where: Where) -> Table:
    """``OrdinalEncoder``: a number for each category, for missing and for unknown values."""
    known = known_categories(record, len(table), where, apart=True)
    handling = one_of(record, "handle_unknown", ("error", "use_encoded_value"))
    dtype = dtype_of(record.get("dtype", np.dtype(np.float64)), where)
    cast = Cast("float32" if dtype == np.float32 else "float64")
    columns = []
    for column, categories in zip(accepting(table).columns, known, strict=True):
        codes = encode(categories, "error" if handling == "error" else "code", column, where)
        columns.append(codes.then(*_numbers(record, categories, handling, where), cast))
    return Table(tuple(columns), False, names_in(record, table))


def _numbers(record: Record, known: Known, handling: str, where: Where) -> tuple[Step, ...]:
    """Return the step from codes to numbers, if they differ."""
    values = np.append(known.groups, len(known.values)).astype(np.float64)
    if is_nan(known.values[-1]):
        values[-2] = _number(record, "encoded_missing_value", where)
    if handling == "use_encoded_value":
        values[-1] = _number(record, "unknown_value", where)
    if np.array_equal(values, np.arange(len(values))):
        return ()
    return (Lookup(values),)


def target(record: Record, table: Table, where: Where) -> Table:
    """``TargetEncoder``: the mean target of each category; the mean of all targets for unknown values."""
    known = known_categories(record, len(table), where, apart=True)
    kind = one_of(record, "target_type_", ("binary", "continuous", "multiclass"))
    labels = labels_of(record.get("classes_")) if kind == "multiclass" else None
    count = 1 if labels is None else len(labels)
    encodings = record.sequence("encodings_")
    means = np.atleast_1d(record.array("target_mean_", "biuf")).astype(np.float64)
    if len(encodings) != len(table) * count or means.shape != (count,):
        raise where.damaged(f"it has {len(encodings)} encodings of {len(table)} columns.")
    names = names_in(record, table)
    wide, columns, named = Cast("float64"), [], []
    for at, (column, categories) in enumerate(zip(accepting(table).columns, known, strict=True)):
        codes = encode(categories, "code", column, where)
        for c in range(count):
            values = as_array(encodings[at * count + c], f"an encoding of {where.step}", "biuf", 1)
            if len(values) != len(categories.values):
                raise where.damaged(f"it encodes {len(values)} of {len(categories.values)} categories.")
            columns.append(codes.then(Lookup(np.append(values, means[c]).astype(np.float64)), wide))
            suffix = "" if labels is None else f"_{labels[c]}"
            named.append("" if names is None else f"{names[at]}{suffix}")
    return Table(tuple(columns), False, None if names is None else tuple(named))


def _number(record: Record, name: str, where: Where) -> float:
    value = scalar(record.get(name, np.nan), f"the {name} of {where.step}")
    if isinstance(value, str) or value is None:
        raise where.damaged(f"its {name} is not a number.")
    return float(value)


def label_encoder(record: Record, table: Table, where: Where) -> Table:
    """``LabelEncoder`` on a single column of labels."""
    column = _only(table, where)
    encoder = Encode(tuple(labels_of(record.get("classes_")).tolist()), "error", where.column(column))
    return Table((column.then(encoder),), False, None)


def label_binarizer(record: Record, table: Table, where: Where) -> Table:
    """``LabelBinarizer``: a column for each label, or a single column for two labels."""
    if record.get("y_type_", "") not in ("binary", "multiclass"):
        raise where.unsupported("was fitted on several labels a row, which is not supported.")
    column = _only(table, where)
    labels = labels_of(record.get("classes_")).tolist()
    negative, positive = record.number("neg_label", 0), record.number("pos_label", 1)
    # Unknown labels are all zeros.
    encoder = Encode(tuple(labels), "code", where.column(column))
    wanted = range(1, len(labels)) if len(labels) == 2 else range(len(labels))
    columns = []
    for code in wanted if len(labels) > 1 else (-1,):
        values = np.full(len(encoder), negative)
        if code >= 0:
            values[code] = positive
        columns.append(column.then(encoder, Lookup(values)))
    return Table(tuple(columns), bool(record.get("sparse_output", False)), None)


def _only(table: Table, where: Where) -> Column:
    if len(table) != 1:
        raise where.damaged(f"it takes one column of labels, but gets {len(table)}.")
    return table.columns[0]
