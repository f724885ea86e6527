"""Packages' facts on their kernels' computation and their machine: JSON objects, checked when read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from hbtvm.codec import Via
from hbtvm.graph.graph import Anchor
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.cpu import architecture
from hbtvm.runtime.package.signature import Dtype

_MOST = 2**40  # exclusive limit of counts

_COUNTS = {
    "trees": {"trees": 1, "nodes": 0, "leaves": 0, "depth": 0},
    "reasons": {"trees": 1, "nodes": 0, "leaves": 0, "depth": 0, "players": 1, "category_size": 0},
    "linear": {"numbers": 0, "categories": 0, "entries": 0},
    "columns": {},
    "network": {},
}
"""Counts and their least values, by operator."""


def _check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Check the facts of `anchor_facts`; return them."""
    operator = facts.get("operator")
    if not isinstance(operator, str) or operator not in _COUNTS:
        raise ValueError(f"operator is {operator!r:.100}")
    for name, least in {"n_features": 1, "n_outputs": 1, **_COUNTS[operator]}.items():
        value = facts.get(name)
        if type(value) is not int or not least <= value < _MOST:
            raise ValueError(f"{name} is {value!r:.100}")
    base: Any = facts.get("base_score")
    divisor: Any = facts.get("divisor")
    operators: Any = facts.get("operators")
    if not isinstance(base, list) or not all(map(_is_finite, [divisor, *base])) or divisor <= 0:
        raise ValueError(f"base_score is {base!r:.100}, divisor {divisor!r:.100}")
    if len(base) != facts["n_outputs"] or facts.get("compare_dtype") not in get_args(Dtype):
        raise ValueError(f"{len(base)} base scores, compare_dtype {facts.get('compare_dtype')!r:.100}")
    if operator == "reasons" and type(facts.get("negative_fraction_is_zero")) is not bool:
        raise ValueError(f"negative_fraction_is_zero is {facts.get('negative_fraction_is_zero')!r:.100}")
    if operator == "network" and not (
        isinstance(operators, list) and all(isinstance(operator, str) for operator in operators)
    ):
        raise ValueError(f"operators are {operators!r:.100}")
    return facts


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _check_target(target: dict[str, Any]) -> dict[str, Any]:
    """Check a machine's description (see `hbtvm.compiler.targets.target`); return it."""
    if target.get("kind") == "cuda":
        if not re.fullmatch(r"sm_\d{2,3}[af]?", str(target.get("arch"))):
            raise ValueError(f"the target's arch is {target.get('arch')!r:.100}")
        return target
    if target.get("kind") == "opencl":
        if not re.fullmatch(r"[a-z0-9.-]{1,60}", str(target.get("arch"))):
            raise ValueError(f"the target's arch is {target.get('arch')!r:.100}")
        threads = target.get("max_threads_per_block")
        if type(threads) is not int or threads < 1:
            raise ValueError(f"the target's max_threads_per_block is {threads!r:.100}")
        return target
    if not re.fullmatch(r"[0-9a-z_]{1,20}", architecture(target)):
        raise ValueError(f"the target's arch is {target.get('arch')!r:.100}")
    features: Any = target.get("features")
    plain = isinstance(features, list) and all(isinstance(feature, str) for feature in features)
    if not plain or not all(re.fullmatch(r"[0-9a-z._-]{1,40}", feature) for feature in features):
        raise ValueError(f"the target's features are {features!r:.100}")
    return target


def _check_cuda_version(version: str) -> str:
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", version):
        raise ValueError(f"the version of a CUDA toolkit is {version!r:.100}")
    return version


Facts = Annotated[Mapping[str, Any], Via(Mapping[str, Any], None, _check_facts)]
Target = Annotated[Mapping[str, Any], Via(Mapping[str, Any], None, _check_target)]
CudaVersion = Annotated[str, Via(str, None, _check_cuda_version)]


def anchor_facts(anchor: Anchor) -> dict[str, Any]:
    """Return the facts on the kernels' computation that the runtime and its user need.

    Its ``operator`` is ``"trees"``, ``"reasons"``, ``"linear"``, ``"columns"`` or ``"network"``.
    """
    if isinstance(anchor, TreeReasons):
        return {
            **forest_facts(anchor.ensemble),
            "operator": "reasons",
            "players": anchor.n_players,
            # How the kernel reads categories
            "category_size": max((len(one.member) for one in anchor.ensemble.category_sets), default=0),
            "negative_fraction_is_zero": anchor.ensemble.negative_fraction_is_zero,
            "n_outputs": anchor.n_outputs,
            "base_score": anchor.base_score.tolist(),
        }
    return forest_facts(anchor) if isinstance(anchor, TreeEnsemble) else anchor.facts()


def forest_facts(ensemble: TreeEnsemble) -> dict[str, Any]:
    """Return a forest's facts for the runtime and its user."""
    leaves = int(ensemble.is_leaf().sum())
    return {
        "operator": "trees",
        "n_features": ensemble.n_features,
        "n_outputs": ensemble.n_outputs,
        "compare_dtype": ensemble.compare_dtype,
        "base_score": ensemble.base_score.tolist(),
        "divisor": float(ensemble.divisor),
        "trees": ensemble.n_trees,
        "nodes": ensemble.n_nodes,
        "leaves": leaves,
        "depth": ensemble.max_depth(),
    }
