"""How the commands write times, counts and tables: richly on a terminal, plainly elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from hbtvm.printable import shown


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person looks at the stream, on something that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def duration(seconds: float | None) -> str:
    """A measured time with three digits: ``12.3 µs``; a dash for None."""
    if seconds is None:
        return "-"
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    # What would be rounded to 1000 of a unit is 1.00 of the next.
    unit, size = next(((unit, size) for unit, size in units if seconds >= 0.9995 * size), ("ns", 1e-9))
    value = seconds / size
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def clock(seconds: float) -> str:
    """Time that a person waits: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun: ``1 trial``, ``2 trials``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def config(choices: Mapping[str, object]) -> str:
    """A schedule's choices in one line."""
    return " ".join(f"{name}={choice}" for name, choice in choices.items())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """Write a table to standard output.

    Parameters
    ----------
    columns
        Headings.
    rows
        Cells, as many in each as there are headings.
    numbers
        Headings of the columns that are aligned to the right.
    """
    if is_terminal(sys.stdout):
        _print_rich(columns, rows, numbers)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        cells = [
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """Write names and values, one pair in a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        # A value may be text of a model file, which must not move the cursor.
        print(f"{name:{width}}  {shown(value, most=10_000)}")


def print_json(value: Any) -> None:
    """Write JSON for another program to read."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        number = name in numbers
        table.add_column(Text(name), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # as Text: brackets are no markup
    Console().print(table)
