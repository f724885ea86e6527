"""The view of reasons: what each raw column contributes to the raw scores.

Trees have Shapley values (`hbtvm.graph.reasons.anchor`). All columns that steps derive from a raw column are
one player, whose steps the trees' splits contain. Linear models have the terms of their sums: a number's is 0
where its scaler gives 0, such as at the training rows' mean, and a category's is relative to the mean over
categories. Networks that are sums of functions of single columns have those functions
(`hbtvm.graph.views.additive`). Additive models have their own terms; of a term of two columns, each has half.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hbtvm.graph.columns.table import raws_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import PER_NODE, TreeEnsemble
from hbtvm.graph.views.additive import Additive, Sum, by_place, score_of, terms
from hbtvm.graph.views.combined import as_one_forest
from hbtvm.graph.views.view import NoView, trees_of, view_of

_MOST_WEIGHTS = 1 << 24  # of a linear model's view, which has a weight for each number and raw column


def reasons(graph: Graph) -> Graph:
    """Return the view of contributions, of shape (raw scores, raw columns + 1); the last is the base value.

    Classifiers of two classes have the second class's alone.

    Raises `NoView` if the anchor is neither trees with covers nor linear, or a step computes a column from
    several raw columns.
    """
    graph, width = keep_second(graph, exact=False), graph.input.n_features
    if graph.stages:
        graph = as_one_forest(graph) or graph
    if isinstance(graph.anchor, Linear):
        player = _players(graph)
        numbers = len(graph.anchor.sums.feature) + len(graph.anchor.sums.entries)
        if numbers * graph.anchor.n_outputs * (width + 1) > _MOST_WEIGHTS:
            raise NoView(f"its {numbers:,} weights are too many to tell apart by column")
        return view_of(
            graph, partial(_terms, player=player, width=width), (graph.anchor.n_outputs, width + 1), None
        )
    if isinstance(graph.anchor, Network) and not graph.stages:
        sums = Additive(_players(graph))
        total = score_of(graph, sums.sum_of, Sum.times)
        if total is None:
            raise NoView("it is neither an ensemble of trees nor a sum of functions of single columns")
        viewed = terms(graph.anchor, total, width)
        return view_of(graph, lambda _: viewed, (len(total.constant), width + 1), None)
    trees = trees_of(graph)
    if trees.cover is None:
        if graph.library != "interpret" or trees.n_outputs > 1:
            raise NoView(f"hbtvm does not read the covers of nodes of {graph.library}")
        return view_of(graph, partial(_by_column, player=_players(graph), width=width), (1, width + 1), None)
    player = _players(graph)

    def values(ensemble: TreeEnsemble) -> TreeReasons:
        return TreeReasons(ensemble, player, width)

    return view_of(graph, values, (trees.n_outputs, width + 1), None)


def _players(graph: Graph) -> np.ndarray:
    """Return the raw column behind each column of the kernel's matrix: int32, shape (columns,)."""
    if graph.stages:
        raise NoView("a step computes columns from several raw columns")
    if not graph.feeds:
        return np.arange(graph.input.n_features, dtype=np.int32)
    players = []
    for feed in graph.feeds:
        raws = raws_of(feed.source)
        if len(raws) != 1:
            raise NoView("a step computes a column from several raw columns")
        players.append(raws.pop())
    return np.array(players, np.int32)


def _by_column(ensemble: TreeEnsemble, player: np.ndarray, width: int) -> TreeEnsemble:
    """Return the trees of an additive model, each for its column, or half for each of two columns."""
    picked, outputs, shares = list[int](), list[int](), list[float]()
    base = np.zeros(width + 1)
    base[-1] = ensemble.base_score[0]
    for tree in range(ensemble.n_trees):
        feature = ensemble.feature[ensemble.offset[tree] : ensemble.offset[tree + 1]]
        columns = np.unique(player[feature[feature >= 0]]).tolist() or [width]
        if len(columns) > 2:
            raise NoView("it has terms of more than two columns")
        picked += [tree] * len(columns)
        outputs += columns
        shares += [1 / len(columns)] * len(columns)
    sizes = np.diff(ensemble.offset)[picked]
    offset = np.concatenate([[0], np.cumsum(sizes)])
    at = np.concatenate([np.arange(ensemble.offset[tree], ensemble.offset[tree + 1]) for tree in picked])

    nodes: dict[str, Any] = {name: getattr(ensemble, name)[at] for name in PER_NODE}
    return replace(
        ensemble,
        n_outputs=width + 1,
        offset=offset.astype(np.int64),
        **nodes,
        value=ensemble.value[at] * np.repeat(shares, sizes)[:, None],
        tree_output=np.array(outputs, np.int32),
        base_score=base,
        leaf_id=None,
    ).validate()


def _terms(linear: Linear, player: np.ndarray, width: int) -> Linear:
    """Return the linear model whose outputs are the terms of each player, with the base score behind them."""
    terms, means = by_place(linear.sums, player, width + 1)
    base = np.zeros((linear.n_outputs, width + 1))
    base[:, -1] = linear.base_score + means
    return Linear(terms, base.reshape(-1))
