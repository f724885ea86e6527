"""CatBoost's JSON, as ``save_model(format="json")`` writes it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hbtvm.frontends.catboost.flatbuffers import damaged
from hbtvm.frontends.catboost.parts import (
    CTR_TYPES,
    NAN_TREATMENTS,
    Categorical,
    Combination,
    Counter,
    CounterTable,
    Numeric,
    Parts,
    StepTree,
    SymmetricTree,
)
from hbtvm.graph.trees.covers import cover_of
from hbtvm.words.printable import shown

_NO_HASH = (1 << 64) - 1


def read(content: bytes) -> Parts:
    """Read a file's content.

    Raises `ModelError` if it is damaged.
    """
    try:
        document = json.loads(content)
        return _model(document)
    except (
        ValueError,
        RecursionError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise damaged(f"{type(error).__name__}: {shown(error, most=200)}") from error


def _model(document: dict[str, Any]) -> Parts:
    features, info = document["features_info"], document["model_info"]
    if not isinstance(info, dict):
        raise ValueError("its model_info is not an object")
    scale, bias = document.get("scale_and_bias", (1.0, [0.0]))
    bias = _vector(bias if isinstance(bias, list) else [bias], "float64")
    categorical = features.get("categorical_features", [])
    trees = document.get("oblivious_trees")
    others = [kind for kind in ("text", "embedding") if features.get(f"{kind}_features")]
    counters = [_counter(counter) for counter in features.get("ctrs", [])]
    tables = document.get("ctr_data") or {}
    return Parts(
        [
            Numeric(
                int(feature["flat_feature_index"]),
                str(feature.get("feature_id", "")),
                _vector(feature.get("borders") or [], "float32"),
                NAN_TREATMENTS[NAN_TREATMENTS.index(feature.get("nan_value_treatment", "AsIs"))],
            )
            for feature in features.get("float_features", [])
        ],
        [
            Categorical(int(feature["flat_feature_index"]), str(feature.get("feature_id", "")))
            for feature in categorical
        ],
        [
            (int(feature["feature_index"]), _vector(feature["values"], "int32"))
            for feature in categorical
            if feature.get("values")
        ],
        counters,
        [_symmetric(tree, len(bias)) for tree in trees]
        if trees is not None
        else [_steps(tree, len(bias)) for tree in document["trees"]],
        float(scale),
        bias,
        info,
        {counter.key: _table(tables[counter.key], counter.kind) for counter in counters},
        tuple(others),
    )  # fmt: skip


def _vector(values: Any, dtype: str) -> np.ndarray:
    """Return numbers as an array of one dimension. Raises `ValueError` if they have another number."""
    with np.errstate(over="ignore"):
        result = np.array(values, dtype)
    if result.ndim != 1:
        raise ValueError("expected a list of numbers")
    return result


def _counter(counter: dict[str, Any]) -> Counter:
    elements = counter["elements"]

    def pairs(kind: str, feature: str, value: str) -> tuple[tuple[int, Any], ...]:
        return tuple(
            (int(element[feature]), element[value])
            for element in elements
            if element["combination_element"] == kind
        )

    categories = pairs("cat_feature_value", "cat_feature_index", "cat_feature_index")
    above = pairs("float_feature", "float_feature_index", "border")
    equal = pairs("cat_feature_exact_value", "cat_feature_index", "value")
    if len(categories) + len(above) + len(equal) != len(elements):
        raise ValueError("a counter has unknown elements")
    return Counter(
        str(counter["identifier"]),
        Combination(
            tuple(index for index, _ in categories),
            tuple((index, float(border)) for index, border in above),
            tuple((index, int(value)) for index, value in equal),
        ),
        CTR_TYPES[CTR_TYPES.index(counter["ctr_type"])],
        int(counter["target_border_idx"]),
        (float(counter["prior_numerator"]), float(counter["prior_denomerator"])),
        float(counter["shift"]),
        float(counter["scale"]),
        _vector(counter["borders"], "float32"),
    )


def _table(table: dict[str, Any], kind: str) -> CounterTable:
    stride, flat = int(table["hash_stride"]), table["hash_map"]
    if stride < 2 or len(flat) % stride:
        raise ValueError("a table of counters has an odd size")
    rows = [
        (int(flat[at]), flat[at + 1 : at + stride])
        for at in range(0, len(flat), stride)
        if int(flat[at]) != _NO_HASH
    ]
    return CounterTable(
        np.array([hashed for hashed, _ in rows], np.uint64),
        np.array([counts for _, counts in rows], np.float64).reshape(len(rows), stride - 1),
        int(table.get("counter_denominator", 0)),
    )


def _symmetric(tree: dict[str, Any], width: int) -> SymmetricTree:
    splits = [int(split["split_index"]) for split in tree.get("splits") or []]
    values = np.array(tree["leaf_values"], np.float64)
    if values.size != width << min(len(splits), 40):
        raise ValueError(f"a tree of {len(splits)} splits has {values.size} leaf values")
    weight = cover_of(tree.get("leaf_weights"), values.size // width)
    return SymmetricTree(np.array(splits, np.int64), values.reshape(-1, width), weight)


def _steps(tree: dict[str, Any], width: int) -> StepTree:
    nodes, children, values, weights = [tree], [], [], []
    for node in nodes:  # grows
        if "split" in node:
            children.append((int(node["split"]["split_index"]), len(nodes), len(nodes) + 1))
            nodes += [node["left"], node["right"]]
            values.append(np.zeros(width))
        else:
            children.append((-1, -1, -1))
            values.append(np.array(node["value"], np.float64).reshape(width))
        weights.append(node.get("weight", 0.0 if "split" in node else None))
    split, left, right = np.array(children, np.int64).T
    number = _numbers(left.tolist(), right.tolist())
    return StepTree(split, left, right, np.stack(values), number, cover_of(weights, len(nodes)))


def _numbers(left: list[int], right: list[int]) -> np.ndarray:
    """Return the numbers of leaves from left to right, as CatBoost numbers those of a JSON; 0 at splits."""
    numbers, count, open_nodes = np.zeros(len(left), np.int64), 0, [0]
    while open_nodes:
        node = open_nodes.pop()
        if left[node] >= 0:
            open_nodes += [right[node], left[node]]
        else:
            numbers[node] = count
            count += 1
    return numbers
