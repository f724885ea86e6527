"""The picture of `benchmarks.growth`, from its figures or from the report that was written of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_COLUMNS = 3
_COLOURS = ("#E69F00", "#0072B2", "#009E73")
_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def points_of(report: str) -> dict[str, list[dict[str, Any]]]:
    """Read the points along each axis back from a report in Markdown, to the digits that it has.

    Returns
    -------
    By axis: points with ``size``, ``rows`` and ``seconds`` of a call, as `benchmarks.growth` measures them.

    Raises
    ------
    ValueError
        If it has no table of times.
    """
    axes: dict[str, list[dict[str, Any]]] = {}
    axis, counts = "", [0]
    for cells in _table_lines(report):
        first, *others = cells
        if not re.fullmatch(r"[\d,]+", first):
            axis = first
            counts = [
                int(n[1].replace(",", "")) if (n := re.match(r"([\d,]+) row", head)) else 0 for head in others
            ]
            continue
        size = int(first.replace(",", ""))
        for count, cell in zip(counts, others, strict=True):
            number, unit = cell.split()[:2]
            rows = count or size
            seconds = float(number) * _UNITS[unit] * rows
            axes.setdefault(axis, []).append({"size": size, "rows": rows, "seconds": seconds})
    if not axes:
        raise ValueError("the report has no table of times")
    return axes


def _table_lines(report: str) -> Iterator[list[str]]:
    """Cells of the tables' headings and rows."""
    for line in report.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and not set(cells[0]) <= {"-"}:
            yield cells


def plot(axes: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> bool:
    """Draw time per row along each axis, a panel for each, all on one scale of time.

    Returns
    -------
    False where matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return False
    # Text as text, which can be searched for; the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth"})
    lines = -(-(len(axes) + 1) // _COLUMNS)  # one place is the legend's
    figure = Figure(figsize=(3.2 * _COLUMNS, 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, _COLUMNS, sharey=True, squeeze=False).flatten()
    for panel, (axis, points) in zip(panels, axes.items(), strict=False):
        _draw(panel, axis, points)
    handles = {t: h for p in panels for h, t in zip(*p.get_legend_handles_labels(), strict=True)}
    for panel in panels[len(axes) :]:
        panel.axis("off")
    for panel in panels[: len(axes) : _COLUMNS]:
        panel.set_ylabel("µs per row")
    if handles:
        panels[len(axes)].legend(list(handles.values()), list(handles), loc="center", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    return True


def _draw(panel: Any, axis: str, points: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    counts = sorted({point["rows"] for point in points})
    for colour, rows in zip(_COLOURS, [None] if axis == "rows" else counts, strict=False):
        line = [point for point in points if rows in (None, point["rows"])]
        panel.plot(
            [point["size"] for point in line],
            [point["seconds"] / point["rows"] * 1e6 for point in line],
            marker="o",
            markersize=4,
            color="#000000" if rows is None else colour,
            label="as many rows per call" if rows is None else f"{rows:,} row{'s' * (rows > 1)} per call",
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    if axis != "depth":
        panel.set_xscale("log", base=10 if axis == "rows" else 2)
    if axis in ("trees", "features", "threads"):
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if axis == "threads":
        panel.set_xticks(sorted({point["size"] for point in points}))
    panel.set_title(axis, fontsize=10)
    panel.tick_params(labelsize=8, labelleft=True)
    panel.grid(color="#eeeeee", linewidth=0.6)
    panel.set_axisbelow(True)
