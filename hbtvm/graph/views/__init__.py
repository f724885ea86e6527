"""Views: further graphs over the rows of a model, such as the leaf of each tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hbtvm.graph.graph import Graph
from hbtvm.graph.views.reasons import reasons
from hbtvm.graph.views.trees import leaves, tree_scores
from hbtvm.graph.views.view import NoView

VIEWS: Mapping[str, Callable[[Graph], Graph]] = {
    "leaves": leaves,
    "trees": tree_scores,
    "reasons": reasons,
}
"""Functions from a model's graph to a view, by the view's name; they raise `NoView` if there is none."""


def views_of(graph: Graph) -> dict[str, Graph]:
    """Return the views that a model has, by name."""
    return dict(with_views(graph).views)


def with_views(graph: Graph) -> Graph:
    """Return the graph with its views, and the reasons why it lacks the others."""
    views, lacking = dict[str, Graph](), dict[str, str]()
    for name, view in VIEWS.items():
        try:
            views[name] = view(graph)
        except NoView as reason:
            lacking[name] = str(reason)
    return replace(graph, views=views, no_views=lacking)
