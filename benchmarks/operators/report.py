"""Results of operators as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import common
from benchmarks.operators.cases import FAMILIES, Case, cases
from benchmarks.operators.limits import BANDWIDTH, PEAK
from benchmarks.operators.peers import NOT_THERE
from benchmarks.pipelines.report import line

__all__ = ["agrees", "best", "line", "markdown", "ratio"]

OFF, FAR = 1e-3, 1e-2
"""Differences from which a row's answer counts as another one; the latter for models that peers fit."""

SHARE, SHARE_OF_FITTED = 1e-3, 1e-2
"""Shares of rows with other answers up to which peers agree: labels may change in float32 where scores are
nearly equal; the latter for models that peers fit."""

PROMISE = {"float32": 1e-5, "float64": 1e-6}
"""Difference that hbtvm promises not to exceed, by the type of the rows."""

PEERS = ("sklearn", "onnxruntime", "hummingbird", "onedal")
NAMES = {
    "sklearn": "scikit-learn",
    "onnxruntime": "ONNX Runtime",
    "hummingbird": "Hummingbird",
    "onedal": "oneDAL",
    "hbtvm": "hbtvm",
}

Key = tuple[str, int, int]
"""Type of the rows, threads and rows of a call."""


def agrees(peer: str, figure: dict[str, Any], dtype: str = "float32") -> bool:
    """Whether answers are scikit-learn's."""
    told = figure.get("agrees")
    if told is None:
        return True
    if peer == "hbtvm":
        return bool(told["difference"] <= PROMISE[dtype])
    if peer == "onedal":
        return bool(told["far"] <= SHARE_OF_FITTED)
    return bool(told["off"] <= SHARE)


def best(cell: dict[str, Any], peer: str, dtype: str = "float32") -> float | None:
    """Seconds of a peer's fastest way that agrees; None if there is none."""
    found = [
        figure["seconds"]
        for figure in cell.get(peer, {}).values()
        if isinstance(figure, dict) and "seconds" in figure and agrees(peer, figure, dtype)
    ]
    return min(found, default=None)


def best_peer(cell: dict[str, Any], dtype: str = "float32") -> tuple[float, str] | None:
    """Seconds and name of the fastest peer that agrees."""
    return min(((s, peer) for peer in PEERS if (s := best(cell, peer, dtype)) is not None), default=None)


def ratio(cell: dict[str, Any], dtype: str = "float32") -> float | None:
    """How many times as fast hbtvm is as the best peer that agrees; None where one of both is missing."""
    own, other = best(cell, "hbtvm", dtype), best_peer(cell, dtype)
    return None if own is None or other is None else other[0] / own


def markdown(results: dict[str, Any]) -> str:
    """All tables."""
    keys = sorted({_key(name) for name in results["cells"]})
    told = [f"{name} {number}" for own in results["versions"].values() if own for name, number in own.items()]
    head = (
        "Rows ready as arrays; medians, in turns, each peer in its own process. **Bold**: the fastest peer "
        "that gives scikit-learn's answers; ≠: other answers; (12 s): a call would take so long, and was not "
        "timed; –: not offered; oneDAL fits models of its own. "
        f"Limit: the larger of bytes at {BANDWIDTH / 1e9:.0f} GB/s and operations at "
        f"{PEAK / 1e9:.0f} GFLOP/s, of one core. {', '.join(dict.fromkeys(told))}.\n"
    )
    parts = [head, _means(results, keys), *(_table(results, key) for key in keys)]
    parts += [_refusals(results), _differences(results), _limits()]
    return "\n".join(filter(None, parts))


def _key(name: str) -> Key:
    _, dtype, threads, rows = name.rsplit("/", 3)
    return dtype, int(threads), int(rows)


def _cells(results: dict[str, Any], key: Key) -> list[tuple[Case, dict[str, Any]]]:
    """Operators that were measured so, with their cells."""
    end = "/".join(map(str, key))
    found = ((case, results["cells"].get(f"{title}/{end}")) for title, case in cases().items())
    return [(case, cell) for case, cell in found if cell is not None]


def _words(key: Key) -> str:
    dtype, threads, rows = key
    of = "row" if rows == 1 else "rows"
    return f"{rows:,} {of} of {dtype}, {threads} thread{'s' if threads > 1 else ''}"


def _table(results: dict[str, Any], key: Key) -> str:
    """Operators by peers, for one type, number of threads and rows."""
    dtype, _, rows = key
    peers = [*PEERS, "hbtvm"]
    body = []
    for case, cell in _cells(results, key):
        first = best_peer(cell, dtype)
        shown = [_shown(cell, peer, rows, dtype, first is not None and first[1] == peer) for peer in peers]
        own, over = best(cell, "hbtvm", dtype), ratio(cell, dtype)
        ending = [
            f"{_number(case.limit.seconds * rows, rows)}",
            "–" if over is None else f"{over:.2g}x",
            "–" if own is None else f"{own / (case.limit.seconds * rows):.3g}x",
        ]
        body.append([case.title, *shown, *ending])
    unit = "µs a call" if rows == 1 else "ns a row"
    header = ["operator", *(NAMES[peer] for peer in peers), "limit", "over best", "of limit"]
    return f"### {_words(key)} ({unit})\n\n{common.markdown(header, body, second=['over best'])}\n"


def _shown(cell: dict[str, Any], peer: str, rows: int, dtype: str, bold: bool) -> str:
    """A peer's fastest way, else why there is none."""
    given = cell.get(peer, {})
    figures = [one for one in given.values() if isinstance(one, dict)]
    timed = [one for one in figures if "seconds" in one]
    if timed:
        right = [one for one in timed if agrees(peer, one, dtype)]
        seconds = min(one["seconds"] for one in right or timed)
        number = _number(seconds, rows)
        return f"{number} ≠" if not right else f"**{number}**" if bold else number
    skipped = [one["skipped"] for one in figures if "skipped" in one]
    if skipped:
        return f"({common.duration(min(skipped))})"
    why = given.get("failed")
    if not given or (why and NOT_THERE in why):
        return "–"
    return "refused" if peer == "hbtvm" and why else "fails"


def _number(seconds: float, rows: int) -> str:
    return f"{seconds * 1e6 if rows == 1 else seconds / rows * 1e9:,.3g}"


def _means(results: dict[str, Any], keys: list[Key]) -> str:
    """Geometric means of hbtvm against the best peer, by family."""
    header = ["hbtvm over the best peer", *(_words(key) for key in keys)]

    def row(title: str, member: Callable[[Case], bool]) -> list[str]:
        shown = [title]
        for key in keys:
            cells = [cell for case, cell in _cells(results, key) if member(case)]
            found = [over for cell in cells if (over := ratio(cell, key[0])) is not None]
            some = f" ({len(found)} of {len(cells)})" if len(found) < len(cells) else ""
            shown.append(f"{statistics.geometric_mean(found):.2f}x{some}" if found else "–")
        return shown

    rows = [row(family, lambda case, own=family: case.family == own) for family in FAMILIES]
    rows = [one for one in rows if any(cell != "–" for cell in one[1:])]
    rows.append(row("**geometric mean**", lambda case: True))
    behind = ["slowest of them"]
    for key in keys:
        found = [
            (over, case.title)
            for case, cell in _cells(results, key)
            if (over := ratio(cell, key[0])) is not None
        ]
        behind.append(f"{min(found)[0]:.2f}x ({min(found)[1]})" if found else "–")
    return f"{common.markdown(header, [*rows, behind])}\n"


def _refusals(results: dict[str, Any]) -> str:
    """What hbtvm refuses or fails at, and the other peers' reasons."""
    parts = []
    for peer in ("hbtvm", *PEERS):
        reasons: dict[str, list[str]] = {}
        for name, cell in results["cells"].items():
            given = cell.get(peer, {})
            all_of = (
                [given] if "failed" in given else [one for one in given.values() if isinstance(one, dict)]
            )
            for why in {one["failed"] for one in all_of if "failed" in one}:
                titles = reasons.setdefault(why, [])
                if (title := name.rsplit("/", 3)[0]) not in titles:
                    titles.append(title)
        reasons = {why: titles for why, titles in reasons.items() if NOT_THERE not in why}
        word = "refused" if peer == "hbtvm" else "fails"
        lines = [f"- {'; '.join(titles)}: {word}: {why}" for why, titles in reasons.items()]
        if lines:
            parts.append(f"### {NAMES[peer]}: what it does not compute\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _differences(results: dict[str, Any]) -> str:
    """The largest differences from scikit-learn's answers over all cells."""
    peers = [*PEERS[1:], "hbtvm"]
    body = []
    for title in cases():
        shown = []
        for peer in peers:
            told = [
                figure["agrees"]
                for name, cell in results["cells"].items()
                if name.rsplit("/", 3)[0] == title
                for figure in cell.get(peer, {}).values()
                if isinstance(figure, dict) and figure.get("agrees")
            ]
            off = max((one["off"] for one in told), default=0.0)
            worst = max((one["difference"] for one in told), default=0.0)
            rows = f", {off:.2%} of rows" if off else ""
            shown.append(f"{worst:.0e}{rows}" if told else "–")
        if any(one != "–" for one in shown):
            body.append([title, *shown])
    if not body:
        return ""
    table = common.markdown(["operator", *(NAMES[peer] for peer in peers)], body)
    return (
        "### Largest differences from scikit-learn's answers\n\n"
        f"Relative; and the share of rows that are off by more than {OFF:g}.\n\n{table}\n"
    )


def _limits() -> str:
    """How each limit comes about."""
    body = [[case.title, case.limit.formula, f"{case.limit.seconds * 1e9:,.3g}"] for case in cases().values()]
    return f"### Limits\n\n{common.markdown(['operator', 'a row', 'ns'], body)}\n"
