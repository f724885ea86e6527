"""The results as a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import duration, markdown


def best_peer(times: dict[str, float]) -> tuple[str, float] | None:
    """The fastest of the others, and its time."""
    others = {name: seconds for name, seconds in times.items() if name != "hbtvm"}
    return min(others.items(), key=lambda item: item[1]) if others else None


def table(results: dict[str, Any]) -> str:
    """All cells as Markdown, with ratios over the best peer of each."""
    header = (
        "model",
        "rows",
        "kernel",
        "best peer",
        "ratio",
        "with copies",
        "ratio",
        "rows/s",
        "bandwidth",
        "compute",
    )
    rows = []
    for cell in results["cells"]:
        line = [f"{cell['model']}, {cell['data']}", f"{cell['rows']:,}"]
        for kind in ("kernel", "copies"):
            own, best = cell["times"][kind]["hbtvm"], best_peer(cell["times"][kind])
            line.append(duration(own))
            if kind == "kernel":
                line.append(f"{best[0]} {duration(best[1])}" if best else "–")
            line.append(f"{best[1] / own:.2f}×" if best else "–")
        line += [f"{cell['rows_per_second']:.3g}"]
        line += [f"{cell[share]:.0%}" for share in ("share_of_bandwidth", "share_of_comparisons")]
        rows.append(line)
    text = f"{results['gpu']}, driver for CUDA {results['driver']}; medians.\n\n{markdown(header, rows)}\n"
    for name, why in results["left_out"].items():
        text += f"\nLeft out: {name} ({why})."
    failed = {(n, why) for cell in results["cells"] for n, why in cell["errors"].items()}
    return text + "".join(f"\nFailed: {name} ({why})." for name, why in sorted(failed)) + "\n"


def plot(results: dict[str, Any], path: Path) -> None:
    """Kernel times by rows, a panel for each model; nothing where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("No picture: matplotlib is not installed.")
        return
    titles = list(dict.fromkeys((cell["model"], cell["data"]) for cell in results["cells"]))
    figure = Figure(figsize=(4 * len(titles), 3.4), layout="constrained")
    for axis, (model, data) in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles, strict=True):
        own = [cell for cell in results["cells"] if (cell["model"], cell["data"]) == (model, data)]
        for name in dict.fromkeys(name for cell in own for name in cell["times"]["kernel"]):
            there = [cell for cell in own if name in cell["times"]["kernel"]]
            seconds = [cell["times"]["kernel"][name] for cell in there]
            axis.loglog([cell["rows"] for cell in there], seconds, marker="o", label=name)
        axis.set(title=f"{model}, {data}", xlabel="rows per call", ylabel="seconds, kernel only")
        axis.grid(color="#dddddd")
        axis.legend(fontsize=7)
    figure.savefig(path)
