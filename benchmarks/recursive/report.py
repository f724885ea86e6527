"""Results of recursive models as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.common import duration
from benchmarks.common import markdown as table
from benchmarks.peers.measure import UNFIT
from benchmarks.recursive.cases import MODELS
from benchmarks.recursive.peers import OTHERS, PEERS
from benchmarks.recursive.results import Cell, Results
from benchmarks.recursive.studies import PAPER_LINEARISE, STEPS, UNROLLING

GOAL_SMALL, GOAL_LARGE, GOAL_MEAN, GOAL_NODE, GOAL_BOUND, GOAL_THREADS = 2.5, 1.8, 2.6, 6.0, 1.5, 1.7
"""Times faster than the best peer at the smaller and the larger hidden size, in geometric mean, and than
torch node by node; most times the bound; and how much faster two threads are than one."""

Told = dict[str, Any]
"""What was measured of a cell."""


def best_peer(cell: Told) -> tuple[float, str] | None:
    """Seconds and name of the fastest peer."""
    found = [(one["seconds"], name) for name, one in cell["peers"].items() if _timed(one) and name in OTHERS]
    return min(found, default=None)


def _timed(figure: Told) -> bool:
    return "seconds" in figure and "failed" not in figure


def seconds(cell: Told, peer: str) -> float | None:
    """Of a call; None where there is no time."""
    figure = cell["peers"].get(peer, {})
    return float(figure["seconds"]) if _timed(figure) else None


def over(cell: Told, peer: str | None = None) -> float | None:
    """How many times as fast hbtvm is as a peer, or as the best; None where one of both is missing."""
    own = seconds(cell, "hbtvm")
    best = best_peer(cell)
    other = seconds(cell, peer) if peer else best[0] if best else None
    return None if own is None or other is None else other / own


def of_bound(cell: Told) -> float | None:
    """How many times the bound hbtvm takes."""
    own = seconds(cell, "hbtvm")
    return None if own is None else own / cell["bound"]


def markdown(results: Results) -> str:
    """All tables."""
    versions = dict(pair for own in results.versions.values() for pair in own.items())
    told = ", ".join(f"{name} {number}" for name, number in versions.items())
    vectors = ", ".join(results.machine["vectors"])
    restricted = f"; restricted to {results.machine['mcpu']}" if "mcpu" in results.machine else ""
    head = (
        "# hbtvm and its peers on recursive models\n\n"
        f"{results.machine['cpu']}, {results.machine['cores']} cores, {vectors}{restricted}. {told}.\n\n"
        "Milliseconds of a call, medians, in turns, each peer in its own process; all states are within "
        "1e-5 of those computed node by node in float64. A call computes all states and returns the "
        "roots'. Peers other than DyNet get their structures linearised beforehand; hbtvm linearises "
        "within the call, and DyNet builds its graph. **Bold**: the fastest peer. –: does not take such "
        "models. Bound: the larger of operations at the speed of torch's best product of matrices, and of "
        "reading the recurrent weights once for each level but the first, as fast as a working set of "
        "their size can be read; operations for leaves count even where hbtvm looks their states up.\n"
    )
    cells = {cell: told for cell, told in results.cells.items() if cell.hidden in MODELS[cell.model].hidden}
    parts = [head, _goals(results, cells)]
    for threads in sorted({cell.threads for cell in cells}):
        parts.append(_times({cell: told for cell, told in cells.items() if cell.threads == threads}, threads))
    parts += [_threads(cells), _linearise(results), _ablation(results), _unrolling(results)]
    parts += [_hidden(results), _memory(cells)]
    parts += [_configurations(cells), _limits(results), _failures(results)]
    return "\n".join(filter(None, parts))


def _goals(results: Results, cells: dict[Cell, Told]) -> str:
    """What was asked for, and what is reached."""
    rows: list[list[str]] = []

    def add(
        what: str, goal: str, reached: Callable[[float], bool], found: dict[str, float], worst: Any
    ) -> None:
        if found:
            where = worst(found, key=found.__getitem__)
            value = found[where]
            rows.append([what, goal, f"{value:.2f}x", where, "yes" if reached(value) else "**no**"])

    def ratios(
        of: Callable[[Told], float | None], family: str | None = None, size: int | None = None
    ) -> dict[str, float]:
        found = {}
        for cell, told in cells.items():
            model = MODELS[cell.model]
            if (family is None or model.family == family) and (
                size is None or cell.hidden == model.hidden[size]
            ):
                value = of(told)
                if value is not None:
                    found[cell.title] = value
        return found

    def mean(found: dict[str, float]) -> dict[str, float]:
        return {f"of {len(found)} cells": statistics.geometric_mean(found.values())} if found else {}

    trees = "TreeFC, DAG-RNN, TreeGRU, TreeLSTM over the best peer"
    for size, goal in ((0, GOAL_SMALL), (1, GOAL_LARGE)):
        hidden = MODELS["treefc"].hidden[size]
        found = ratios(over, "tree", size)
        add(f"{trees}, H={hidden}", f"at least {goal:g}x", lambda x, goal=goal: x >= goal, found, min)  # type: ignore[misc]
    add(
        f"{trees}, mean",
        f"at least {GOAL_MEAN:g}x",
        lambda x: x >= GOAL_MEAN,
        mean(ratios(over, "tree")),
        min,
    )
    by_node = mean(ratios(lambda told: over(told, "node"), "tree"))
    add(
        "the same over torch node by node, mean",
        f"at least {GOAL_NODE:g}x",
        lambda x: x >= GOAL_NODE,
        by_node,
        min,
    )
    add("MV-RNN over the best peer", "never behind", lambda x: x >= 1, ratios(over, "matrix"), min)
    add("sequences over the best peer", "", lambda x: True, ratios(over, "sequence"), min)
    add("times the bound", f"at most {GOAL_BOUND:g}x", lambda x: x <= GOAL_BOUND, ratios(of_bound), max)
    faster = {cell.title: value for cell, value in speedups(cells) if cell.size == 10}
    add(
        "two threads over one, batch 10",
        f"at least {GOAL_THREADS:g}x",
        lambda x: x >= GOAL_THREADS,
        faster,
        min,
    )
    against = {key: told["seconds"] / PAPER_LINEARISE[key] for key, told in results.linearise.items()}
    add("linearisation, part of the paper's time", "below 1x", lambda x: x < 1, against, max)
    return f"## Goals\n\n{table(['what', 'goal', 'reached', 'where', 'met'], rows)}\n" if rows else ""


def speedups(cells: dict[Cell, Told]) -> Iterator[tuple[Cell, float]]:
    """How many times as fast hbtvm is with two threads as with one."""
    for cell, told in cells.items():
        one = cells.get(Cell(cell.model, cell.hidden, cell.size, 1))
        if cell.threads == 2 and one is not None:
            before, now = seconds(one, "hbtvm"), seconds(told, "hbtvm")
            if before is not None and now is not None:
                yield cell, before / now


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e3:.3g}" if value < 1 else f"{value * 1e3:.0f}"


def _times_x(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"


def _times(cells: dict[Cell, Told], threads: int) -> str:
    """Cells by peers."""
    names = [
        name
        for name in PEERS
        if any(told["peers"].get(name, {"failed": UNFIT}).get("failed") != UNFIT for told in cells.values())
    ]
    header = ["model", "H", "batch", "Mop", "levels", *(PEERS[name].title for name in names)]
    header += ["bound", "over best", "over node by node", "of bound"]
    body = []
    for cell, told in cells.items():
        best = best_peer(told)
        shown = []
        for name in names:
            text = _ms(seconds(told, name))
            failed = told["peers"].get(name, {}).get("failed", UNFIT)
            if text == "–" and failed != UNFIT:
                text = "fails"
            shown.append(f"**{text}**" if best and best[1] == name else text)
        size = [str(cell.hidden), str(cell.size), f"{told['operations'] / 1e6:.0f}", str(told["levels"])]
        ratios = map(_times_x, (over(told), over(told, "node"), of_bound(told)))
        body.append([MODELS[cell.model].title, *size, *shown, _ms(told["bound"]), *ratios])
    title = f"## Times, {threads} thread{'s' * (threads > 1)} (ms)"
    return f"{title}\n\n{table(header, body, second=['over best'])}\n"


def _threads(cells: dict[Cell, Told]) -> str:
    body = [
        [MODELS[cell.model].title, str(cell.hidden), str(cell.size), _times_x(value)]
        for cell, value in speedups(cells)
    ]
    return (
        f"## hbtvm with two threads over one\n\n{table(['model', 'H', 'batch', 'faster'], body)}\n"
        if body
        else ""
    )


def _linearise(results: Results) -> str:
    body = []
    for key, told in results.linearise.items():
        kind, size = key.split("/")
        paper = PAPER_LINEARISE[key]
        body.append([kind, size, str(told["nodes"]), f"{told['seconds'] * 1e6:.2f}", f"{paper * 1e6:.2f}"])
    header = ["structures", "batch", "nodes", "hbtvm", "Cortex (as published)"]
    return f"## Linearisation (µs)\n\n{table(header, body)}\n" if body else ""


def _ablation(results: Results) -> str:
    """Steps of optimisation, each with those before it."""
    body = []
    for cell, told in results.ablation.items():
        shown = [_ms(seconds(told, name)) for name, _ in STEPS]
        body.append([MODELS[cell.model].title, str(cell.hidden), str(cell.size), str(cell.threads), *shown])
    header = ["model", "H", "batch", "threads", *(name for name, _ in STEPS)]
    return f"## Optimisations, step by step (ms)\n\n{table(header, body)}\n" if body else ""


def unrolled(told: Told) -> float | None:
    """How many times as fast hbtvm is with two levels at a time as with one; None where a time is missing."""
    before, now = (seconds(told, name) for name, _ in UNROLLING)
    return None if before is None or now is None else before / now


def _unrolling(results: Results) -> str:
    body = []
    for cell, told in sorted(results.unrolling.items()):
        shown = [_ms(seconds(told, name)) for name, _ in UNROLLING]
        row = [MODELS[cell.model].title, str(cell.hidden), str(cell.size), str(cell.threads)]
        body.append([*row, *shown, _times_x(unrolled(told))])
    header = ["model", "H", "batch", "threads", *(name for name, _ in UNROLLING), "faster"]
    text = "## Recursive unrolling (ms)\n\nA node and its children in one step: two levels between barriers."
    return f"{text}\n\n{table(header, body, second=['faster'])}\n" if body else ""


def _hidden(results: Results) -> str:
    """Where more hidden sizes than the usual were measured."""
    body = []
    for cell, told in sorted(results.cells.items()):
        if cell.hidden not in MODELS[cell.model].hidden:
            times = [_ms(seconds(told, name)) for name in ("node", "level", "hbtvm")]
            row = [MODELS[cell.model].title, str(cell.hidden), str(cell.size), str(cell.threads)]
            body.append([*row, *times, _ms(told["bound"]), _times_x(over(told))])
    header = ["model", "H", "batch", "threads", *(PEERS[one].title for one in ("node", "level", "hbtvm"))]
    cells = table([*header, "bound", "over best"], body, second=["over best"])
    return f"## Other hidden sizes (ms)\n\n{cells}\n" if body else ""


def _memory(cells: dict[Cell, Told]) -> str:
    """The peaks of batch 10 on one thread."""
    chosen = {cell: told for cell, told in cells.items() if cell.threads == 1 and cell.size == 10}
    names = [
        name for name in PEERS if any("memory" in told["peers"].get(name, {}) for told in chosen.values())
    ]
    body = []
    for cell, told in chosen.items():
        peaks = [told["peers"].get(name, {}).get("memory") for name in names]
        shown = ["–" if one is None else f"{one / 1e6:.1f}" for one in peaks]
        body.append([MODELS[cell.model].title, str(cell.hidden), *shown])
    header = ["model", "H", *(PEERS[name].title for name in names)]
    if not body:
        return ""
    return (
        "## Memory (MB)\n\nThe most that a process took from loading the model to the end of its first call, "
        "over what it had with its libraries, the weights as they are given and the structures; batch 10, "
        "one thread.\n\n"
        f"{table(header, body)}\n"
    )


def _configurations(cells: dict[Cell, Told]) -> str:
    """What hbtvm chose, for each batch size."""
    body = []
    for cell, told in cells.items():
        for config in told["peers"].get("hbtvm", {}).get("configs", ()):
            if config["rows"] == cell.size:
                text = ", ".join(f"{name} {value}" for name, value in config.items() if name != "rows")
                body.append([cell.title, text])
    return f"## What hbtvm chose\n\n{table(['cell', 'configuration'], body)}\n" if body else ""


def _limits(results: Results) -> str:
    body = []
    for threads, told in results.limits.items():
        for size, speed in sorted(told["read"].items(), key=lambda item: int(item[0])):
            product = f"{told['product'] / 1e9:.0f}"
            body.append([threads, product, f"{int(size) / 2**20:.3g}", f"{speed / 1e9:.0f}"])
    header = ["threads", "product, Gop/s", "working set, MiB", "reading, GB/s"]
    return f"## Limits of the machine\n\n{table(header, body)}\n" if body else ""


def _failures(results: Results) -> str:
    lines: dict[str, list[str]] = {}
    for cells in (results.cells, results.ablation, results.unrolling):
        for cell, told in cells.items():
            for name, figure in told["peers"].items():
                if (why := figure.get("failed", UNFIT)) != UNFIT:
                    title = PEERS[name].title if name in PEERS else name
                    lines.setdefault(f"{title}: {why}", []).append(cell.title)
    text = "\n".join(f"- {why} ({'; '.join(titles)})" for why, titles in lines.items())
    return f"## What failed\n\n{text}\n" if text else ""


def line(cell: Cell, told: Told) -> str:
    """A cell in a line, fastest first."""
    done = sorted((one["seconds"], name) for name, one in told["peers"].items() if _timed(one))
    times = ", ".join(f"{name} {duration(took)}" for took, name in done)
    return f"{cell.title}: {times}; bound {duration(told['bound'])}"
