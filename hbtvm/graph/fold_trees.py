"""Trees swallow what comes before them: monotone columns become thresholds, encoders category sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hbtvm.graph.ensemble import TreeEnsemble
from hbtvm.graph.lower import Feeds
from hbtvm.graph.table import Table


@dataclass(frozen=True)
class Folded:
    """Trees over feeds, for float64 and (if they are others) for float32 rows, and what was done."""

    feeds: Feeds
    anchor: TreeEnsemble
    single: TreeEnsemble | None
    told: tuple[str, ...]


def fold(
    table: Table, ensemble: TreeEnsemble, names: Sequence[str] | None, allow_nan: bool, allow_inf: bool
) -> Folded:
    """Return the trees that read feeds in place of a table's columns."""
    raise NotImplementedError
