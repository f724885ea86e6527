"""``hbtvm predict`` for a folder of files, into a folder of predictions."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.show import is_terminal, print_line
from hbtvm.errors import missing_package
from hbtvm.words.quantities import count, duration


def predict(arguments: argparse.Namespace, package: bytes, data: Path) -> int:
    """Run the command.

    Raises `UsageError` if no folder is named for the predictions.
    """
    if arguments.out is None:
        raise UsageError(f"{data}: this is a folder; name a folder for its predictions with -o")
    refuse_dialect(arguments)
    try:
        from hbtvm.streaming import dataset, reading
        from hbtvm.streaming.places import check_apart
    except ModuleNotFoundError as error:
        raise missing_package("folders need", error.name, "hbtvm[parquet]") from error
    out = Path(arguments.out)
    check_apart(data, out)
    job = dataset.Job(package, data, out, arguments.output, arguments.keep, arguments.drop)
    start = time.perf_counter()
    listed = reading.Dataset(data)
    total = len(listed.files)
    with progress(total, "file") as show:
        try:
            rows = dataset.predict(job, arguments.threads, show, arguments.overwrite, listed)
        except KeyboardInterrupt:
            print_line(f"{out}: the same command goes on where it was stopped", sys.stderr)
            raise
    took = time.perf_counter() - start
    pace = f", {rows / took:,.0f} rows/s" if rows else ""
    print_line(
        f"{out}: {count(rows, 'row')} predicted in {duration(took)}{pace}, {count(total, 'file')} in all"
    )
    return 0


def refuse_dialect(arguments: argparse.Namespace) -> None:
    """Raise a `UsageError` if an option says how a single CSV file is written."""
    for name, usual in {"header": "auto", "delimiter": None, "na": ()}.items():
        if getattr(arguments, name) != usual:
            raise UsageError(
                f"--{name} needs a single file; files of a folder begin with their column names, have commas "
                "between fields, and leave missing fields empty"
            )


@contextlib.contextmanager
def progress(total: int, noun: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of `total` files or parts (`noun`) on a terminal.

    Yields a function that takes the rows, and the files or parts, done since its last call.
    """
    shown = is_terminal(sys.stderr)
    done = [0, 0]
    start = last = time.perf_counter()

    def show(rows: int, more: int) -> None:
        nonlocal last
        done[0] += rows
        done[1] += more
        now = time.perf_counter()
        if shown and now - last > 0.2:
            last = now
            pace = done[0] / (now - start)
            line = f"{done[1]} of {count(total, noun)}, {count(done[0], 'row')}, {pace:,.0f} rows/s"
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
