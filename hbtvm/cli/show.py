"""What the commands write: every line for a person goes through here.

Text out of files (names, logs, packages) may hold anything, so control characters are replaced by visible
escapes. On a terminal lines are broken between words where they would be too long; elsewhere they stay whole,
for programs to read.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any

from hbtvm.printable import shown

_MOST = 20_000
"""Characters of one piece of text that are shown at most."""

_GAP = "  "


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person looks at the stream, on something that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def columns(stream: IO[str]) -> int | None:
    """Characters of a line on the stream's terminal (``COLUMNS`` overrides it); None if it is no terminal."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fold(text: str, width: int | None, indent: str | None = None) -> str:
    """Break a line between words; a word that is longer than `width` stays whole.

    Parameters
    ----------
    width
        Most characters of a line; None for no limit.
    indent
        What lines after the first begin with; by default, what the first begins with.
    """
    if width is None or len(text) <= width:
        return text
    start = text[: len(text) - len(text.lstrip())]
    lines = textwrap.wrap(
        text.strip(),
        width,
        initial_indent=start,
        subsequent_indent=start if indent is None else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def print_line(text: str = "", stream: IO[str] | None = None, indent: str | None = None) -> None:
    """Write a line, by default to standard output; where it is broken, further lines begin with `indent`."""
    stream = stream or sys.stdout
    print(fold(shown(text, _MOST), columns(stream), indent), file=stream, flush=stream is sys.stderr)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """Write a table to standard output; where a terminal is too narrow, a block of lines for each row.

    Parameters
    ----------
    heads
        Headings.
    rows
        Cells, as many in each as there are headings.
    numbers
        Headings of the columns that are aligned to the right and never broken.
    """
    cells = [[shown(cell, _MOST) for cell in row] for row in rows]
    width = columns(sys.stdout)
    widths = _widths(heads, cells, numbers, width)
    if widths is None:
        for i, row in enumerate(cells):
            if i:
                print()
            print_facts({head: cell for head, cell in zip(heads, row, strict=True) if cell})
        return
    print("\n".join(_table_lines(heads, heads, numbers, widths)))
    if width is not None:
        print(_GAP.join("─" * each for each in widths))
    for row in cells:
        print("\n".join(_table_lines(heads, row, numbers, widths)))


def print_facts(facts: Mapping[str, str]) -> None:
    """Write names and values, one pair in a line; long values go on below their beginning."""
    names = {shown(name): value for name, value in facts.items()}
    width = max(map(len, names), default=0)
    indent = " " * (width + len(_GAP))
    for name, value in names.items():
        room = columns(sys.stdout)
        folded = fold(shown(value, _MOST), None if room is None else max(room - len(indent), 1))
        print(f"{name:{width}}{_GAP}{folded}".rstrip().replace("\n", "\n" + indent))


def print_json(value: Any) -> None:
    """Write JSON for another program to read; characters that can't be printed are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def _widths(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str], width: int | None
) -> list[int] | None:
    """Characters of each column; None where no column can be as narrow as it would have to be."""
    full = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    if width is None:
        return full
    whole = [
        max(_longest_word(head), max((len(row[i]) for row in rows), default=0))
        for i, head in enumerate(heads)
    ]
    least = [
        whole[i] if head in numbers else max(_longest_word(row[i]) for row in [heads, *rows])
        for i, head in enumerate(heads)
    ]
    room = width - len(_GAP) * (len(heads) - 1)
    if sum(least) > room:
        return None
    # Headings are broken first, then cells; always those of the widest column.
    for floor in (whole, least):
        while sum(full) > room and full != floor:
            at = max((i for i in range(len(full)) if full[i] > floor[i]), key=lambda i: full[i])
            full[at] -= 1
    # A column of single words below each other reads worse than a block for each row.
    if any(len(row[i]) > 6 * full[i] for row in rows for i in range(len(heads))):
        return None
    return full


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _table_lines(
    heads: Sequence[str], row: Sequence[str], numbers: Sequence[str], widths: Sequence[int]
) -> list[str]:
    parts = [fold(cell, width).split("\n") for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, parts))):
        cells = [part[number] if number < len(part) else "" for part in parts]
        placed = [
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for head, cell, width in zip(heads, cells, widths, strict=True)
        ]
        lines.append(_GAP.join(placed).rstrip())
    return lines
