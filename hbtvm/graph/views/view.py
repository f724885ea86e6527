"""What all views share: `NoView`, and graphs of other trees and outputs over a model's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from hbtvm.graph.graph import Graph, KernelAnchor
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input
from hbtvm.operators.shapes import select


class NoView(Exception):
    """The reason why a model lacks a view, which continues a sentence: "it is not an ensemble of trees"."""


def trees_of(graph: Graph) -> TreeEnsemble:
    """Return the trees whose scores are the model's.

    Raises `NoView` if it has none.
    """
    if isinstance(graph.anchor, TreeEnsemble):
        return graph.anchor
    parts = any(isinstance(stage.anchor, TreeEnsemble) for stage in graph.stages)
    raise NoView("its trees are combined by other operators" if parts else "it is not an ensemble of trees")


def view_of(
    graph: Graph, change: Callable[[Any], KernelAnchor], shape: tuple[int, ...], dtype: str | None
) -> Graph:
    """Return a view by another anchor, whose scores are its results.

    `change`: from the model's anchor to the view's; also applied to anchors for other types of rows, which
        have the same leaves.
    `shape`: of a row's results, the first of the view's outputs.
    `dtype`: of the results; None for float64.
    """
    single, scaled = graph.single, graph.scaled
    viewed = change(graph.anchor)
    moved = None if scaled is None else change(scaled.ensemble)
    scores = Input(viewed.n_outputs)
    results = select(scores, range(prod(shape)))
    return replace(
        graph,
        anchor=viewed,
        single=None if single is None else change(single),
        scaled=replace(scaled, ensemble=moved) if scaled and isinstance(moved, TreeEnsemble) else None,
        output=OutputSpec(
            "booster", scores.width, {"response": results}, label_dtype=dtype, keeps_axis=True, shape=shape
        ),
        rewrites=(),
        transform_predicts=False,
        keeps_integers=False,
        transform=None,
        scores_of=None,
        scores=None,
        python=(),
        lead=None,
    )
