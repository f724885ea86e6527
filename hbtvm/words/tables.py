"""Tables as plain text and as HTML; callers make cells printable."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def text_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> list[str]:
    """Return a table as lines of text; columns whose heading is in `numbers` are right-aligned."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """Return a table as HTML, with cells escaped; without headings, all columns are left-aligned."""
    from html import escape  # only notebooks need it

    def line(cells: Sequence[str], tag: str) -> str:
        inner = ""
        for at, cell in enumerate(cells):
            side = "right" if heads and heads[at] in numbers else "left"
            inner += f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
        return f"<tr>{inner}</tr>"

    head = f"<thead>{line(heads, 'th')}</thead>" if heads else ""
    return f"<table>{head}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"
