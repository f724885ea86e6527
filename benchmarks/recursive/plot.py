"""Results of recursive models as pictures, where matplotlib is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.plot import saved
from benchmarks.recursive import report
from benchmarks.recursive.cases import MODELS
from benchmarks.recursive.peers import PEERS
from benchmarks.recursive.results import Cell, Results
from benchmarks.recursive.studies import STEPS, WHOLE

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_COLOURS = dict(
    zip(
        [name for name in PEERS if name != "hbtvm"],
        ["#999999", "#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#009E73", "#D55E00", "#F0E442"],
        strict=True,
    ),
    hbtvm="#000000",
)
_MARKS = dict(zip(PEERS, ["o", "s", "^", "P", "X", "v", "<", "h", "D"], strict=True))


def plots(results: Results, folder: Path) -> list[Path]:
    """Draw what was measured; returns the files written, none where matplotlib is missing."""
    usual = {one: told for one, told in results.cells.items() if one.hidden in MODELS[one.model].hidden}
    memory = {one: told for one, told in usual.items() if (one.size, one.threads) == (10, 1)}
    drawings = {}
    if usual:
        drawings[folder / "recursive.svg"] = lambda: _ratios(usual)
    if len(_by_hidden(results)):
        drawings[folder / "recursive-hidden.svg"] = lambda: _hidden(results)
    if results.ablation:
        drawings[folder / "recursive-ablation.svg"] = lambda: _ablation(results.ablation)
    if results.unrolling:
        drawings[folder / "recursive-unrolling.svg"] = lambda: _unrolling(results.unrolling)
    if memory:
        drawings[folder / "recursive-memory.svg"] = lambda: _memory(memory)
    return list(drawings) if drawings and saved(drawings) else []


def _figure(columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.4 + width * columns, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _legend(figure: Any, axes: list[Any]) -> None:
    """One for all panels, below them."""
    named = {
        text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if named:
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=min(5, len(named)), fontsize=8
        )


def _ratios(cells: dict[Cell, report.Told]) -> Any:
    """How much longer than hbtvm each peer takes, cell by cell."""
    threads = sorted({one.threads for one in cells})
    lines = list(dict.fromkeys((one.model, one.hidden, one.size) for one in cells))
    figure, axes = _figure(len(threads), 4.6, 1.6 + 0.24 * len(lines))
    for axis, count in zip(axes, threads, strict=True):
        for name in PEERS:
            points = []
            for cell, told in cells.items():
                over = 1.0 if name == "hbtvm" else report.over(told, name)
                if cell.threads == count and over is not None:
                    points.append((over, lines.index((cell.model, cell.hidden, cell.size))))
            _marks(axis, name, points)
        bounds = [
            (1 / over, lines.index((cell.model, cell.hidden, cell.size)))
            for cell, told in cells.items()
            if cell.threads == count and (over := report.of_bound(told)) is not None
        ]
        if bounds:
            axis.plot(*zip(*bounds, strict=True), "|", color="#000000", markersize=9, label="bound")
        axis.axvline(1, color="#000000", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_title(f"{count} thread{'s' * (count > 1)}", fontsize=10)
        axis.set_xlabel("times hbtvm's time", fontsize=9)
        axis.grid(axis="x", color="#eeeeee", linewidth=0.6)
        titles = [f"{MODELS[model].title} {hidden}, batch {size}" for model, hidden, size in lines]
        axis.set_yticks(range(len(lines)), titles if axis is axes[0] else [""] * len(lines), fontsize=8)
        axis.set_ylim(len(lines) - 0.5, -0.5)
        axis.tick_params(labelsize=8)
    _legend(figure, axes)
    return figure


def _marks(axis: Any, name: str, points: Sequence[tuple[float, float]], line: str = "none") -> None:
    if points:
        style = {"color": _COLOURS[name], "marker": _MARKS[name], "markersize": 5, "linestyle": line}
        axis.plot(*zip(*points, strict=True), label=PEERS[name].title, **style)


def _by_hidden(results: Results) -> dict[tuple[str, int], list[Cell]]:
    """Cells of one thread by model and batch size, where there are three hidden sizes or more."""
    found: dict[tuple[str, int], list[Cell]] = {}
    for cell in sorted(results.cells):
        if cell.threads == 1:
            found.setdefault((cell.model, cell.size), []).append(cell)
    return {key: cells for key, cells in found.items() if len(cells) >= 3}


def _hidden(results: Results) -> Any:
    """Latency against hidden size (figure 9 of the paper)."""
    groups = _by_hidden(results)
    figure, axes = _figure(len(groups), 2.9, 3.4)
    for axis, ((model, size), cells) in zip(axes, groups.items(), strict=True):
        for name in PEERS:
            points = [
                (cell.hidden, took * 1e3)
                for cell in cells
                if (took := report.seconds(results.cells[cell], name)) is not None
            ]
            _marks(axis, name, points, "-")
        bounds = [(cell.hidden, results.cells[cell]["bound"] * 1e3) for cell in cells]
        axis.plot(*zip(*bounds, strict=True), ":", color="#000000", label="bound")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        ticks = [cell.hidden for cell in cells]
        axis.set_xticks(ticks, [str(one) for one in ticks])
        axis.minorticks_off()
        axis.set_title(f"{MODELS[model].title}, batch {size}", fontsize=10)
        axis.set_xlabel("hidden size", fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(color="#eeeeee", linewidth=0.6)
    axes[0].set_ylabel("ms", fontsize=9)
    _legend(figure, axes)
    return figure


def _ablation(cells: dict[Cell, report.Told]) -> Any:
    """Time of each step, in parts of the first one's (figure 12 of the paper)."""
    names = [*(name for name, _ in STEPS), WHOLE]
    figure, axes = _figure(1, 0.5 + 1.0 * len(cells), 3.6)
    (axis,) = axes
    width = 0.8 / len(names)
    for at, name in enumerate(names):
        bars = []
        for place, told in enumerate(cells.values()):
            first, own = report.seconds(told, names[0]), report.seconds(told, name)
            if first is not None and own is not None:
                bars.append((place + (at - len(names) / 2 + 0.5) * width, own / first))
        if bars:
            shade = str(round(0.85 - 0.85 * at / (len(names) - 1), 3))
            axis.bar(*zip(*bars, strict=True), width=width, color=shade, edgecolor="#000000", label=name)
    titles = [f"{MODELS[one.model].title}\nH={one.hidden}, batch {one.size}" for one in cells]
    axis.set_xticks(range(len(cells)), titles, fontsize=7)
    axis.set_ylabel("time, of the first step's", fontsize=9)
    axis.axhline(1, color="#000000", linewidth=0.8)
    _legend(figure, axes)
    return figure


def _unrolling(cells: dict[Cell, report.Told]) -> Any:
    """How much faster two levels at a time are than one (figure 12b of the paper), by threads."""
    places = list(dict.fromkeys((one.model, one.hidden, one.size) for one in sorted(cells)))
    threads = sorted({one.threads for one in cells})
    figure, axes = _figure(1, 0.5 + 0.8 * len(places), 3.2)
    (axis,) = axes
    width = 0.8 / len(threads)
    for at, count in enumerate(threads):
        shift = (at - len(threads) / 2 + 0.5) * width
        bars = [
            (places.index((cell.model, cell.hidden, cell.size)) + shift, faster)
            for cell, told in cells.items()
            if cell.threads == count and (faster := report.unrolled(told)) is not None
        ]
        if bars:
            label = f"{count} thread{'s' * (count > 1)}"
            shade = str(round(0.85 - 0.6 * at / max(1, len(threads) - 1), 3))
            axis.bar(*zip(*bars, strict=True), width=width, color=shade, edgecolor="#000000", label=label)
    titles = [f"{MODELS[model].title}\nH={hidden}\nbatch {size}" for model, hidden, size in places]
    axis.set_xticks(range(len(places)), titles, fontsize=7)
    axis.set_ylabel("times as fast as level by level", fontsize=9)
    axis.axhline(1, color="#000000", linewidth=0.8)
    _legend(figure, axes)
    return figure


def _memory(cells: dict[Cell, report.Told]) -> Any:
    """Peak memory of each peer (figure 14 of the paper)."""
    figure, axes = _figure(1, 0.5 + 1.0 * len(cells), 3.6)
    (axis,) = axes
    names = [
        name for name in PEERS if any("memory" in told["peers"].get(name, {}) for told in cells.values())
    ]
    width = 0.8 / max(1, len(names))
    for at, name in enumerate(names):
        bars = [
            (place + (at - len(names) / 2 + 0.5) * width, math.ceil(own["memory"] / 1e5) / 10)
            for place, told in enumerate(cells.values())
            if "memory" in (own := told["peers"].get(name, {}))
        ]
        axis.bar(*zip(*bars, strict=True), width=width, color=_COLOURS[name], label=PEERS[name].title)
    axis.set_yscale("log")
    axis.set_xticks(
        range(len(cells)), [f"{MODELS[one.model].title}\nH={one.hidden}" for one in cells], fontsize=7
    )
    axis.set_ylabel("MB over libraries and weights, batch 10", fontsize=9)
    _legend(figure, axes)
    return figure
