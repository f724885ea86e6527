"""The bounds as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common import markdown
from benchmarks.gpu.bounds.bound import Bound

PIPES = ("issue", "alu", "fma", "l1", "l2", "latency")


@dataclass(frozen=True)
class Line:
    """One kernel on one batch.

    Attributes
    ----------
    model, kernel
        What they are called.
    rows
        Of the batch.
    bound
        Its bound; None where there is none.
    why
        Why there is none, else the configuration in words.
    """

    model: str
    kernel: str
    rows: int
    bound: Bound | None
    why: str = ""


def table(lines: Sequence[Line]) -> str:
    """All lines of one batch size each, compared with nvForest's best where it is among them.

    Cycles are of one multiprocessor for a tree and 32 rows; the largest of all is the bound.
    """
    header = (
        "model",
        "kernel",
        "rows",
        *PIPES,
        "DRAM, ms",
        "bound, ms",
        "M rows/s",
        "limit",
        "warps",
        "spilled",
    )
    rows = []
    for line in lines:
        found = line.bound
        if found is None:
            continue
        rows.append(
            (
                line.model,
                line.kernel,
                f"{line.rows:,}",
                *(f"{found.cycles[name]:.0f}" for name in PIPES),
                f"{1e3 * found.seconds['dram']:.3g}",
                f"{1e3 * found.total:.3g}",
                f"{line.rows / found.total / 1e6:.3g}",
                found.limit,
                f"{found.warps:.1f}",
                f"{found.spilled}",
                over(line, lines),
            )
        )
    text = markdown((*header, "over nvForest"), rows)
    missing = [
        f"{line.model}, {line.kernel}, {line.rows:,} rows: {line.why}" for line in lines if line.bound is None
    ]
    return text + "".join(f"\n\nLeft out: {one}." for one in missing)


def best_other(line: Line, lines: Sequence[Line]) -> Line | None:
    """Return nvForest's best kernel for the same model and rows."""
    others = [
        one
        for one in lines
        if one.kernel.startswith("nvForest")
        and (one.model, one.rows) == (line.model, line.rows)
        and one.bound is not None
    ]
    return min(others, key=lambda one: one.bound.total if one.bound else 0.0) if others else None


def over(line: Line, lines: Sequence[Line]) -> str:
    """Return how much less a kernel's bound is than that of nvForest's best."""
    other = best_other(line, lines)
    if other is None or other.bound is None or line.bound is None:
        return "–"
    return f"{other.bound.total / line.bound.total:.2f}"
