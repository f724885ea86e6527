"""The bounds as Markdown tables, and as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import markdown
from benchmarks.gpu.bounds.bound import Bound
from benchmarks.gpu.bounds.models import GOALS, MODELS, TITLES

PIPES = ("issue", "alu", "fma", "l1", "l2", "latency")
OTHER = "nvForest"


@dataclass(frozen=True)
class Line:
    """One kernel on one batch.

    Attributes
    ----------
    model
        One of `benchmarks.gpu.bounds.models.MODELS`.
    kernel
        What it is called; that of nvForest begins with `OTHER`.
    rows
        Of the batch.
    milliseconds
        Least time by each roof; empty where there is none.
    cycles
        The same in cycles of a multiprocessor for a tree and 32 rows.
    warps, spilled
        As in `benchmarks.gpu.bounds.bound.Bound`.
    why
        The configuration, or why there is no bound.
    """

    model: str
    kernel: str
    rows: int
    milliseconds: dict[str, float] = field(default_factory=dict)
    cycles: dict[str, float] = field(default_factory=dict)
    warps: float = 0.0
    spilled: int = 0
    why: str = ""

    @classmethod
    def of(cls, model: str, kernel: str, rows: int, found: Bound, why: str = "") -> Line:
        """Return what a bound says."""
        times = {name: 1e3 * seconds for name, seconds in found.seconds.items()}
        return cls(model, kernel, rows, times, found.cycles, found.warps, found.spilled, why)

    @property
    def total(self) -> float:
        """The largest of all roofs, in milliseconds."""
        return max(self.milliseconds.values())

    @property
    def limit(self) -> str:
        """Which one that is."""
        return max(self.milliseconds, key=lambda name: self.milliseconds[name])

    def to_json(self) -> dict[str, Any]:
        """Plain values, of which `Line(**values)` is the same."""
        return dataclasses.asdict(self)


def best(lines: Sequence[Line], model: str, rows: int, other: bool) -> Line | None:
    """Return the kernel with the least bound for a model and a batch: this project's, or of nvForest's."""
    chosen = [
        line
        for line in lines
        if (line.model, line.rows, line.kernel.startswith(OTHER)) == (model, rows, other)
        and line.milliseconds
    ]
    return min(chosen, key=lambda line: line.total, default=None)


def table(lines: Sequence[Line]) -> str:
    """All kernels of this project, and the best of nvForest's for each model and batch.

    Cycles are of one multiprocessor for a tree and 32 rows; the largest of all is the bound.
    """
    header = ("model", "rows", "kernel", *PIPES, "DRAM, ms", "bound, ms", "M rows/s", "limit", "warps")
    cells = []
    for line in lines:
        other = best(lines, line.model, line.rows, True)
        if not line.milliseconds or (line.kernel.startswith(OTHER) and line is not other):
            continue
        cells.append(
            (
                TITLES.get(line.model, line.model),
                f"{line.rows:,}",
                line.kernel + (f" (spills {line.spilled} B)" if line.spilled else ""),
                *(f"{line.cycles[name]:.0f}" for name in PIPES),
                f"{line.milliseconds['dram']:.2g}",
                f"{line.total:.3g}",
                f"{line.rows / line.total / 1e3:.3g}",
                line.limit,
                f"{line.warps:.1f}",
                f"{other.total / line.total:.2f}" if other else "–",
            )
        )
    text = markdown((*header, "over nvForest"), cells)
    missing = [
        f"{line.model}, {line.kernel}, {line.rows:,} rows: {line.why}" for line in lines if not line.cycles
    ]
    return text + "".join(f"\n\nLeft out: {one}." for one in missing)


def goals(lines: Sequence[Line], rows: int = 1_000_000) -> str:
    """The best kernel for each model against the best of nvForest's; and warps at all batches."""
    batches = sorted({line.rows for line in lines})
    header = ("model", "best kernel", "bound, ms", "nvForest's best", "bound, ms", "ratio", "goal")
    cells = []
    for model in MODELS:
        own, other = best(lines, model, rows, False), best(lines, model, rows, True)
        if own and other:
            told = [
                own.kernel,
                f"{own.total:.3g}",
                other.kernel.removeprefix(f"{OTHER} "),
                f"{other.total:.3g}",
            ]
            cells.append((TITLES[model], *told, f"{other.total / own.total:.2f}", f"{GOALS[model]:g}"))
    text = markdown(header, cells) if cells else ""
    warps: list[tuple[str, ...]] = []
    for model in MODELS:
        pairs = [(best(lines, model, n, False), best(lines, model, n, True)) for n in batches]
        told = [f"{own.warps:.0f} : {other.warps:.0f}" if own and other else "–" for own, other in pairs]
        ratios = [f" ({other.total / own.total:.2f})" if own and other else "" for own, other in pairs]
        if any(one != "–" for one in told):
            warps.append((TITLES[model], *(a + b for a, b in zip(told, ratios, strict=True))))
    titles = ("warps, best : nvForest's best (ratio)", *(f"{n:,} rows" for n in batches))
    return text + ("\n\n" + markdown(titles, warps) if warps else "")
