"""SVG charts: of the report, coloured by its style sheet, and pictures of ratios, which stand alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Literal

WIDTH, HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 10, 40

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
class Axis:
    """A mapping from numbers to positions."""

    # `low`, `high`: the numbers at its ends
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]  # numbers of tick marks, and their labels
    log: bool = False  # whether the axis is logarithmic

    def place(self, value: float) -> float:
        """Return a number's position, 0 at the low end and 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


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


def counting(most: int) -> Axis:
    """Return an axis from 0 to an integer."""
    step = _round_step(max(most, 1) / 5)
    step = max(1, round(step))
    ticks = [(float(tick), f"{tick:,}") for tick in range(0, most + 1, step)]
    return Axis(0.0, float(max(most, 1)), ticks)


def linear(values: Sequence[float]) -> Axis:
    """Return an axis that covers these numbers."""
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    pad = 0.04 * (high - low)
    low, high = low - pad, high + pad
    step = _round_step((high - low) / 5)
    first = math.ceil(low / step)
    ticks = [(i * step, f"{i * step:g}") for i in range(first, math.floor(high / step) + 1)]
    return Axis(low, high, ticks)


def seconds(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis that covers these times."""
    low, high = min(values) / 1.12, max(values) * 1.12
    ticks: list[tuple[float, str]] = []
    digits = (1,) if high / low > 100 else (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 4, 6, 8)
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in digits:
            value = digit * 10.0**exponent
            if low <= value <= high:
                ticks.append((value, _short(value)))
    if len(ticks) < 2:
        middle = math.sqrt(low * high)
        ticks = [(value, _short(value)) for value in (min(values), middle, max(values))]
        if ticks[0][1] == ticks[-1][1]:
            ticks = ticks[1:2]
    return Axis(low, high, ticks, log=True)


class Chart:
    """A chart under construction.

    `x`, `y`: its axes.
    `x_name`, `y_name`: labels of the axes.
    `title`: description of the chart for screen readers.
    """

    def __init__(self, x: Axis, y: Axis, x_name: str, y_name: str, title: str) -> None:
        self._x, self._y = x, y
        middle, half = (WIDTH + _LEFT - _RIGHT) / 2, (HEIGHT - _BOTTOM + _TOP) / 2
        self._parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
            *self._grid(),
            f'<text class="name" x="{middle:.0f}" y="{HEIGHT - 6}">{escape(x_name)}</text>',
            f'<text class="name" transform="translate(13 {half:.0f}) rotate(-90)">{escape(y_name)}</text>',
        ]

    def steps(self, points: Sequence[tuple[float, float]], colour: int, tip: str) -> None:
        """Draw a line that is level from each point to the next point's x."""
        if not points:
            return
        path = f"M{self._at(points[0][0], points[0][1])}"
        for x, y in points[1:]:
            path += f"H{self._across(x):.1f}V{self._down(y):.1f}"
        self._parts.append(f'<path class="line s{colour}" d="{path}"><title>{escape(tip)}</title></path>')

    def dot(self, x: float, y: float, colour: int, tip: str, strong: bool = False) -> None:
        """Draw a point with a tooltip."""
        radius = 3.2 if strong else 2.4
        self._parts.append(
            f'<circle class="{"dot" if strong else "dot faint"} s{colour}" cx="{self._across(x):.1f}" '
            f'cy="{self._down(y):.1f}" r="{radius}"><title>{escape(tip)}</title></circle>'
        )

    def mark(self, x: float, kind: Literal["slower", "failed"], colour: int, tip: str) -> None:
        """Draw a triangle at the top edge for a slower candidate, or a cross at the bottom for a failure."""
        across, top, bottom = self._across(x), _TOP + 1, HEIGHT - _BOTTOM - 4
        path = (
            f"M{across - 3:.1f} {top + 5}h6l-3 -5z"
            if kind == "slower"
            else f"M{across - 2.5:.1f} {bottom - 2.5}l5 5m0 -5l-5 5"
        )
        self._parts.append(f'<path class="slow s{colour}" d="{path}"><title>{escape(tip)}</title></path>')

    def text(self) -> str:
        """Return the finished chart."""
        return "".join(self._parts) + "</svg>"

    def _grid(self) -> list[str]:
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        parts = []
        for value, label in self._y.ticks:
            at = self._down(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="y" x="{_LEFT - 6}" y="{at + 3.5:.1f}">{escape(label)}</text>')
        for value, label in self._x.ticks:
            at = self._across(value)
            parts.append(f'<text class="x" x="{at:.1f}" y="{bottom + 15}">{escape(label)}</text>')
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        return parts

    def _at(self, x: float, y: float) -> str:
        return f"{self._across(x):.1f} {self._down(y):.1f}"

    def _across(self, x: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * self._x.place(x)

    def _down(self, y: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * self._y.place(y)


def _round_step(rough: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... that is not below `rough`."""
    size = 10.0 ** math.floor(math.log10(rough))
    return next(digit * size for digit in (1, 2, 5, 10) if digit * size >= rough * 0.999)


def _short(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.1e} s"
