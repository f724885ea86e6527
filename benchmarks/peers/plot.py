"""The results as pictures, where matplotlib is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import tables
from benchmarks.peers.cells import DATA, MODELS, Cell
from benchmarks.peers.libraries import LIBRARIES
from benchmarks.peers.report import CELL_GOAL, NAMES, best_peer, order, ratio
from benchmarks.peers.results import Results

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_COLOURS = dict(
    zip(
        LIBRARIES,
        ["#000000", "#999999", "#009E73", "#0072B2", "#E69F00", "#56B4E9", "#CC79A7", "#D55E00"],
        strict=True,
    )
)
_MARKS = dict(zip(LIBRARIES, ["D", "o", "^", "s", "v", "P", "X", "*"], strict=True))


def plots(results: Results, folder: Path) -> list[Path]:
    """Draw times and ratios; returns the files written, none where matplotlib is missing."""
    cells = dict(sorted(results.cells.items(), key=lambda item: order(item[0])))
    drawings = {folder / "times.svg": lambda: _times(cells), folder / "ratios.svg": lambda: _ratios(cells)}
    return list(drawings) if saved(drawings) else []


def saved(drawings: Mapping[Path, Callable[[], Any]]) -> bool:
    """Draw figures and write them; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("No pictures: matplotlib is not installed.")
        return False
    matplotlib.use("svg")
    # The same results give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "peers"
    # Text as text: a tenth of the size, and it can be searched for.
    matplotlib.rcParams["svg.fonttype"] = "none"
    for path, draw in drawings.items():
        draw().savefig(path, bbox_inches="tight", metadata={"Date": None})
    return True


def cells_of(report: str) -> dict[Cell, dict[str, Any]]:
    """Read the cells' times back from a report in Markdown, to the digits that it has.

    Raises
    ------
    ValueError
        If it has no table of times.
    """
    titles = {f"{name} {data.capitalize()}": (model, data) for model, name in MODELS.items() for data in DATA}
    names = {name: peer for peer, name in NAMES.items()}
    table = tables(report).get("Times")
    if not table:
        raise ValueError("the report has no table of times")
    cells = {}
    for line in table:
        title, _, dtype = line["model"].partition(", ")
        rows = int(line["rows"].replace(",", ""))
        figures = {}
        for head, text in line.items():
            number = text.strip("*≠✗ ").replace(",", "")
            if head in names and number.isdecimal():
                figures[names[head]] = {
                    "seconds": int(number) * rows * 1e-9,
                    "rows_off": 1.0 if "✗" in text else 0.0,
                }
        cells[Cell(*titles[title], rows, int(line["threads"]), dtype or "float32")] = {"peers": figures}
    return cells


def redraw(report: Path) -> Path | None:
    """Draw the ratios of a report anew, beside it; None where matplotlib is missing."""
    cells = cells_of(report.read_text())
    picture = report.with_name(f"{report.stem}-ratios.svg")
    return picture if saved({picture: lambda: _ratios(cells)}) else None


def _panels(cells: dict[Cell, dict[str, Any]]) -> tuple[Any, dict[int, Any], dict[tuple[str, int], int]]:
    """A figure with a panel per number of rows; the lines of models and threads in it."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    counts = sorted({cell.rows for cell in cells})
    lines = {line: i for i, line in enumerate(dict.fromkeys((cell.title, cell.threads) for cell in cells))}
    figure = Figure(figsize=(1.8 + 3.6 * len(counts), 1.6 + 0.26 * len(lines)), layout="constrained")
    axes = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    labels = [f"{title}, {threads} thread{'s' * (threads > 1)}" for title, threads in lines]
    for axis, rows in zip(axes, counts, strict=True):
        axis.set_title(f"{rows:,} row{'s' * (rows > 1)} per call", fontsize=10)
        axis.set_xscale("log")
        # Plain numbers, few enough to be read.
        axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 3)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.grid(axis="x", color="#eeeeee", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
    axes[0].set_yticks(range(len(lines)), labels)
    axes[0].set_ylim(len(lines) - 0.5, -0.5)
    return figure, dict(zip(counts, axes, strict=True)), lines


def _times(cells: dict[Cell, dict[str, Any]]) -> Any:
    figure, axes, lines = _panels(cells)
    for peer in reversed(LIBRARIES):
        for rows, axis in axes.items():
            points = [
                (value["peers"][peer]["seconds"] / rows * 1e6, lines[cell.title, cell.threads])
                for cell, value in cells.items()
                if cell.rows == rows and "seconds" in value["peers"].get(peer, {})
            ]
            if points:
                label = NAMES[peer]
                style = {
                    "color": _COLOURS[peer],
                    "marker": _MARKS[peer],
                    "markersize": 6,
                    "linestyle": "none",
                }
                axis.plot(*zip(*points, strict=True), label=label, **style)
    for axis in axes.values():
        axis.set_xlabel("µs per row (less is better)", fontsize=9)
    named = {
        text: handle
        for axis in axes.values()
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    shown = [NAMES[peer] for peer in LIBRARIES if NAMES[peer] in named]
    figure.legend(
        [named[text] for text in shown], shown, loc="outside upper center", ncols=len(shown), fontsize=9
    )
    return figure


def _ratios(cells: dict[Cell, dict[str, Any]]) -> Any:
    figure, axes, lines = _panels(cells)
    for rows, axis in axes.items():
        axis.axvline(1, color="#000000", linewidth=1)
        axis.axvline(CELL_GOAL, color="#009E73", linewidth=1, linestyle="--")
        for cell, value in cells.items():
            best = best_peer(value["peers"])
            over = ratio(value["peers"], best)
            if cell.rows != rows or over is None or best is None:
                continue
            y = lines[cell.title, cell.threads]
            reached = "#009E73" if over >= CELL_GOAL else "#E69F00" if over > 1 else "#D55E00"
            # Bars grow from 1: a loss points to the left.
            axis.barh(y, over - 1, left=1, height=0.65, color=reached)
            axis.annotate(
                f"{over:.1f} {NAMES[best]}",
                (max(over, 1.0), y),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )
        left, right = axis.get_xlim()
        axis.set_xlim(min(left, 0.5), max(right, 3))
        axis.set_xlabel(f"times faster than the best peer (goal {CELL_GOAL:g})", fontsize=9)
    _make_room(figure, axes.values())
    return figure


def _make_room(figure: Any, axes: Iterable[Any]) -> None:
    """Widen the panels' logarithmic scales, so that the labels beside the bars end inside the frames."""
    figure.draw_without_rendering()  # only then places and sizes of texts are known
    for axis in axes:
        frame = axis.get_window_extent()
        low, high = map(math.log, axis.get_xlim())
        for label in axis.texts:
            start = math.log(label.xy[0])
            room = 1 - (label.get_window_extent().width + 12) / frame.width
            high = max(high, low + (start - low) / room)
        axis.set_xlim(math.exp(low), math.exp(high))
