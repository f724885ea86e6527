"""Run Python steps between compiled parts of a pipeline.

A package with Python steps computes ``last(python(lead(rows)))``: `lead` is a package that transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hbtvm.errors import PackageError
from hbtvm.graph.python_steps import PythonStep
from hbtvm.runtime.package.entry import Package


def trusted(package: Package) -> Package:
    """Return a package whose Python steps are imported, which can run any program.

    Raises `PackageError` if a step can't be imported.
    """
    lead = None if package.lead is None else trusted(package.lead)
    return replace(package, python=tuple(step.loaded() for step in package.python), lead=lead)


def parts_of(package: Package) -> list[Package]:
    """Return the compiled packages before and behind the Python steps; empty without Python steps.

    Raises `PackageError` if the steps are not imported.
    """
    if not package.python:
        return []
    if any(step.call is None for step in package.python):
        raise PackageError(
            f"the package runs Python code, {in_words(package.python)}; if you trust it, load it in Python "
            "with hbtvm.load(path, trust=True)."
        )
    return [*(() if package.lead is None else (package.lead,)), replace(package, python=(), lead=None)]


def chained(steps: Sequence[PythonStep], lead: Callable[[Any], Any] | None) -> Callable[..., Any]:
    """Return a function of a compiled method and rows: the method's result for the steps' rows.

    `lead`: computes the rows of the first step.
    """
    calls = [*(() if lead is None else (lead,)), *(step.call for step in steps)]
    if len(calls) == 1:
        first = calls[0]
        return lambda method, X: method(first(X))

    def call(method: Callable[[Any], Any], X: Any) -> Any:
        for each in calls:
            X = each(X)
        return method(X)

    return call


def methods_of(
    steps: Sequence[PythonStep], parts: Sequence[Any], outputs: Sequence[Any]
) -> tuple[dict[Any, Callable[[Any], Any]], Callable[[Any], Any]]:
    """Return functions of the caller's rows: ``predict`` by output, and ``transform``.

    `parts`: the models of `parts_of`.
    """
    call = chained(steps, parts[0].transform if len(parts) > 1 else None)
    last = parts[-1]
    predict: dict[Any, Callable[[Any], Any]] = {
        output: partial(call, partial(last.predict, output=output)) for output in outputs
    }
    return predict, partial(call, last.transform)


def in_words(steps: Sequence[PythonStep]) -> str:
    """Return the steps' names and classes."""
    return ", ".join(map(str, steps))
