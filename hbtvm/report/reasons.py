"""The page of explained rows: a beeswarm of all rows, and a waterfall of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from hbtvm.report.style import document, text
from hbtvm.report.svg import Axis, linear
from hbtvm.words.quantities import count

_WIDTH, _LEFT, _RIGHT, _LANE, _BAR = 720, 190, 60, 28, 26
_COLUMNS = 15  # columns with a line of their own
_SHADES = ("#0072b2", "#3f6bb4", "#7a5ad0", "#9656b8", "#b6539b", "#c25457", "#d55e00")
"""From a column's lowest values to its highest."""

_STYLE = """
figure.wide{max-width:900px}.label{text-anchor:end}.label,.amount{fill:var(--ink)!important}
.dots{fill:none;stroke-width:4.4;stroke-linecap:round;opacity:.75}.none{stroke:var(--soft)}
.up{fill:#d55e00}.down{fill:#0072b2}.key i{display:inline-block;width:90px;height:9px;margin:0 6px}
""" + "".join(f".d{i}{{stroke:{shade}}}" for i, shade in enumerate(_SHADES))
_STYLE += f".key i{{background:linear-gradient(90deg,{','.join(_SHADES)})!important}}"


def render(
    values: np.ndarray,
    data: np.ndarray,
    names: Sequence[str],
    row: tuple[str, np.ndarray, np.ndarray, float],
    title: str,
    notes: Sequence[str] = (),
    made_by: str = "",
) -> str:
    """Return the page as HTML.

    `values`, `data`: contributions, float64, and the columns' values, shape (n, columns).
    `names`: the columns.
    `row`: of the row of the waterfall: its name, contributions and values of the columns, base value.
    `title`, `notes`: heading of the page, and sentences below it.
    `made_by`: last line of the page.
    """
    named, contributions, cells, base = row
    rows = count(len(values), "row")
    body = "".join(f"<p>{text(note, 1000)}</p>" for note in notes)
    body += _figure(
        "All rows",
        beeswarm(values, data, names),
        f"A point is one of {rows}: to the right, the column raises the score of its row. Columns are in the "
        "order of their mean absolute contribution.",
    )
    body += "<p class='key legend'>low<i></i>high value of the column; grey: a text, or missing</p>"
    body += _figure(
        named,
        waterfall(contributions, cells, names, base),
        "From the base value, the score of a row of which nothing is known, to the score of this row.",
    )
    return document(title, body, made_by, _STYLE)


def _figure(title: str, chart: str, caption: str) -> str:
    caption = f"<figcaption>{caption}</figcaption>"
    return f"<h2>{text(title)}</h2><figure class='wide'>{chart}{caption}</figure>"


def beeswarm(values: np.ndarray, data: np.ndarray, names: Sequence[str]) -> str:
    """Return a chart of all contributions, with a line for each column."""
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")
    shown, rest = order[:_COLUMNS], order[_COLUMNS:]
    lanes = [(str(names[j]), values[:, j], _shades(data[:, j])) for j in shown]
    if len(rest):
        other = f"sum of {len(rest):,} others" if len(rest) > 1 else str(names[rest[0]])
        lanes.append((other, values[:, rest].sum(axis=1), np.full(len(values), -1)))
    axis = linear([0.0, *(float(end) for _, x, _ in lanes for end in (x.min(), x.max()))])
    height = len(lanes) * _LANE + 40
    parts = [_open(height, f"contributions of {len(lanes)} columns in {len(values):,} rows")]
    parts += _ground(axis, height, "contribution to the score")
    for lane, (name, x, shade) in enumerate(lanes):
        middle = 4 + _LANE * (lane + 0.5)
        parts.append(_label(name, middle))
        across, down = np.array([_across(axis, value) for value in x]), middle + _spread(x, axis)
        for colour in np.unique(shade):
            of = np.flatnonzero(shade == colour)
            path = "".join(f"M{across[i]:.1f} {down[i]:.1f}h0" for i in of)
            kind = "none" if colour < 0 else f"d{colour}"
            parts.append(f'<path class="dots {kind}" d="{path}"/>')
    return "".join(parts) + "</svg>"


def waterfall(contributions: np.ndarray, data: np.ndarray, names: Sequence[str], base: float) -> str:
    """Return a chart of the steps from the base value to a row's score, the largest at the top."""
    order = np.argsort(-np.abs(contributions), kind="stable")
    steps = [
        (f"{names[j]} = {cell(data[j]) or 'missing'}", float(contributions[j])) for j in order[:_COLUMNS]
    ]
    rest = order[_COLUMNS:]
    if len(rest):
        steps.append(
            (f"{len(rest):,} other column{'s' if len(rest) > 1 else ''}", float(contributions[rest].sum()))
        )
    ends = np.cumsum([base, *(step for _, step in reversed(steps))])
    axis = linear([float(ends.min()), float(ends.max())])
    height = (len(steps) + 2) * _BAR + 40
    parts = [_open(height, f"steps from the base value {base:.4g} to the score {ends[-1]:.4g}")]
    parts += _ground(axis, height, "score", zero=None)
    parts += _line(axis, ends[-1], 4 + _BAR / 2, "score", f"{ends[-1]:.4g}")
    for lane, ((name, step), start, end) in enumerate(zip(steps, ends[-2::-1], ends[:0:-1], strict=True)):
        top = 4 + _BAR * (lane + 1)
        left, right = sorted((_across(axis, start), _across(axis, end)))
        parts.append(_label(name, top + _BAR / 2))
        parts.append(
            f'<rect class="{"up" if step > 0 else "down"}" x="{left:.1f}" y="{top + 4}" rx="2" '
            f'width="{max(right - left, 1):.1f}" height="{_BAR - 8}"><title>{escape(text(name))}: {step:+.6g}'
            "</title></rect>"
        )
        parts.append(
            f'<text class="amount" x="{right + 5:.1f}" y="{top + _BAR / 2 + 4:.1f}">{step:+.3g}</text>'
        )
        # The next step down begins where this one does.
        parts.append(
            f'<line class="grid" x1="{_across(axis, start):.1f}" x2="{_across(axis, start):.1f}" '
            f'y1="{top + 4}" y2="{top + 2 * _BAR - 4}"/>'
        )
    parts += _line(axis, base, 4 + _BAR * (len(steps) + 1.5), "base value", f"{base:.4g}")
    return "".join(parts) + "</svg>"


def cell(value: Any) -> str:
    """Return a value for people; empty if it is missing."""
    if value is None or value != value:
        return ""
    if isinstance(value, float | np.floating):
        return f"{int(value):d}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def _shades(column: np.ndarray) -> np.ndarray:
    """Return the position in `_SHADES` of each value, by rank; -1 for texts and missing values."""
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        return np.full(len(column), -1)
    known = np.isfinite(numbers)
    _, at, equal = np.unique(numbers[known], return_inverse=True, return_counts=True)
    rank = (np.cumsum(equal) - (equal + 1) / 2)[at] / max(known.sum() - 1, 1)
    shades = np.full(len(column), -1)
    shades[known] = np.minimum((rank * len(_SHADES)).astype(int), len(_SHADES) - 1)
    return shades


def _spread(x: np.ndarray, axis: Axis) -> np.ndarray:
    """Return offsets that stack points of equal x around the middle of their line."""
    bins = np.array([round(_across(axis, value) / 3) for value in x])
    order = np.argsort(bins, kind="stable")
    _, first, equal = np.unique(bins[order], return_index=True, return_counts=True)
    place = np.empty(len(x))
    place[order] = np.arange(len(x)) - np.repeat(first, equal)
    side = np.where(place % 2, 1, -1) * ((place + 1) // 2)
    room = (_LANE - 6) / 2
    most = max(1.0, float(np.abs(side).max()))
    offsets: np.ndarray = side * min(2.4, room / most)
    return offsets


def _open(height: int, title: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'


def _ground(axis: Axis, height: int, name: str, zero: float | None = 0.0) -> list[str]:
    bottom = height - 34
    parts = []
    for value, label in axis.ticks:
        at = _across(axis, value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{bottom}"/>')
        parts.append(f'<text class="x" x="{at:.1f}" y="{bottom + 14}">{escape(label)}</text>')
    if zero is not None:
        at = _across(axis, zero)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{bottom}"/>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="name" x="{middle:.0f}" y="{height - 5}">{escape(name)}</text>')
    return parts


def _line(axis: Axis, value: float, middle: float, name: str, amount: str) -> list[str]:
    at = _across(axis, value)
    return [
        _label(name, middle),
        f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{middle - 10:.1f}" y2="{middle + 10:.1f}"/>',
        f'<text class="amount" x="{at + 5:.1f}" y="{middle + 4:.1f}">{escape(amount)}</text>',
    ]


def _label(name: str, middle: float) -> str:
    at = f'x="{_LEFT - 8}" y="{middle + 4:.1f}"'
    return f'<text class="label" {at}>{text(name, 30)}<title>{text(name)}</title></text>'


def _across(axis: Axis, value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * axis.place(float(value))
