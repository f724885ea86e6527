"""Passes: networks that compute the same with less work; see `simplify`."""

from hbtvm.graph.passes.simplify import simplify

__all__ = ["simplify"]
