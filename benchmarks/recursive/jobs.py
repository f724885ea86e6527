"""What a peer is asked to compute, and what it makes ready. Imported in the peers' processes: numpy only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.recursive.cases import MODELS, vocabulary, weights
from benchmarks.recursive.structures import Batch, Linear, batch


@dataclass(frozen=True)
class Job:
    """A model and a batch for one peer.

    Attributes
    ----------
    peer, model
        Their names.
    hidden, size, threads
        The hidden size, structures of a call, and threads that a call may use.
    package
        File of what hbtvm compiled.
    trials
        Of hbtvm's search; 0: none.
    config
        Schedule choices that hbtvm has to take, by name, in place of its own.
    mcpu
        CPU that hbtvm compiles for; None: this one.
    """

    peer: str
    model: str
    hidden: int
    size: int
    threads: int
    package: str = ""
    trials: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    mcpu: str | None = None

    @cached_property
    def batch(self) -> Batch:
        """The structures."""
        return batch(MODELS[self.model].kind, self.size, vocabulary(self.model, self.hidden))

    @cached_property
    def linear(self) -> Linear:
        """The structures, linearised."""
        return Linear(self.batch)

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights."""
        return weights(self.model, self.hidden)


@dataclass(frozen=True)
class Ready:
    """A peer that can be timed.

    Attributes
    ----------
    call
        Computes all states; returns those of the structures' roots, shape (structures, H).
    states
        The same, but returns the first state of all nodes, shape (nodes, H), in the order of `Job.linear`.
    """

    call: Callable[[], Any]
    states: Callable[[], Any]
