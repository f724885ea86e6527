"""The view of reasons: what each raw column contributes to the raw scores.

Trees have Shapley values (`hbtvm.graph.reasons.anchor`). All columns that steps derive from a raw column are
one player, whose steps the trees' splits contain. Linear models have the terms of their sums: a number's is 0
where its scaler gives 0, such as at the training rows' mean, and a category's is relative to the mean over
categories.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from hbtvm.graph.columns.table import raws_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.networks.network import Linear
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.views.view import NoView, trees_of, view_of

_MOST_WEIGHTS = 1 << 24  # of a linear model's view, which has a weight for each number and raw column


def reasons(graph: Graph) -> Graph:
    """Return the view of contributions, of shape (raw scores, raw columns + 1); the last is the base value.

    Classifiers of two classes have the second class's alone.

    Raises `NoView` if the anchor is neither trees with covers nor linear, or a step computes a column from
    several raw columns.
    """
    graph, width = keep_second(graph, exact=False), graph.input.n_features
    if isinstance(graph.anchor, Linear):
        player = _players(graph)
        numbers = len(graph.anchor.sums.feature) + len(graph.anchor.sums.entries)
        if numbers * graph.anchor.n_outputs * (width + 1) > _MOST_WEIGHTS:
            raise NoView(f"its {numbers:,} weights are too many to tell apart by column")
        return view_of(
            graph, partial(_terms, player=player, width=width), (graph.anchor.n_outputs, width + 1), None
        )
    if not isinstance(graph.anchor, TreeEnsemble) and not graph.stages:
        raise NoView("it is neither an ensemble of trees nor a plain weighted sum")
    trees = trees_of(graph)
    if trees.cover is None:
        raise NoView(f"hbtvm does not read the covers of nodes of {graph.library}")
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


def _terms(linear: Linear, player: np.ndarray, width: int) -> Linear:
    """Return the linear model whose outputs are the terms of each player, with the base score behind them."""
    sums, outputs = linear.sums, linear.n_outputs

    def apart(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
        result = np.zeros((len(weights), outputs, width + 1))
        result[np.arange(len(weights)), :, player[features]] = weights
        return result.reshape(len(weights), outputs * (width + 1))

    base = np.zeros((outputs, width + 1))
    base[:, -1] = linear.base_score
    entries = sums.entries.copy()
    for table in np.split(entries, np.cumsum(sums.sizes, dtype=np.int64)[:-1]):
        if len(table):
            base[:, -1] += table.mean(axis=0)
            table -= table.mean(axis=0)
    terms = replace(
        sums,
        weight=apart(sums.weight, sums.feature),
        missing=apart(sums.missing, sums.feature),
        entries=apart(entries, np.repeat(sums.code_feature, sums.sizes)),
    )
    return Linear(terms, base.reshape(-1))
