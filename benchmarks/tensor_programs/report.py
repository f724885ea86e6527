"""Tables of the comparison and of transfer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.tensor_programs.transfer import WITHIN
from benchmarks.tensor_programs.workloads import WORKLOADS


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of the last comparison of each workload and number of threads."""
    latest = {(row["threads"], row["workload"]): row for row in rows}
    heads: tuple[str, ...] = (
        "workload",
        "threads",
        "hbtvm, ms",
        "GFLOP/s",
        "trials",
        "over MetaSchedule",
        "its trials",
    )
    heads += ("over PyTorch", "PyTorch's way")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    ratios: dict[tuple[str, int], list[float]] = {}
    order = list(WORKLOADS)
    for (threads, name), row in sorted(latest.items(), key=lambda kv: (kv[0][0], order.index(kv[0][1]))):
        seconds, ours = row["seconds"], row["seconds"]["hbtvm"]
        theirs = {way: time for way, time in seconds.items() if way.startswith("PyTorch")}
        way = min(theirs, key=lambda key: theirs[key])
        cells = [name, str(threads), f"{ours * 1e3:.3f}", f"{WORKLOADS[name].operations / ours / 1e9:.0f}"]
        cells.append(str(row["trials"]["hbtvm"]))
        meta = seconds.get("MetaSchedule")
        cells += [f"{meta / ours:.2f}×" if meta else "-", str(row["trials"].get("MetaSchedule", "-"))]
        cells += [f"{theirs[way] / ours:.2f}×", way.removeprefix("PyTorch, ")]
        lines.append(f"| {' | '.join(cells)} |")
        ratios.setdefault(("PyTorch", threads), []).append(theirs[way] / ours)
        if meta:
            ratios.setdefault(("MetaSchedule", threads), []).append(meta / ours)
    lines.append("")
    for (peer, threads), known in sorted(ratios.items()):
        count = f"{threads} thread{'s' * (threads > 1)}"
        lines.append(
            f"Over {peer}, {count}: geometric mean {statistics.geometric_mean(known):.2f}× of {len(known)}."
        )
    return "\n".join(lines) + "\n"


def transfer_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of trials with and without transfer (see `benchmarks.tensor_programs.transfer`).

    A search that did not reach a time counts as twice its trials in the geometric means.
    """
    latest = {(row["first"], row["threads"], row["workload"], row["seed"]): row for row in rows}
    heads = [f"{percent}%: without → with" for percent in WITHIN]
    lines = [
        f"| workload | first | threads | seed | best, ms: without → with | {' | '.join(heads)} |",
        "|---|---|---|---|---" + "|---" * len(heads) + "|",
    ]
    saved: dict[tuple[str, int], list[float]] = {}
    for (first, threads, name, seed), row in latest.items():
        best = " → ".join(f"{row['best'][way] * 1e3:.3f}" for way in ("without", "with"))
        cells = [name, first, str(threads), str(seed), best]
        for percent in WITHIN:
            needed = [row[f"{way} {percent}%"] for way in ("without", "with")]
            cells.append(" → ".join(str(count or "not reached") for count in needed))
            without, taught = (count or 2 * row["trials"] for count in needed)
            saved.setdefault((first, percent), []).append(without / taught)
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for (first, percent), ratios in sorted(saved.items()):
        mean = statistics.geometric_mean(ratios)
        lines.append(f"First candidates {first}, {percent}%: {mean:.2f}× fewer trials with transfer.")
    return "\n".join(lines) + "\n"
