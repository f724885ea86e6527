"""Results of operators as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.operators import report
from benchmarks.operators.cases import cases

_COLOURS = {
    "sklearn": "#f7931e",
    "onnxruntime": "#6c757d",
    "hummingbird": "#9b5de5",
    "onedal": "#2a9d8f",
    "hbtvm": "#1f6feb",
}
_ROWS = (1, 10_000)
_KIND = "float32/1"
"""What is drawn: the type of the rows and the number of threads."""


def draw(results: dict[str, Any], path: Path) -> Path | None:
    """Draw each peer's time of a row, for one row and for many; None without matplotlib or results."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    cells = results["cells"]
    names = [title for title in cases() if any(f"{title}/{_KIND}/{n}" in cells for n in _ROWS)]
    if not names:
        return None
    figure = Figure(figsize=(11, 0.24 * len(names) + 1.8), layout="constrained")
    for axes, rows in zip(figure.subplots(1, 2, sharey=True), _ROWS, strict=True):
        for at, name in enumerate(names):
            cell = cells.get(f"{name}/{_KIND}/{rows}", {})
            for peer, colour in _COLOURS.items():
                seconds = report.best(cell, peer)
                if seconds is not None:
                    front = {"s": 46, "zorder": 4} if peer == "hbtvm" else {"s": 26, "zorder": 3}
                    axes.scatter(seconds / rows * 1e6, at, color=colour, label=report.NAMES[peer], **front)
            if rows > 1:
                limit = cases()[name].limit.seconds
                axes.scatter(limit * 1e6, at, marker="|", s=60, color="#d62728", label="limit", zorder=2)
        axes.set_xscale("log")
        axes.set_title("one row" if rows == 1 else f"{rows:,} rows")
        axes.set_xlabel("µs a row")
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.grid(alpha=0.3)
    # Shared by both.
    figure.axes[0].invert_yaxis()
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), fontsize=8, loc="outside lower center", ncols=len(handles)
    )
    figure.suptitle(
        "Rows ready as arrays, one thread; less is better. Only peers with scikit-learn's answers"
    )
    figure.savefig(path)
    return path
