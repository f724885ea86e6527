"""SVG charts of the report, coloured by its style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 10, 40


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
