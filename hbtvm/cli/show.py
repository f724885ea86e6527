"""Print the commands' output for people.

Text from files (names, logs, packages) may hold anything, so control characters become visible escapes. On a
terminal long lines are folded between words; elsewhere they stay whole, for programs to read.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any

from hbtvm.words.printable import shown

_MOST = 20_000  # most characters of a piece of text

_GAP = "  "


def is_terminal(stream: IO[str]) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def columns(stream: IO[str]) -> int | None:
    """Return the width of the stream's terminal (``COLUMNS`` overrides it); None if it is not a terminal."""
    if not stream.isatty():
        return None
    variable = os.environ.get("COLUMNS", "")
    if variable.isdecimal() and int(variable) > 0:
        return int(variable)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fold(text: str, width: int | None, indent: str | None = None) -> str:
    """Fold a line between words; a word longer than `width` stays whole.

    `width`: most characters of a line; None for no limit.
    `indent`: prefix of lines after the first; by default, the first line's indentation.
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
    """Print a line, by default to standard output; continuation lines begin with `indent`."""
    stream = stream or sys.stdout
    print(fold(shown(text, _MOST), columns(stream), indent), file=stream, flush=stream is sys.stderr)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """Print a table or, if the terminal is too narrow, a block of lines for each row.

    `heads`: headings.
    `rows`: cells, one for each heading.
    `numbers`: headings of columns that are right-aligned and never folded.
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
    """Print names and values, a pair per line; long values continue below their beginning."""
    names = {shown(name): value for name, value in facts.items()}
    width = max(map(len, names), default=0)
    indent = " " * (width + len(_GAP))
    for name, value in names.items():
        room = columns(sys.stdout)
        folded = fold(shown(value, _MOST), None if room is None else max(room - len(indent), 1))
        print(f"{name:{width}}{_GAP}{folded}".rstrip().replace("\n", "\n" + indent))


def print_json(value: Any) -> None:
    """Print JSON, with unprintable characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def _widths(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str], width: int | None
) -> list[int] | None:
    """Return the width of each column; None if the table can't be narrow enough."""
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
    # Fold headings first, then cells, always of the widest column.
    for floor in (whole, least):
        while sum(full) > room and full != floor:
            at = max((i for i in range(len(full)) if full[i] > floor[i]), key=lambda i: full[i])
            full[at] -= 1
    # A block for each row reads better than columns of single words.
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
