"""A network's tensor expressions: one function of rows and tables, in stages
(see `hbtvm.schedules.network.plan`)."""

from __future__ import annotations

from hbtvm.strategies.network.products import Products
from hbtvm.strategies.network.searches import Searches
from hbtvm.strategies.network.stages import Value, is_single

__all__ = ["Expressions", "Value", "is_single"]


class Expressions(Products, Searches):
    """Builds the expressions of one plan; see `Stages` for the parameters."""
