"""`Comparison`: times and agreement of a package and its library, with tables for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from hbtvm.words.printable import shown
from hbtvm.words.quantities import count, duration
from hbtvm.words.tables import html_table, text_lines

Table = tuple[Sequence[str], Sequence[Sequence[str]], Sequence[str]]
"""Headings, rows of cells, and the headings of right-aligned columns."""


@dataclass(frozen=True)
class Timing:
    """Median times of a call, measured in turns.

    `rows`: rows of the call.
    `library`, `package`: seconds.
    `default`: seconds of the model with default schedules; None if it was not compared.
    """

    rows: int
    library: float
    package: float
    default: float | None = None

    @property
    def speedup(self) -> float:
        """The library's time in times of the package's."""
        return self.library / self.package


@dataclass(frozen=True)
class Example:
    """A value that differs.

    `row`, `column`: its position, from 0; the column is None for results of one column.
    `library`, `package`: the values.
    """

    row: int
    column: int | None
    library: Any
    package: Any


@dataclass(frozen=True)
class Agreement:
    """How an output of the package agrees with the library's.

    `output`: the library's method, such as ``"predict_proba"``; ``"raw"`` for raw scores of boosters.
    `rows`: number of compared rows.
    `equal`: rows with the same labels, or with numbers within the tolerance.
    `ties`: rows among them whose labels differ, and whose best scores in the library agree within the
        tolerance.
    `largest`: largest difference of a number, relative to its column's largest; None for labels.
    `examples`: values of the first rows that differ.
    `problem`: why the outputs can't be compared, in a sentence; else empty.
    """

    output: str
    rows: int
    equal: int
    ties: int = 0
    largest: float | None = None
    examples: tuple[Example, ...] = ()
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every row agrees."""
        return not self.problem and self.equal == self.rows


@dataclass(frozen=True, repr=False)
class Comparison:
    """A package against its library, on the same rows and this machine.

    `library`: the library, its version and the model's class.
    `threads`: most threads of a call, of both.
    `tolerance`: largest relative difference of numbers that count as equal.
    `timings`: by number of rows.
    `outputs`: by output that both have.
    """

    library: str
    threads: int
    tolerance: float
    timings: tuple[Timing, ...] = ()
    outputs: tuple[Agreement, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every row of every output agrees."""
        return all(output.agrees for output in self.outputs)

    @property
    def verdict(self) -> str:
        """The result of the comparison, in a sentence."""
        wrong = [output.output for output in self.outputs if not output.agrees]
        if wrong:
            return f"the package DIFFERS from the library in {', '.join(wrong)}"
        rows = max((output.rows for output in self.outputs), default=0)
        names = ", ".join(output.output for output in self.outputs)
        return f"the package agrees with the library in all {count(rows, 'row')}: {names}"

    @property
    def conditions(self) -> str:
        """Library, threads and tolerance, in a sentence."""
        threads = count(self.threads, "thread")
        faster = "" if self.threads == 1 else " (the library with that or one, whichever is faster)"
        return (
            f"{self.library}; medians in turns, {threads}{faster}; numbers within {self.tolerance:.1g} of "
            "their column's largest count as equal"
        )

    def tables(self, first: int = 0) -> list[Table]:
        """Return the tables: times, outputs, and values that differ, if any.

        `first`: the number of the first row and column.
        """
        both = any(each.default is not None for each in self.timings)
        times = [
            (
                f"{each.rows:,}",
                duration(each.library),
                *((duration(each.default),) if both else ()),
                duration(each.package),
                *((speedup(each.library / each.default) if each.default else "-",) if both else ()),
                speedup(each.speedup),
            )
            for each in self.timings
        ]
        heads: tuple[str, ...] = ("rows in a call", "library", "package", "speed-up")
        if both:
            heads = (*heads[:2], "default", "tuned", "default's speed-up", "tuned's")
        outputs = [
            (each.output, f"{each.rows:,}", f"{each.equal:,}", _largest(each)) for each in self.outputs
        ]
        tables: list[Table] = [
            (heads, times, heads),
            (("output", "rows", "agree", "largest difference"), outputs, ("rows", "agree")),
        ]
        examples = [
            (each.output, *(_place(at, first) for at in (one.row, one.column)), *_values(one))
            for each in self.outputs
            for one in each.examples
        ]
        if examples:
            row = f"row (from {first})"
            tables.append((("output", row, "column", "library", "package"), examples, (row, "column")))
        return tables

    def __repr__(self) -> str:
        parts = ["\n".join(text_lines(*table)) for table in self.tables() if table[1]]
        return "\n\n".join([*parts, f"{self.verdict}\n{self.conditions}"])

    def _repr_html_(self) -> str:
        tables = "".join(html_table(*table) for table in self.tables() if table[1])
        return f"<p><b>{escape(self.verdict)}</b></p>{tables}<p>{escape(self.conditions)}</p>"


def speedup(times: float) -> str:
    """Return a speed-up with two digits or more: ``0.61×``, ``8.3×``, ``1,090×``."""
    return f"{times:,.{2 if times < 1 else 1 if times < 10 else 0}f}×"


def _largest(output: Agreement) -> str:
    if output.problem:
        return output.problem
    if output.largest is not None:
        return f"{output.largest:.1e}"
    differ = output.rows - output.equal
    words = (
        f"{count(differ, 'label')} differ" if differ > 1 else "1 label differs" if differ else "labels equal"
    )
    return f"{words} ({output.ties:,} ties)" if output.ties else words


def _place(at: int | None, first: int) -> str:
    return "" if at is None else f"{at + first:,}"


def _values(example: Example) -> tuple[str, str]:
    return shown(repr(example.library), 40), shown(repr(example.package), 40)
