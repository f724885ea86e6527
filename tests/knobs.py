"""Check that every knob of a strategy's space changes the program and its features."""

from __future__ import annotations

from collections.abc import Collection
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
    space = strategy.space(workload, target)
    start = strategy.default(workload, target)
    assert space.contains(start)
    starts = [start, *space.sample(np.random.default_rng(8), count)]
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
        programs = [strategy.module(workload, config).script() for config in pairs[0]]
        assert programs[0] != programs[1], knob.name
        seen = (_change(strategy, workload, target, *pair) for pair in pairs[:40])
        assert knob.name in unseen or any(seen), knob.name


def _change(
    strategy: Strategy, workload: Workload, target: dict[str, Any], one: Config, other: Config
) -> bool:
    """Whether two configurations differ in loop features."""
    gpu = target["kind"] == "cuda"
    told = features([describe_kernel(strategy, workload, gpu, config) for config in (one, other)])
    assert np.all(np.isfinite(told))
    return bool(np.any(told[0] != told[1]))
