"""End a group's search when the cost model expects little from another batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hbtvm.schedules.space import Config
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.state import TaskState

FEWEST = 16  # candidates of a group below which the model's uncertainty is not trusted
TIMES = 2  # batches in a row that must promise too little: between them, the model learns

_FAITH = 0.1
"""Improvement, in log2, that weighs as much as a group's batches: if they promised that and gave nothing,
half of what the model expects counts."""


class Settling:
    """Tells which groups to leave.

    All tasks share one model, which takes a group of little variation for one of as much as the others'. A
    group's gain is therefore what the model expects, times the share that its batches gave of what the model
    promised.

    `enough`: relative improvement that a batch must promise; 0 leaves no group.
    `gains`: by group that was left: the improvement that was expected from another batch.
    """

    def __init__(self, enough: float) -> None:
        self.gains: dict[str, float] = {}
        self._least = math.log2(1 + enough)
        self._low: dict[str, int] = {}
        # By group: the fastest time before the first promise, and the sum of promises, in log2
        self._before: dict[str, float] = {}
        self._promised: dict[str, float] = {}

    def leaves(
        self, state: TaskState, configs: Sequence[Config], states: Sequence[TaskState], learner: Learner
    ) -> bool:
        """Return whether to leave the group of `state`, for which a batch was planned.

        `states`: the run's tasks.
        """
        group = state.task.group
        rivals = [rival for rival in states if rival.task.group == group]
        best = min(rival.best for rival in rivals)
        if not self._least or math.isinf(best) or sum(len(rival.measured) for rival in rivals) < FEWEST:
            return False
        promise = _gain(state, configs, best, learner)
        given = _FAITH + math.log2(self._before.setdefault(group, best) / best)
        trust = min(1.0, given / (_FAITH + self._promised.get(group, 0.0)))
        gain = trust * promise
        if math.isfinite(promise):
            self._promised[group] = self._promised.get(group, 0.0) + promise
        self._low[group] = self._low.get(group, 0) + 1 if gain < self._least else 0
        if self._low[group] < TIMES:
            return False
        for rival in rivals:
            # A task whose candidates all failed gets no more of them (see `hbtvm.tuning.task_scheduler`).
            if rival is state or rival.exhausted or (rival.measured and math.isinf(rival.best)):
                continue
            batch = rival.explorer.propose(len(configs), rival.measured)
            gain = max(gain, trust * _gain(rival, batch, best, learner) if rival.measured else math.inf)
        if gain >= self._least:
            self._low[group] = 0
            return False
        self.gains[group] = 2**gain - 1
        return True


def _gain(state: TaskState, configs: Sequence[Config], best: float, learner: Learner) -> float:
    """Return a batch's expected gain on the group's best, in log2; infinite if the model can't tell."""
    gain = learner.gain(state.index, configs, math.log2(state.best / best)) if configs else 0.0
    return math.inf if gain is None else gain
