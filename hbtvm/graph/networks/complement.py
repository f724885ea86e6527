"""Forests of two classes whose shares add up to 1: reduce them to one score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import likeliest
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input

_ROUNDING = 1e-15
"""Rounding error allowed in a leaf's sum of two shares."""


def keep_second(graph: Graph, exact: bool) -> Graph:
    """Return a model without the first of two scores if it is 1 minus the second; any other unchanged.

    Kernels then look up and sum half the leaf values, and both probabilities follow from one score. A small
    difference to 1 needs a float64 score, so leaf values stay in float64 (`TreeEnsemble.precise`), unless
    float32 holds them exactly.

    Parameters
    ----------
    exact
        Whether to do so only if nothing is rounded, as in forests of pure leaves. Otherwise the first class's
        probability has an absolute (not relative) error of 1e-15: enough for outputs in float32 precision.
    """
    ensemble, single, scaled, output = graph.anchor, graph.single, graph.scaled, graph.output
    if not isinstance(ensemble, TreeEnsemble) or not isinstance(single, TreeEnsemble | None):
        return graph
    two = output.n_outputs == ensemble.value_width == 2 and [len(labels) for labels in output.classes] == [2]
    if not two or not isinstance(output.nodes.get("proba"), Input) or not _complementary(ensemble):
        return graph
    others = [single, None if scaled is None else scaled.ensemble]
    if not all(_complementary(other) for other in others if other is not None):
        return graph
    seconds = _second(ensemble)
    if exact and seconds.precise:
        return graph
    other = None if single is None else _second(single)
    if scaled is not None:
        scaled = replace(scaled, ensemble=_second(scaled.ensemble))
    output = replace(output, n_outputs=1, nodes=likeliest(Input(1)))
    return replace(graph, anchor=seconds, single=other, scaled=scaled, output=output)


def without_firsts(ensemble: TreeEnsemble) -> TreeEnsemble | None:
    """Return trees without the first of each pair of outputs if it is 1 minus the second; else None.

    Each pair of outputs is the mean over separate trees, as `hbtvm.graph.networks.join_trees` joins forests.
    """
    if ensemble.value_width != 2 or ensemble.n_outputs % 2 or np.any(ensemble.tree_output % 2):
        return None
    trees = np.bincount(ensemble.tree_output // 2, minlength=ensemble.n_outputs // 2)
    first, second = ensemble.value[ensemble.is_leaf()].T
    whole = bool(np.all(np.abs(first + second - 1) <= _ROUNDING))
    if not whole or ensemble.base_score.any() or np.any(trees != ensemble.divisor):
        return None
    value = np.ascontiguousarray(ensemble.value[:, 1:])
    return replace(
        ensemble,
        n_outputs=ensemble.n_outputs // 2,
        value=value,
        tree_output=(ensemble.tree_output // 2).astype(np.int32),
        base_score=ensemble.base_score[1::2],
        precise=bool(np.any(value != value.astype(np.float32))),
    )


def _second(ensemble: TreeEnsemble) -> TreeEnsemble:
    """Return trees without the first of two outputs."""
    value = np.ascontiguousarray(ensemble.value[:, 1:])
    precise = bool(np.any(value != value.astype(np.float32)))
    return replace(ensemble, n_outputs=1, value=value, base_score=ensemble.base_score[1:], precise=precise)


def _complementary(ensemble: TreeEnsemble) -> bool:
    """Return whether the two values of every leaf add up to 1, and scores are averages of leaf values."""
    first, second = ensemble.value[ensemble.is_leaf()].T
    averages = ensemble.divisor == ensemble.n_trees and not ensemble.base_score.any()
    return averages and bool(np.all(np.abs(first + second - 1) <= _ROUNDING))
