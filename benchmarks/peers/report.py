"""The results as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import markdown as table
from benchmarks.peers.cells import DATA, MODELS, Cell
from benchmarks.peers.libraries import LIBRARIES
from benchmarks.peers.measure import AGREES, UNFIT
from benchmarks.peers.results import Results

NAMES = {
    "hbtvm": "hbtvm",
    "native": "native",
    "lleaves": "lleaves",
    "onedal": "oneDAL",
    "onnx": "ONNX Runtime",
    "tl2cgen": "tl2cgen",
    "hummingbird": "Hummingbird",
    "engine": "engine alone",
}

CELL_GOAL = 1.5
"""Every cell is to be this many times faster than the best peer."""


@dataclass(frozen=True)
class Goals:
    """How many times faster than the best peer hbtvm is to be.

    Attributes
    ----------
    cell
        In every cell.
    means
        In the geometric mean of all cells with so many rows.
    overall
        In that of all cells.
    """

    cell: float = CELL_GOAL
    means: Mapping[int, float] = field(default_factory=lambda: {10_000: 3.0, 1: 2.5})
    overall: float | None = None


WRONG = 0.01
"""A peer with a larger share of rows off computes another model: it is shown, but not raced."""


def per_row(seconds: float, rows: int) -> str:
    """Nanoseconds per row."""
    return f"{seconds / rows * 1e9:,.0f} ns"


def best_peer(figures: dict[str, Any], wrong: float = WRONG) -> str | None:
    """The fastest but hbtvm, of those that take the user's rows and have no larger share of rows off."""
    times = {
        peer: figure["seconds"]
        for peer, figure in figures.items()
        if peer not in ("hbtvm", "engine") and "seconds" in figure and figure.get("rows_off", 0.0) <= wrong
    }
    return min(times, key=times.__getitem__, default=None)


def ratio(figures: dict[str, Any], peer: str | None) -> float | None:
    """How many times faster hbtvm is than a peer; None where one of them has no time."""
    if peer is None or "seconds" not in figures.get("hbtvm", {}) or "seconds" not in figures.get(peer, {}):
        return None
    return float(figures[peer]["seconds"] / figures["hbtvm"]["seconds"])


def markdown(results: Results, title: str = "hbtvm and its peers", goals: Goals | None = None) -> str:
    """The whole report."""
    goals = goals or Goals()
    cells = dict(sorted(results.cells.items(), key=lambda item: order(item[0])))
    peers = [peer for peer in LIBRARIES if any(peer in cell["peers"] for cell in cells.values())]
    parts = [
        f"# {title}",
        _conditions(results, cells),
        "## Goals",
        _goals(cells, goals),
        "## Times",
        "Nanoseconds per row, medians; the best peer is in bold. ≠: some rows are off by more than "
        f"{AGREES:g} relative; ✗: more than {WRONG:.0%} of rows are, and the peer is not raced.",
        _times(cells, peers, goals.cell),
        "## Compiling or converting",
        "Seconds, for the fewest threads measured. hbtvm searches meanwhile, unless it was told not to.",
        _by_model(results, cells, peers, _convert_seconds),
        "## Peak memory",
        "MB, highest of all cells, of the process that predicts (rows and libraries included) and, after a "
        "slash, of the one that compiled, where that is another.",
        _by_model(results, cells, peers, _memory),
        "## Agreement with the native library",
        "Largest relative difference of all cells, and the share of rows that are off, if any.",
        _by_model(results, cells, [peer for peer in peers if peer != "native"], _agreement),
    ]
    failures = _failures(cells)
    if failures:
        parts += ["## What did not work", failures]
    return "\n\n".join(parts) + "\n"


def order(cell: Cell) -> tuple[int, ...]:
    """Sorts cells as the options list them."""
    return list(MODELS).index(cell.model), DATA.index(cell.data), cell.threads, cell.rows


def _conditions(results: Results, cells: dict[Cell, dict[str, Any]]) -> str:
    machine = results.machine
    versions: dict[str, set[str]] = {}
    for cell in cells.values():
        for packages in cell["versions"].values():
            for package, version in packages.items():
                versions.setdefault(package, set()).add(version)
    named = ", ".join(f"{name} {'/'.join(sorted(found))}" for name, found in sorted(versions.items()))
    commits = ", ".join(sorted({str(cell["commit"]) for cell in cells.values()}))
    searched = {cell["search"] for cell in cells.values()}
    cpus = {cell.get("mcpu") for cell in cells.values()} - {None}
    how = {(True,): "tuned", (False,): "compiled without a search"}.get(tuple(searched), "partly tuned")
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['vectors'])}; {machine['system']}. "
        f"hbtvm at {commits}, {how}{''.join(f', for {cpu}' for cpu in sorted(cpus))}. {named}."
    )


def _goals(cells: dict[Cell, dict[str, Any]], goals: Goals) -> str:
    lines = []
    for rows in (*sorted({cell.rows for cell in cells}), None):
        figures = [value["peers"] for cell, value in cells.items() if rows in (None, cell.rows)]
        ratios = _known(ratio(f, best_peer(f)) for f in figures)
        native = _known(ratio(f, "native") for f in figures)
        any_peer = _known(ratio(f, best_peer(f, wrong=1.0)) for f in figures)
        goal = goals.overall if rows is None else goals.means.get(rows)
        mean = _mean(ratios)
        lines.append(
            [
                "all" if rows is None else f"{rows:,}",
                str(len(ratios)),
                _times_text(_mean(native)),
                _times_text(mean),
                _times_text(_mean(any_peer)),
                "-" if goal is None else f"{goal:g}× {'reached' if mean >= goal else 'missed'}",
                f"{sum(r > 1 for r in ratios)} / {sum(r <= 1 for r in ratios)}",
                f"{sum(r >= goals.cell for r in ratios)} of {len(ratios)}",
                _times_text(min(ratios, default=math.nan)),
            ]
        )
    header = [
        "rows per call",
        "cells",
        "mean over native",
        "mean over best peer",
        "wrong ones raced too",
        "goal",
        "won / lost",
        f"at least {goals.cell:g}×",
        "worst cell",
    ]
    return table(header, lines) + "\n\nMeans are geometric."


def _times(cells: dict[Cell, dict[str, Any]], peers: list[str], goal: float) -> str:
    lines = []
    for cell, value in cells.items():
        figures = value["peers"]
        best = best_peer(figures)
        over = ratio(figures, best)
        lines.append(
            [
                cell.title,
                f"{cell.rows:,}",
                str(cell.threads),
                *[_time(figures.get(peer, {}), cell.rows, peer == best) for peer in peers],
                "-" if over is None else _times_text(over) + ("" if over >= goal else " ⚠"),
            ]
        )
    over_best = "hbtvm over best peer"
    header = ["model", "rows", "threads", *[NAMES[peer] for peer in peers], over_best]
    return table(header, lines, second=[over_best])


def _time(figure: dict[str, Any], rows: int, best: bool) -> str:
    if "seconds" not in figure:
        return "fails" if figure.get("failed", UNFIT) != UNFIT else "-"
    text = f"{figure['seconds'] / rows * 1e9:,.0f}"
    off = figure.get("rows_off", 0.0)
    mark = " ✗" if off > WRONG else " ≠" if off else ""
    return (f"**{text}**" if best else text) + mark


def _by_model(
    results: Results,
    cells: dict[Cell, dict[str, Any]],
    peers: list[str],
    text: Callable[[list[dict[str, Any]]], str],
) -> str:
    lines = []
    for title in dict.fromkeys(cell.title for cell in cells):
        group = [cell for cell in cells if cell.title == title]
        model = results.models[f"{group[0].model} {group[0].data}"]
        figures = [cells[cell]["peers"] for cell in group]
        lines.append(
            [
                title,
                f"{model['trees']:,} × {model['leaves']:.0f} × {model['features']:,}",
                *[text([f[peer] for f in figures if "seconds" in f.get(peer, {})]) for peer in peers],
            ]
        )
    return table(["model", "trees × leaves × features", *[NAMES[peer] for peer in peers]], lines)


def _convert_seconds(figures: list[dict[str, Any]]) -> str:
    return f"{figures[0]['convert_seconds']:.3g}" if figures else "-"


def _memory(figures: list[dict[str, Any]]) -> str:
    if not figures:
        return "-"
    text = f"{max(f['memory'] for f in figures) / 1e6:,.0f}"
    compilers = [f["convert_memory"] for f in figures if "convert_memory" in f]
    return f"{text} / {max(compilers) / 1e6:,.0f}" if compilers else text


def _agreement(figures: list[dict[str, Any]]) -> str:
    known = [f for f in figures if "difference" in f]
    if not known:
        return "-"
    off = max(f["rows_off"] for f in known)
    text = f"{max(f['difference'] for f in known):.0e}"
    return f"{text} ({off:.2%} of rows)" if off else text


def _failures(cells: dict[Cell, dict[str, Any]]) -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for cell, value in cells.items():
        for peer, figure in value["peers"].items():
            if figure.get("failed", UNFIT) != UNFIT:
                titles = found.setdefault((peer, figure["failed"]), [])
                if cell.title not in titles:
                    titles.append(cell.title)
    return "\n".join(
        f"- {NAMES[peer]}, {', '.join(titles)}: {text[:160]}" for (peer, text), titles in found.items()
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: list[float]) -> float:
    return statistics.geometric_mean(values) if values else math.nan


def _times_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}×"
