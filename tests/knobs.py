"""Check that every knob of a strategy's space changes the program and its features."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from hbtvm.compiler.features.describe import describe_kernel
from hbtvm.cost_model import features
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Strategy


def assert_knobs_matter(
    strategy: Strategy,
    workload: Workload,
    target: dict[str, Any],
    count: int,
    tied: Collection[str],
    unseen: Collection[str] = (),
) -> None:
    """Check that changing one knob changes the program, and its loop features.

    Parameters
    ----------
    count
        Configurations, beside the default, to change knobs of.
    tied
        Names of knobs that may have no other choice in any of those.
    unseen
        Names of knobs that change nothing about loops.
    """
    gpu = target["kind"] == "cuda"
    space = strategy.space(workload, target)
    start = strategy.default(workload, target)
    assert space.contains(start)
    starts = [start, *space.sample(np.random.default_rng(8), count)]
    # Most pairs are a change of the same configurations, which are looked at once.
    program = _once(lambda config: strategy.module(workload, config).script())
    loops = _once(lambda config: features([describe_kernel(strategy, workload, gpu, config)])[0])
    for knob in space.knobs:
        pairs = [
            (config, {**config, knob.name: choice})
            for config in starts
            for choice in knob.choices
            if choice != config[knob.name] and space.contains({**config, knob.name: choice})
        ]
        if not pairs:
            assert len(knob.choices) == 1 or knob.name in tied, knob.name
            continue
        assert program(pairs[0][0]) != program(pairs[0][1]), knob.name
        seen = (_differ(loops(one), loops(other)) for one, other in pairs[:40])
        assert knob.name in unseen or any(seen), knob.name


def _once(function: Callable[[Config], Any]) -> Callable[[Config], Any]:
    """Return a function of configurations that computes each one's result once."""
    known: dict[tuple[Any, ...], Any] = {}

    def found(config: Config) -> Any:
        key = tuple(sorted(config.items()))
        if key not in known:
            known[key] = function(config)
        return known[key]

    return found


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether loop features, which are finite, differ."""
    assert np.all(np.isfinite(one)) and np.all(np.isfinite(other))
    return bool(np.any(one != other))
