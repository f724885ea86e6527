"""Pipelines in memory whose refused steps stay in Python: the graphs around these steps.

``last(python(lead(rows)))``: `last` is the longest end of the pipeline that compiles, `python` are the steps
in front of it that do not, and `lead` is the rest, read in the same way. Of a ColumnTransformer, only the
transformers that are refused stay in Python: their results are further columns of its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import pickles, registry
from hbtvm.frontends.files import from_object
from hbtvm.frontends.kept_branches import split
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.transformers.containers import is_sampler, last_step
from hbtvm.frontends.transformers.functions import function_transformer
from hbtvm.frontends.transformers.where import Estimator
from hbtvm.graph.graph import Graph
from hbtvm.graph.python_steps import PythonStep
from hbtvm.runtime.branches import Branches


@dataclass(frozen=True)
class _Step:
    name: str
    live: Any  # the fitted estimator
    record: Record


def from_pipeline(model: Any) -> Graph:
    """Read a model object; a pipeline's steps that are refused stay in Python.

    Raises `UnsupportedModel` if it is refused, and not a pipeline, or the pipeline's last step is refused.
    """
    try:
        return from_object(model)
    except UnsupportedModel as error:
        refused = error
    inner = model
    while hasattr(inner, "best_estimator_"):
        inner = inner.best_estimator_
    if not _is_pipeline(inner):
        raise UnsupportedModel(
            f"{refused} python_steps='keep' keeps steps of a Pipeline, and this is a {type(inner).__name__}."
        ) from refused
    steps = list(_steps(inner))
    graph = _graph([part for step in steps for part in _split(step)], registry.read_plain)
    return replace(graph, steps=tuple((step.name, step.record.kind) for step in steps))


def _is_pipeline(model: Any) -> bool:
    return _how(model).last is last_step


def _how(model: Any) -> Estimator:
    return registry.ESTIMATORS.get(registry.class_of(model), Estimator())


def _steps(pipeline: Any, prefix: str = "") -> Iterator[_Step]:
    """Yield the steps that change rows, those of inner pipelines one by one."""
    for name, live in pipeline.steps:
        if live is None or (isinstance(live, str) and live == "passthrough"):
            continue
        if _is_pipeline(live):
            yield from _steps(live, f"{prefix}{name}__")
            continue
        record = pickles.from_live(live)
        if not is_sampler(record):
            yield _Step(f"{prefix}{name}", live, record)


def _split(step: _Step) -> list[_Step]:
    """Return a ColumnTransformer's refused transformers as a step in front of the rest; else the step."""
    if not step.record.is_a("sklearn", "ColumnTransformer") or _transforms(step.record):
        return [step]
    parts = split(step.live, step.record, _transforms)
    if parts is None or not _transforms(parts[2]):
        return [step]
    branches, names, rest = parts
    name = ", ".join(f"{step.name}__{name}" for name in names)
    python = Record(Global("hbtvm.runtime.branches", "Branches"))
    return [_Step(name, branches, python), _Step(step.name, step.live, rest)]


def _transforms(record: Record) -> bool:
    """Return whether a transformer compiles."""
    step = _Step("step", None, record)
    return _tried([step], lambda record: _required(registry.read_plain(record))) is not None


def _graph(steps: Sequence[_Step], read: Callable[[Record], Graph]) -> Graph:
    """Return the graph of steps; the last one must compile."""
    start = len(steps) - 1
    try:
        graph = _read(steps[start:], read)
    except ModelError as error:
        raise UnsupportedModel(
            f"{error} python_steps='keep' keeps steps before the last one only."
        ) from error
    for first in range(start):
        longer = _tried(steps[first:], read)
        if longer is not None:
            start, graph = first, longer
            break
    before, python = list(steps[:start]), list[_Step]()
    while before and (not python or not _leads(before[-1])):
        python.insert(0, before.pop())
    lead = _graph(before, lambda record: _required(read(record))) if before else None
    kept = tuple(PythonStep(step.name, _imported(step.live), call=_call(step.live)) for step in python)
    return replace(graph, python=kept, lead=lead)


def _read(steps: Sequence[_Step], read: Callable[[Record], Graph]) -> Graph:
    pipeline = Record(Global("sklearn.pipeline", "Pipeline"))
    pipeline.state = {"steps": [(step.name, step.record) for step in steps]}
    return read(pipeline)


def _tried(steps: Sequence[_Step], read: Callable[[Record], Graph]) -> Graph | None:
    try:
        return _read(steps, read)
    except ModelError:
        return None


def _leads(step: _Step) -> bool:
    """Return whether a step may be compiled in front of a Python step.

    A FunctionTransformer may not: compiled, it returns arrays for frames and lists. Nor may any step if
    scikit-learn is set to return frames everywhere, which steps do not record.
    """
    library = sys.modules.get("sklearn")
    frames = library is not None and library.get_config().get("transform_output", "default") != "default"
    if frames or _how(step.live).transforms is function_transformer:
        return False
    return _transforms(step.record)


def _required(graph: Graph) -> Graph:
    """Return the graph of ``transform``; `UnsupportedModel` if there is none."""
    result = graph if graph.output.kind == "transformer" else graph.transform
    if result is None:
        raise UnsupportedModel(f"{graph.model} does not transform.")
    return result


def _call(step: Any) -> Callable[[Any], Any]:
    """Return the step's function of rows."""
    if _is_function(step) and not step.validate and step.feature_names_out is None:
        # ``transform`` would only call it.
        return partial(step.func, **(step.kw_args or {}))
    transform: Callable[[Any], Any] = step.transform
    return transform


def _is_function(step: Any) -> bool:
    return _how(step).transforms is function_transformer and step.func is not None


def _imported(step: Any) -> str:
    """Return the modules and names that a step's pickle imports."""
    if isinstance(step, Branches):
        return ", ".join(_imported(branch.estimator) for branch in step.branches)
    named = step.func if _is_function(step) else type(step)
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"
