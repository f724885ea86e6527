"""Compare a package with its model's library, for the commands, and print the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli.show import print_facts, print_line, print_table

if TYPE_CHECKING:
    from hbtvm.comparison.result import Comparison
    from hbtvm.runtime.model import Model

MOST_ROWS = 100_000  # rows of a file that are compared by default
RANDOM_ROWS = 10_000


def compared(model: Model, path: Path, X: Any, *, trust: bool, timeout: float) -> Comparison:
    """Compare a package with the model of a file, which its library loads in a process of its own.

    `X`: the rows; None for random rows.
    `timeout`: seconds of a call of the library after which its process is killed.
    Raises `InputError` if a pickle is not trusted, or random rows do not fit the model. Raises `HbtvmError`
    if the library's process fails.
    """
    from hbtvm.comparison.closing import rows_for
    from hbtvm.comparison.compare import compare

    X = rows_for(path, RANDOM_ROWS) if X is None else X
    return compare(model, path, X, trust=trust, timeout=timeout)


def print_comparison(comparison: Comparison) -> None:
    """Print the tables, the verdict and the conditions; rows and columns count from 1, as in all commands."""
    for heads, rows, numbers in comparison.tables(1):
        if rows:
            print_table(heads, rows, numbers)
            print_line()
    print_line(comparison.verdict)
    print_line(comparison.conditions)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values; rows and columns count from 1."""
    value = dataclasses.asdict(comparison)
    for output in value["outputs"]:
        for example in output["examples"]:
            example["row"] += 1
            example["column"] = None if example["column"] is None else example["column"] + 1
            for side in ("library", "package"):
                if not isinstance(example[side], str | int | float | None):
                    example[side] = repr(example[side])
    return {"agrees": comparison.agrees, **value}


def print_closing(
    model: Model, path: Path, package: Path, *, trust: bool, untuned: Callable[[], Model] | None = None
) -> None:
    """Print at the end of a search how the package compares with its library on random rows, if possible.

    Otherwise print the command that compares them. Errors of the library don't spoil the search's result.

    `untuned`: compiles the model with default schedules, which are compared, too.
    """
    from hbtvm.comparison.closing import closing
    from hbtvm.comparison.process import needs_trust

    command = f"hbtvm check {package} --model {path}"
    if needs_trust(path):
        command += " --trust"
        if not trust:
            print_facts({"compare": f"{command} --data ROWS"})
            return
    try:
        comparison = closing(model, path, trust=trust, untuned=untuned)
    except (Exception, KeyboardInterrupt) as error:
        reason = str(error).rstrip(".") or "interrupted"
        print_facts({"compare": f"{command} --data ROWS (not done here: {reason})"})
        return
    print_line()
    print_comparison(comparison)
