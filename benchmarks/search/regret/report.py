"""Tables of regret."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.common import markdown
from hbtvm.compiler.candidates.tasks import group_name

Cells = Mapping[tuple[str, int], Mapping[str, Any]]
"""By model and rows: ``default`` and ``best``, each with ``strategy``, ``config`` and ``seconds``."""


def regret(cell: Mapping[str, Any]) -> float:
    """Return the default's time over that of the fastest known."""
    return float(cell["default"]["seconds"] / cell["best"]["seconds"])


def report(cells: Cells) -> str:
    """Return median and worst regret by batch size, and a table of all cells."""
    sizes = sorted({rows for _, rows in cells})
    by_size = {rows: [regret(cell) for (_, size), cell in cells.items() if size == rows] for rows in sizes}
    everything = [regret(cell) for cell in cells.values()]
    groups = {**{f"{rows:,}": by_size[rows] for rows in sizes}, "all": everything}
    summary = [
        (name, f"{statistics.median(known):.3f}", f"{max(known):.3f}", str(len(known)))
        for name, known in groups.items()
    ]
    each = [
        (model, *(_shown(cells.get((model, rows))) for rows in sizes))
        for model in dict.fromkeys(model for model, _ in cells)
    ]
    head = markdown(("rows", "median", "worst", "models"), summary)
    return f"{head}\n\n{markdown(('model', *map(group_name, sizes)), each)}"


def _shown(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    usual, best = cell["default"]["strategy"], cell["best"]["strategy"]
    return f"{regret(cell):.3f} {usual}" + ("" if usual == best else f" ({best})")
