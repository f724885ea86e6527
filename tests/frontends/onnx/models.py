"""Small ONNX models made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "str": TensorProto.STRING,
    "bool": TensorProto.BOOL,
}
VERSIONS = {"": 18, "ai.onnx.ml": 3, "com.microsoft": 1}


def node(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any
) -> Any:
    """A node; attributes that are None are left out."""
    given = {name: value for name, value in attributes.items() if value is not None}
    return helper.make_node(kind, inputs, outputs, domain=domain, name=f"n_{outputs[0]}", **given)


def model(
    nodes: Sequence[Any],
    outputs: Mapping[str, str],
    *,
    inputs: Mapping[str, tuple[str, Sequence[int | None]]],
    constants: Mapping[str, np.ndarray] | None = None,
    versions: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of nodes.

    Parameters
    ----------
    outputs, inputs
        Names with their kinds (`KINDS`), and shapes.
    """
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, KINDS[kind], None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    wanted = {**VERSIONS, **(versions or {})}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*one) for one in wanted.items()], ir_version=9
    )


def trees(
    seed: int,
    *,
    count: int = 3,
    depth: int = 3,
    features: int = 3,
    modes: Sequence[str] = ("BRANCH_LEQ",),
    targets: Sequence[int] = (0,),
    values: Sequence[float] = (-1.0, -0.5, 0.0, 0.25, 0.5, 1.0),
    negative: bool = True,
    missing: bool = False,
    kind: str = "target",
) -> dict[str, Any]:
    """Attributes of random trees; each leaf adds to all targets."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {
        name: []
        for name in (
            *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values"),
            *("nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true"),
            *(f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids", f"{kind}_weights"),
        )
    }

    def grow(tree: int, level: int, ids: list[int]) -> int:
        own = len(ids)
        ids.append(own)
        at = len(found["nodes_treeids"])
        leaf = level == depth or (level and rng.random() < 0.2)
        for name, value in (
            ("nodes_treeids", tree),
            ("nodes_nodeids", own),
            ("nodes_featureids", 0 if leaf else int(rng.integers(features))),
            ("nodes_modes", "LEAF" if leaf else str(rng.choice(list(modes)))),
            ("nodes_values", 0.0 if leaf else float(rng.choice(list(values)))),
            ("nodes_truenodeids", 0),
            ("nodes_falsenodeids", 0),
            ("nodes_missing_value_tracks_true", int(missing and not leaf and rng.random() < 0.5)),
        ):
            found[name].append(value)
        if leaf:
            for target in targets:
                weight = float(rng.normal()) if negative else float(rng.random() / count)
                for name, value in (
                    ("treeids", tree),
                    ("nodeids", own),
                    ("ids", target),
                    ("weights", weight),
                ):
                    found[f"{kind}_{name}"].append(value)
        else:
            found["nodes_truenodeids"][at] = grow(tree, level + 1, ids)
            found["nodes_falsenodeids"][at] = grow(tree, level + 1, ids)
        return own

    for tree in range(count):
        grow(tree, 0, [])
    return found


def rows(seed: int, columns: int = 3, count: int = 200, missing: bool = False) -> np.ndarray:
    """Rows of float32, many of them on the thresholds of `trees`, or next to them."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0], (count, columns)).astype(np.float32)
    near = rng.random(X.shape)
    X = np.where(near < 0.2, np.nextafter(X, np.float32(9)), X)
    X = np.where(near > 0.8, np.nextafter(X, np.float32(-9)), X)
    X[0], X[1] = np.inf, -np.inf
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    return X.astype(np.float32)
