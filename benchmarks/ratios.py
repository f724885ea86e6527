"""Pictures of ratios as SVG files, legible on light and dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from hbtvm.report.svg import Axis

_PICTURE = 560  # width of a picture of ratios
_STYLE = """
svg{--paper:#fff;--ink:#1c1f24;--soft:#57606a;--rule:#dfe3e8;--more:#0072b2;--less:#c2500a;--line:#6cb4e0}
@media(prefers-color-scheme:dark){svg{--paper:#15181c;--ink:#e6e8eb;--soft:#9aa3af;--rule:#343a43;
--more:#3d9bd1;--less:#f08a4b;--line:#1f5f87}}
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--ink)}
.paper{fill:var(--paper)}.group{font-weight:600;font-size:14px;
paint-order:stroke;stroke:var(--paper);stroke-width:6px}.soft{fill:var(--soft);font-size:12px}
.value{font-weight:600;text-anchor:end}.middle{text-anchor:middle}.grid{stroke:var(--rule)}
.same{stroke:var(--soft)}.more{fill:var(--more)}.less{fill:var(--less)}
.ends{stroke:var(--line);stroke-width:2}.ends.below{stroke:var(--less)}
"""


@dataclass(frozen=True)
class Bar:
    """A ratio in a picture of ratios."""

    label: str
    ratio: float
    # The smallest and the largest of the ratios that it stands for
    low: float | None = None
    high: float | None = None


def ratios(groups: Sequence[tuple[str, Sequence[Bar]]], title: str, caption: str) -> str:
    """Return a picture of ratios as an SVG file, legible on light and dark pages.

    `groups`: bars under a heading each. Bars start at 1 on a logarithmic axis.
    `title`: heading, also the description for screen readers.
    `caption`: last line.
    """
    bars = [bar for _, group in groups for bar in group]
    longest = max(len(bar.label) for bar in bars)
    left, right = 84 + round(7.2 * longest), _PICTURE - 20
    low = min(0.9, *(bar.low or bar.ratio for bar in bars))
    high = max(bar.high or bar.ratio for bar in bars) * 1.05
    tens = (0.1, 1, 10, 100, 1000) if high / low > 100 else (0.1, 0.3, 1, 3, 10, 30)
    axis = Axis(low, high, [(x, f"{x:,g}×") for x in tens if low <= x <= high], log=True)

    def across(value: float) -> float:
        return left + (right - left) * axis.place(value)

    parts, down, top = [], 50.0, 44
    for name, group in groups:
        for line in wrap(name, 64):
            parts.append(f'<text class="group" x="16" y="{down + 14:.0f}">{escape(line)}</text>')
            down += 18
        down += 6
        for bar in group:
            parts += _bar(bar, down, left, across)
            down += 22
        down += 10
    grid = []
    for value, label in axis.ticks:
        at, kind = across(value), "same" if value == 1 else "grid"
        grid.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{down - 4:.0f}"/>')
        grid.append(f'<text class="soft middle" x="{at:.1f}" y="{down + 12:.0f}">{label}</text>')
    height = round(down + 44)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_PICTURE}" height="{height}" '
        f'viewBox="0 0 {_PICTURE} {height}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="paper" width="{_PICTURE}" height="{height}" rx="8"/>\n'
        f'<text class="group" x="16" y="28">{escape(title)}</text>\n'
        + "\n".join([*grid, *parts])
        + f'\n<text class="soft" x="16" y="{height - 12}">{escape(caption)}</text>\n</svg>\n'
    )


def _bar(bar: Bar, down: float, left: float, across: Callable[[float], float]) -> list[str]:
    """Return a bar with its label, its number, and a line between its ends."""
    base, end = across(1.0), across(bar.ratio)
    tip = f"{bar.label}: {_times(bar.ratio)}"
    if bar.low is not None and bar.high is not None:
        tip += f" (from {_times(bar.low)} to {_times(bar.high)})"
    kind = "more" if bar.ratio >= 1 else "less"
    parts = [
        f'<text class="soft" x="16" y="{down + 12:.0f}">{escape(bar.label)}</text>',
        f'<text class="value" x="{left - 12}" y="{down + 12:.0f}">{_times(bar.ratio)}</text>',
        f'<rect class="{kind}" x="{min(base, end):.1f}" y="{down + 1:.0f}" '
        f'width="{max(abs(end - base), 1):.1f}" height="13"><title>{escape(tip)}</title></rect>',
    ]
    if bar.low is not None and bar.high is not None:
        middle = down + 7.5
        faster, slower = (max(bar.low, 1.0), bar.high), (bar.low, min(bar.high, 1.0))
        for kind, (start, stop) in (("ends", faster), ("ends below", slower)):
            if start < stop:
                path = f"M{across(start):.1f} {middle}H{across(stop):.1f}"
                parts.append(f'<path class="{kind}" d="{path}"/>')
    return parts


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×"
