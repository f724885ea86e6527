"""ColumnTransformers with refused transformers, which stay in Python; their results become input columns."""

from __future__ import annotations

import copy
from collections import UserList
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.runtime.branches import Branch, Branches

Parts = tuple[Branches, list[str], Record]


def split(transformer: Any, record: Record, compiles: Callable[[Record], bool]) -> Parts | None:
    """Return the refused transformers of a fitted ColumnTransformer, their names, and the record of the rest.

    The rest reads the ColumnTransformer's columns and behind them the results of the refused transformers.

    `record`: the ColumnTransformer's.
    `compiles`: whether a transformer's record compiles.
    Returns None if none is refused, or nothing else would be compiled.
    """
    parts, indices = record.get("transformers_", None), record.get("_transformer_to_input_indices", None)
    outputs = getattr(transformer, "output_indices_", None)
    if not isinstance(parts, list) or not isinstance(indices, dict) or outputs is None:
        return None
    live = {name: (estimator, columns) for name, estimator, columns in transformer.transformers_}
    active = [part[0] for part in parts if isinstance(part[1], Record) and len(indices.get(part[0], [])) > 0]
    alone = {name: _with(record, parts=[part for part in parts if part[0] == name]) for name in active}
    refused = [name for name in active if not compiles(alone[name])]
    if not refused or len(refused) == sum(part[1] != "drop" for part in parts):
        return None
    at = count = int(transformer.n_features_in_)
    branches, columns, places = [], list[str](), dict(indices)
    for name in refused:
        width = outputs[name].stop - outputs[name].start
        estimator, chosen = live[name]
        # Those of the remainder are a list of a class of scikit-learn's.
        chosen = list(chosen) if isinstance(chosen, UserList) else chosen
        branches.append(Branch(estimator, chosen, width))
        columns += [f"{name} of hbtvm {i}" for i in range(width)]
        places[name] = list(range(at, at + width))
        at += width
    rest = _with(
        record,
        parts=[(name, "passthrough" if name in refused else estimator, of) for name, estimator, of in parts],
        _transformer_to_input_indices=places,
        n_features_in_=at,
    )
    if "feature_names_in_" in record:
        names = [*transformer.feature_names_in_, *columns]
        rest.state["feature_names_in_"] = np.array(names, dtype=object)
    return Branches(branches, tuple(columns), count), refused, rest


def _with(record: Record, parts: list[Any], **state: Any) -> Record:
    changed = copy.copy(record)
    changed.state = {**record.attributes, "transformers_": parts, **state}
    changed._attributes = None
    return changed
