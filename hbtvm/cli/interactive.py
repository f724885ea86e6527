"""`hbtvm.tune`: a search with a display and a log by default, as ``hbtvm tune`` has them."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from hbtvm import api
from hbtvm.api import Search
from hbtvm.cli.arguments import DEFAULT_LOG
from hbtvm.cli.progress.live import Live
from hbtvm.cli.show import is_terminal
from hbtvm.comparison.closing import in_notebook, show_closing
from hbtvm.logs.store import Log
from hbtvm.options import Dtype, PythonSteps
from hbtvm.runtime.model import Model
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.tuning.progress import Progress, Trial
from hbtvm.words.quantities import clock, count

_WIDTH = 100  # characters of a line in a notebook
_HINT = "  interrupt to stop here and keep the best so far"


def tune(
    model: Any,
    *,
    target: str | dict[str, Any] = "cpu",
    batch_sizes: int | Sequence[int] | None = None,
    threads: int | None = None,
    trials: int | None = None,
    time_budget: float | None = None,
    log: Log | str | os.PathLike[str] | None = DEFAULT_LOG,
    progress: bool | Progress = True,
    check: bool | None = None,
    seed: int = 0,
    transfer: bool = True,
    dtype: Dtype = "float32",
    strategies: str | Sequence[str] | None = None,
    max_bytes: int | None = None,
    device: str | int | None = None,
    sample: Structures | None = None,
    python_steps: PythonSteps = "refuse",
    explain: bool = False,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    preset: str = "default",
    explorer: str | None = None,
    cost_model: str | None = None,
    features: str | None = None,
    acquisition: str | None = None,
    diversity: int | None = None,
    epsilon: float | None = None,
) -> Model:
    """Search for a model's fastest code, as ``hbtvm tune`` does.

    Parameters
    ----------
    model
        A trained model, or the path of its file; or a recursive model.
    target
        ``"cpu"``, this machine's ``"cuda"`` or ``"opencl"``, or a TVM target that this machine can run.
    batch_sizes
        Rows per call to tune for, a number or several; by default 1, 100 and 10,000. The model takes any
        number of rows.
    threads
        Most threads of a call; by default, all CPUs that this process may use.
    trials, time_budget
        Candidates to try, and seconds to search; by default, 240 candidates in at most 100 seconds.
    log
        The tuning log to resume from and to append to, by default ``"hbtvm-tuning.jsonl"`` in the current
        folder; None keeps nothing.
    progress
        True shows a display in a terminal or a notebook, and nothing elsewhere; False never does. A function
        is called after each trial instead.
    check
        Whether to print at the end how the tuned model compares with its library on random rows: answers and
        times (see `hbtvm.Model.compare`). By default, in a terminal or notebook. Not for pickle files, nor
        for models that random rows do not fit.
    seed, transfer, dtype, strategies, max_bytes, device, sample, python_steps, explain, rpc_tracker, rpc_key
        As for `search`.
    preset, explorer, cost_model, features, acquisition, diversity, epsilon
        Parts of the search, as for `search`.

    Returns
    -------
    The tuned model. An interrupt stops the search and returns the best so far.

    Raises
    ------
    ModelError, InputError, TargetError, DeviceError, BuildError, LogError
        As for `search`.

    Examples
    --------
    >>> tuned = hbtvm.tune("model.pkl", batch_sizes=(1, 1000))  # doctest: +SKIP
    >>> tuned.save("model.tar")  # doctest: +SKIP
    """
    options = {name: value for name, value in locals().items() if name not in ("model", "progress", "check")}
    if not isinstance(progress, bool):
        return _checked(api.search(model, progress=progress, **options), model, check)
    title = os.path.basename(model) if isinstance(model, str | os.PathLike) else type(model).__name__
    with _display(str(title)) if progress else nullcontext() as display:
        search = api.search(model, progress=display, **options)
    if display is not None:
        result = search.result
        for warning in result.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        kept = "" if log is None else f"; log: {getattr(log, 'path', log)}"
        spent = clock(result.seconds.total)
        print(f"tuned {title}: {count(result.trials, 'trial')} in {spent}{kept}", file=sys.stderr)
    return _checked(search, model, check)


def _checked(search: Search, model: Any, check: bool | None) -> Model:
    if not search.result.interrupted:
        show_closing(search.model, model, check, search.untuned)
    return search.model


def _display(title: str) -> AbstractContextManager[Progress | None]:
    """Return the display of a notebook or a terminal; of neither, an empty context."""
    if in_notebook():
        return _Notebook(title)
    return Live(title, sys.stderr, _HINT) if is_terminal(sys.stderr) else nullcontext()


class _Notebook(Live):
    """The display in a notebook's cell, drawn at most once a second, by the thread that searches."""

    def __init__(self, title: str) -> None:
        super().__init__(title, io.StringIO(), _HINT, width=_WIDTH)
        self._drawn = 0.0
        self._handle: Any = import_module("IPython.display").display(
            {"text/plain": ""}, raw=True, display_id=True
        )

    def __enter__(self) -> _Notebook:
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update({"text/plain": ""}, raw=True)

    def __call__(self, trial: Trial) -> None:
        """Show a trial, if the last one was drawn a second ago."""
        super().__call__(trial)
        if time.monotonic() - self._drawn >= 1:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        with self._console.capture() as text:
            self._console.print(self._render())
        self._handle.update({"text/plain": text.get()}, raw=True)
