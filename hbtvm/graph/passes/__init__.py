"""Passes: rewrites of networks that save work; see `simplify`."""

from hbtvm.graph.passes.simplify import simplify

__all__ = ["simplify"]
