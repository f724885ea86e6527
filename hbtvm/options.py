"""The options of `hbtvm.tune`, `search` and `compile` and of `hbtvm.trials.export`, before they are checked.

Only this module states each option's name, type and default; `hbtvm.run` checks the values.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from hbtvm.logs.store import Log

if TYPE_CHECKING:
    from hbtvm.runtime.recursive.structures import Structures
    from hbtvm.tuning.progress import Progress

Dtype = Literal["float32", "float64"]  # type of leaf values
PythonSteps = Literal["refuse", "keep"]  # what becomes of pipelines' steps that can't be compiled


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Options of `hbtvm.compile`; `hbtvm.search` describes them."""

    target: str | dict[str, Any] = "cpu"
    batch_sizes: int | Sequence[int] | None = None
    threads: int | None = None
    log: Log | str | os.PathLike[str] | None = None
    dtype: Dtype = "float32"
    strategies: str | Sequence[str] | None = None
    max_bytes: int | None = None
    device: str | int | None = None
    sample: Structures | None = None
    python_steps: PythonSteps = "refuse"
    explain: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchOptions(CompileOptions):
    """Options of `hbtvm.search`, which describes them, and of `hbtvm.trials.export`."""

    trials: int | None = None
    time_budget: float | None = None
    transfer: bool = True
    seed: int = 0
    progress: Progress | None = None
    rpc_tracker: str | None = None
    rpc_key: str | None = None
    preset: str = "default"
    explorer: str | None = None
    cost_model: str | None = None
    features: str | None = None
    acquisition: str | None = None
    diversity: int | None = None
    epsilon: float | None = None


_Keywords = ParamSpec("_Keywords")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")


def keywords(
    options: Callable[_Keywords, _Options],
) -> Callable[[Callable[[Any, _Options], _Result]], Callable[Concatenate[Any, _Keywords], _Result]]:
    """Turn a function of a model and an options object into a function of a model and keywords."""

    def decorate(
        function: Callable[[Any, _Options], _Result],
    ) -> Callable[Concatenate[Any, _Keywords], _Result]:
        declared = inspect.signature(function)
        names = inspect.signature(options).parameters
        signature = declared.replace(parameters=[declared.parameters["model"], *names.values()])

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> _Result:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            model = bound.arguments.pop("model")
            return function(model, options(**bound.arguments))  # type: ignore[call-arg]

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate
