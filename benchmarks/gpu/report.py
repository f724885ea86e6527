"""The results as a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import duration, markdown
from benchmarks.gpu.clock import KINDS


def best_peer(times: dict[str, float]) -> tuple[str, float] | None:
    """The fastest of the others, and its time."""
    others = {name: seconds for name, seconds in times.items() if name != "hbtvm"}
    return min(others.items(), key=lambda item: item[1]) if others else None


HEADERS = {"queued": "device", "waited": "call on the device", "host": "call from the host"}
"""Headers of the times (see `benchmarks.gpu.clock.KINDS`)."""


def table(results: dict[str, Any]) -> str:
    """All cells as Markdown: each of hbtvm's times, and beside it the best peer's with its ratio to it."""
    header = ["model", "rows"]
    for title in HEADERS.values():
        header += [f"hbtvm, {title}", "best peer"]
    header += ["rows/s", "bandwidth", "compares"]
    rows = []
    for cell in results["cells"]:
        line = [f"{cell['model']}, {cell['data']}", f"{cell['rows']:,}"]
        for kind in HEADERS:
            own, best = cell["times"][kind]["hbtvm"], best_peer(cell["times"][kind])
            line.append(duration(own))
            line.append(f"{best[0]} {duration(best[1])}, {best[1] / own:.2f}×" if best else "–")
        line += [f"{cell['rows_per_second']:.3g}"]
        line += [f"{cell[share]:.0%}" for share in ("share_of_bandwidth", "share_of_comparisons")]
        rows.append(line)
    text = (
        f"{results['gpu']}, driver for CUDA {results['driver']}; medians; all compute {results['output']}, "
    )
    text += f"base score included.\n\n{markdown(header, rows)}\n\n"
    text += "".join(f"- {HEADERS[kind]}: {what}\n" for kind, what in KINDS.items())
    text += "- rows/s, and shares of the device's bandwidth and compares: of hbtvm's device time\n"
    for name, why in results["left_out"].items():
        text += f"\nLeft out: {name} ({why})."
    failed = {(n, why) for cell in results["cells"] for n, why in cell["errors"].items()}
    return text + "".join(f"\nFailed: {name} ({why})." for name, why in sorted(failed)) + "\n"


def plot(results: dict[str, Any], path: Path) -> None:
    """Device times by rows, a panel for each model; nothing where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("No picture: matplotlib is not installed.")
        return
    titles = list(dict.fromkeys((cell["model"], cell["data"]) for cell in results["cells"]))
    figure = Figure(figsize=(4 * len(titles), 3.4), layout="constrained")
    for axis, (model, data) in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles, strict=True):
        own = [cell for cell in results["cells"] if (cell["model"], cell["data"]) == (model, data)]
        for name in dict.fromkeys(name for cell in own for name in cell["times"]["queued"]):
            there = [cell for cell in own if name in cell["times"]["queued"]]
            seconds = [cell["times"]["queued"][name] for cell in there]
            axis.loglog([cell["rows"] for cell in there], seconds, marker="o", label=name)
        axis.set(title=f"{model}, {data}", xlabel="rows per call", ylabel="seconds, on the device")
        axis.grid(color="#dddddd")
        axis.legend(fontsize=7)
    figure.savefig(path)
