"""Describe a package as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.package.summary import facts, kernel_tables
from hbtvm.words.printable import shown
from hbtvm.words.tables import html_table

_LONGEST = 2000  # most characters of a cell
_MOST = 50
"""Most columns and classes that are listed."""


def page(package: Package) -> str:
    """Return the description of a package: the model, its columns and classes, its kernels with times."""
    described = facts(package)
    title = described.pop("model")
    described |= {"columns": _listed(package.input.feature_names or ())}
    described |= {"classes": "; ".join(_listed(labels.tolist()) for labels in package.output.classes)}
    rows = [(name, text) for name, text in described.items() if text]
    parts = [_table([], rows)]
    parts += [
        f"<p>{_text(title)}</p>{_table(heads, cells)}" for title, heads, cells in kernel_tables(package)
    ]
    return f"<details open><summary><b>hbtvm: {_text(title)}</b></summary>{''.join(parts)}</details>"


def _listed(values: Sequence[object]) -> str:
    more = f", … ({len(values):,} in all)" if len(values) > _MOST else ""
    return ", ".join(shown(value, 40) for value in values[:_MOST]) + more


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return html_table(heads, [[shown(cell, _LONGEST) for cell in row] for row in rows])


def _text(text: str) -> str:
    return escape(shown(text, _LONGEST))
