"""Results as Markdown and as a plot."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.pipelines.cases import CASES

OFF = 1e-3
"""Difference from which answers count as other ones, relative to them, or to 0.001 if they are smaller: peers
that compute in float32 are off by up to 2e-4 of such small probabilities."""


def line(cell: dict[str, Any], rows: int) -> str:
    """A cell in a line, fastest first."""
    found = [
        (figure["seconds"], f"{peer} {way}")
        for peer, ways in cell.items()
        for way, figure in ways.items()
        if isinstance(figure, dict) and "seconds" in figure
    ]
    return ", ".join(f"{name} {_time(seconds, rows)}" for seconds, name in sorted(found)) or "nothing"


def _table(results: dict[str, Any], threads: int, rows: int) -> str:
    """One table: pipelines by ways."""
    columns = [
        ("sklearn", "frame"),
        ("onnxruntime", "frame"),
        ("onnxruntime", "arrays"),
        ("hummingbird", "arrays"),
        ("hbtvm", "frame"),
        ("hbtvm", "arrays"),
        *([("hbtvm", "dict")] if rows == 1 else []),
    ]
    body = []
    for name, case in CASES.items():
        cell = results["cells"].get(f"{name}/{threads}/{rows}")
        if cell is not None:
            body.append(
                [case.title, *(_figure(cell, peer, way, rows) for peer, way in columns), *_ratios(cell)]
            )
    if not body:
        return ""
    unit = "µs a call" if rows == 1 else "ns a row"
    ratios = ["frame: over best", "arrays: over best"]
    header = ["pipeline", *(f"{peer}, {way}" for peer, way in columns), *ratios]
    means = [_mean(results, threads, rows, way) for way in ("frame", "arrays")]
    body.append(["geometric mean", *[""] * len(columns), *means])
    title = f"{rows:,} row{'s' if rows > 1 else ''}, {threads} thread{'s' if threads > 1 else ''} ({unit})"
    return f"### {title}\n\n{common.markdown(header, body, second=ratios)}\n"


def _figure(cell: dict[str, Any], peer: str, way: str, rows: int) -> str:
    figure = cell.get(peer, {}).get(way)
    if not isinstance(figure, dict) or "seconds" not in figure:
        return "fails" if peer in cell else "–"
    number = figure["seconds"] * 1e6 if rows == 1 else figure["seconds"] / rows * 1e9
    return f"{number:,.3g}".replace("e+03", "k") + ("" if agrees(figure) else " ≠")


def agrees(figure: dict[str, Any]) -> bool:
    """Whether answers are scikit-learn's."""
    told = figure.get("agrees")
    return told is None or (told["labels_off"] == 0 and told["difference"] <= OFF)


def best(cell: dict[str, Any], ways: tuple[str, ...], peers: tuple[str, ...]) -> float | None:
    """Seconds of the fastest of some peers that agrees; None if there is none."""
    found = [
        figure["seconds"]
        for peer in peers
        for way, figure in cell.get(peer, {}).items()
        if way in ways and isinstance(figure, dict) and "seconds" in figure and agrees(figure)
    ]
    return min(found, default=None)


PEERS = ("sklearn", "onnxruntime", "hummingbird")


def ratio(cell: dict[str, Any], way: str) -> float | None:
    """How many times as fast hbtvm is as the best peer that agrees, given the same."""
    ways = ("frame",) if way == "frame" else ("frame", "arrays")
    own, other = best(cell, (way,), ("hbtvm",)), best(cell, ways, PEERS)
    return None if own is None or other is None else other / own


def _ratios(cell: dict[str, Any]) -> list[str]:
    return ["–" if (found := ratio(cell, way)) is None else f"{found:.1f}x" for way in ("frame", "arrays")]


def _mean(results: dict[str, Any], threads: int, rows: int, way: str) -> str:
    found = [
        value
        for name in CASES
        if (cell := results["cells"].get(f"{name}/{threads}/{rows}")) is not None
        and (value := ratio(cell, way)) is not None
    ]
    return f"**{statistics.geometric_mean(found):.1f}x**" if found else "–"


def _time(seconds: float, rows: int) -> str:
    return f"{seconds * 1e6:,.1f} µs" if rows == 1 else f"{seconds / rows * 1e9:,.0f} ns"


def markdown(results: dict[str, Any]) -> str:
    """All tables."""
    keys = sorted({tuple(map(int, key.split("/")[1:])) for key in results["cells"]})
    parts = [_table(results, threads, rows) for threads, rows in keys]
    told = [f"{name} {number}" for own in results["versions"].values() if own for name, number in own.items()]
    head = (
        "From a pandas frame, and with arrays ready; medians, in turns, each peer in its own process. "
        f"≠: other answers than scikit-learn's. {', '.join(told)}.\n"
    )
    return "\n".join([head, *filter(None, parts)])


def plot(results: dict[str, Any], path: Path) -> Path | None:
    """Draw how many times as fast hbtvm is as each peer from a frame; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    rows = [n for n in (1, 10_000) if any(key.endswith(f"/1/{n}") for key in results["cells"])]
    names = [name for name in CASES if any(f"{name}/1/{n}" in results["cells"] for n in rows)]
    if not names or not rows:
        return None
    figure = Figure(figsize=(11, 0.5 * len(names) + 1.6), layout="constrained")
    colours = {"sklearn": "#f7931e", "onnxruntime": "#6c757d", "hummingbird": "#9b5de5", "hbtvm": "#1f6feb"}
    for axes, count in zip(figure.subplots(1, len(rows), sharey=True, squeeze=False)[0], rows, strict=True):
        for at, name in enumerate(names):
            cell = results["cells"].get(f"{name}/1/{count}", {})
            for peer, colour in colours.items():
                seconds = best(cell, ("frame",), (peer,))
                if seconds is not None:
                    axes.scatter(seconds / count * 1e6, at, s=60, color=colour, label=peer, zorder=3)
        axes.set_xscale("log")
        axes.set_title("one row" if count == 1 else f"{count:,} rows")
        axes.set_xlabel("µs a row")
        axes.set_yticks(range(len(names)), [CASES[name].title for name in names], fontsize=8)
        axes.grid(axis="x", alpha=0.3)
    axes = figure.axes[0]
    # Shared by all of them.
    axes.invert_yaxis()
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), fontsize=8, loc="outside lower center", ncols=len(handles)
    )
    figure.suptitle("From a pandas frame, one thread; less is better. Only peers with scikit-learn's answers")
    figure.savefig(path)
    return path
