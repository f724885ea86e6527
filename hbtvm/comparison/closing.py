"""Compare a package with its library on random rows, as at the end of a search."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hbtvm.comparison.compare import compare
from hbtvm.comparison.process import needs_trust
from hbtvm.comparison.random_rows import random_rows
from hbtvm.comparison.result import Comparison
from hbtvm.errors import InputError
from hbtvm.frontends import load_model
from hbtvm.graph.passes.in_kernel import in_kernel

if TYPE_CHECKING:
    from hbtvm.runtime.model import Model

ROWS, SECONDS, TIMEOUT = 1_000, 0.3, 20.0
"""Random rows, seconds of timing for each number of rows, and of a call of the library."""


def rows_for(theirs: Any, rows: int) -> Any:
    """Return random rows for a model object or file.

    Raises `InputError` if it reads texts or other columns than numbers and known categories.
    """
    X = random_rows(in_kernel(load_model(theirs)), rows)
    if X is None:
        raise InputError(
            "random rows do not fit the model, which reads texts or other columns than numbers and known "
            "categories; name rows of your own (in the shell: --data)"
        )
    return X


def closing(
    model: Model, theirs: Any, *, trust: bool = False, untuned: Callable[[], Model] | None = None
) -> Comparison:
    """Compare a package briefly with a model object or file; errors as for `hbtvm.comparison.compare`.

    `untuned`: compiles the model with default schedules, which are compared, too.
    """
    X = rows_for(theirs, ROWS)
    default = None if untuned is None else untuned()
    return compare(model, theirs, X, trust=trust, seconds=SECONDS, timeout=TIMEOUT, default=default)


def in_notebook() -> bool:
    """Return whether this process runs a notebook's cells."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def show_closing(
    model: Model, theirs: Any, check: bool | None, untuned: Callable[[], Model] | None = None
) -> None:
    """Print the comparison of a tuned model, or display it in a notebook; errors are not raised.

    `theirs`: the model object or file; pickles are left out, since loading one can run any program.
    `check`: whether to compare; None to do so in a terminal or notebook.
    `untuned`: as for `closing`.
    """
    notebook = in_notebook()
    if not (sys.stderr.isatty() or notebook if check is None else check):
        return
    with contextlib.suppress(Exception, KeyboardInterrupt):
        if isinstance(theirs, str | os.PathLike) and needs_trust(theirs):
            return
        comparison = closing(model, theirs, untuned=untuned)
        if notebook:
            from IPython.display import display

            display(comparison)
        else:
            print(comparison, file=sys.stderr)
