"""How the commands write times, counts and tables: richly on a terminal, plainly elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person looks at the stream, on something that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


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
        print(f"{name:{width}}  {value}")


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
