"""Check that every knob of a strategy's space changes the program and its features."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from hbtvm.cost_model import features
from hbtvm.schedules.space import columns
from hbtvm.strategies import Strategy, Workload


def assert_knobs_matter(
    strategy: Strategy, workload: Workload, target: dict[str, Any], count: int, tied: Collection[str]
) -> None:
    """Check that changing one knob changes the program, and what the cost model is told of it.

    Parameters
    ----------
    count
        Configurations, beside the default, to change knobs of.
    tied
        Names of knobs that may have no other choice in any of those.
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
        told = features(
            strategy.loops(workload, columns([c for pair in pairs for c in pair])), 2 * len(pairs)
        )
        assert np.all(np.isfinite(told))
        assert np.any(told[0::2] != told[1::2]), knob.name
