"""The settings of a run: budget, search, learning and measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.encoding.loop_trees import MakeScorer
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.learning.tables import DescribeRecord
from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.noise import NoiseOptions
from hbtvm.tuning.measuring.pool import PoolOptions
from hbtvm.tuning.progress import Progress
from hbtvm.tuning.result import Entry

Overheads = Callable[[Mapping[str, tuple[Entry, BuiltLibrary]]], Mapping[str, float]]
"""Takes each group's fastest candidate so far, built. Returns the seconds of a whole call of the groups whose
calls are nearly all overhead, which no candidate can shorten."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of `hbtvm.tuning.session.tune` and `hbtvm.tuning.session.plan`."""

    # Candidates to try, over all tasks. `tune` counts the log's candidates of these tasks, and tries none of
    # them again; `plan` does not count them.
    trials: int
    time_budget: float | None = None  # seconds for the run, exceeded by a trial at most; None for no limit
    log: Log | None = None  # receives every result at once; None keeps nothing
    seed: int = 0  # the same seed, log and measured times give the same candidates
    transfer: bool = True  # whether to learn from other workloads' records
    choices: Choices = field(default_factory=Choices)  # the parts of the search
    # Relative improvement that the model must expect from a group's next batch; 0 searches all groups on
    enough: float = 0.0
    batch: int = 4  # candidates planned, built and measured at a time
    progress: Progress | None = None  # called after each trial
    # Called once, after each group's first candidate; the groups that it returns get no further trials
    overheads: Overheads | None = None
    # Returns the space and the loops of other workloads' records; without it they only give first guesses
    describe: DescribeRecord | None = None
    # Records to learn from besides the log's; by default, the records that ship
    experience: Sequence[Record] | None = None
    # `pool`, `timing`: worker processes, and how they time candidates; the run sets the cutoff
    pool: PoolOptions = field(default_factory=PoolOptions)
    timing: Timing = field(default_factory=Timing)
    slow: float = 3.0  # multiple of the group's best time above which one reading of a candidate is enough
    seeds: int = 2  # most first guesses that each task takes from similar workloads
    final: FinalOptions = field(default_factory=FinalOptions)  # how the winner is picked among the fastest
    noise: NoiseOptions = field(default_factory=NoiseOptions)  # when the machine counts as busy
    make_model: Callable[[], CostModel] | None = None  # makes cost models in place of the chosen one
    # Makes a TreeGRU's predictor in place of PyTorch (see `hbtvm.cost_model.models.tree_gru.TreeGRU`)
    make_scorer: MakeScorer | None = None
    # Keeps the libraries of each group's fastest candidates
    artifacts: Artifacts = field(default_factory=Artifacts)
    # Fields that all records of the run share: ``tvm``, ``hbtvm``, ``session``, ``model``
    stamp: Mapping[str, str] = field(default_factory=dict)
