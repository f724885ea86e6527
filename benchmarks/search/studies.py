"""Which searches are held against each other: AutoTVM's figures 4 to 9, on this project's spaces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.search.replay import Recorded, Run, Variant, experience, replay
from hbtvm.tuning.choices import FEATURES, PRESETS, Choices


@dataclass(frozen=True)
class Study:
    """One figure: a question, and the searches that answer it.

    Attributes
    ----------
    whole
        Whether a run is over all spaces of one model, not over a space.
    """

    name: str
    title: str
    variants: tuple[Variant, ...]
    whole: bool = False


_USUAL = Variant("rank, process on its residual (default)")
_PROCESS = Variant("process alone", PRESETS["process"])
_MERITS = ("mean", "ucb", "ei")


def _of(model: str) -> Variant:
    return Variant(model, Choices(cost_model=model))


def _by(explorer: str) -> Variant:
    return Variant({"tpe": "TPE"}.get(explorer, explorer), PRESETS[explorer])


def _features(source: str) -> tuple[Variant, ...]:
    # First guesses would hide what the models know.
    return tuple(Variant(kind, Choices(features=kind), source, guesses=False) for kind in FEATURES)


STUDIES = (
    Study(
        "figure-4",
        "Cost model against black-box search",
        (
            _USUAL,
            _PROCESS,
            *map(_of, ("rank", "regression")),
            *map(_by, ("genetic", "tpe", "random", "grid")),
        ),
    ),
    # By themselves, as each takes ten times as long as all others.
    Study(
        "slow",
        "Searches that plan for seconds",
        (
            _USUAL,
            Variant("AutoTVM: rank, loop features", PRESETS["autotvm"]),
            Variant("TreeGRU", PRESETS["tree_gru"]),
            # It evolves a population anew for each batch, which takes seconds however small the batch is.
            Variant("MetaSchedule, batches of 8", PRESETS["metaschedule"], batch=8),
        ),
    ),
    Study("figure-5", "Rank against regression", (_of("rank"), _of("regression"))),
    Study(
        "figure-6",
        "Diversity",
        (
            *(Variant(f"default, λ = {n}", Choices(diversity=n)) for n in (1, 2, 4, 8)),
            *(Variant(f"rank, λ = {n}", Choices(cost_model="rank", diversity=n)) for n in (1, 2, 4, 8)),
        ),
    ),
    Study(
        "figure-7",
        "Uncertainty",
        (
            *(Variant(f"default, {kind}", Choices(acquisition=kind)) for kind in _MERITS),
            *(
                Variant(f"regression, {kind}", Choices(cost_model="regression", acquisition=kind))
                for kind in _MERITS
            ),
        ),
    ),
    Study(
        "figure-8",
        "Transfer",
        (
            Variant("no log"),
            Variant("what ships", source="shipped"),
            Variant("from the same strategy", source="same"),
            Variant("from other strategies", source="other"),
            Variant("from a misleading log", source="misleading"),
        ),
    ),
    Study(
        "machines",
        "Transfer between machines",
        (
            Variant("no log"),
            Variant("other workloads on another machine", source="machine"),
        ),
    ),
    Study("figure-9a", "Features, in domain", _features("")),
    Study("figure-9b", "Features, from the same strategy", _features("same")),
    Study("figure-9c", "Features, from other strategies", _features("other")),
    Study(
        "whole",
        "Whole runs: several strategies and batch sizes at once",
        (_USUAL, _PROCESS, *map(_of, ("rank", "regression")), *(_by(name) for name in ("genetic", "random"))),
        whole=True,
    ),
    Study(
        "options",
        "Random share and size of a batch",
        (
            *(Variant(f"ε = {share:g}", Choices(epsilon=share)) for share in (0.0, 0.05, 0.2)),
            *(Variant(f"batches of {size}", batch=size) for size in (2, 8, 16)),
        ),
    ),
)


class Results:
    """Replayed runs, kept in a file so that they are done once.

    Parameters
    ----------
    path
        JSON lines; a run is found again by its space's times, its variant, its seed, and the
        spaces that it learned from.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: dict[str, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._runs[entry.pop("key")] = entry

    def run(
        self,
        recorded: Sequence[Recorded],
        spaces: Sequence[Recorded],
        variant: Variant,
        seed: int,
        trials: int,
    ) -> Run:
        """A run on one space or several, replayed where it was not before."""
        sources = [_digest(other) for other in (spaces if variant.source else recorded)]
        parts = {**asdict(variant), "name": ""}
        if not variant.choices.learns:
            # Options that a search ignores are no part of its key, so that changing them keeps its runs.
            parts["choices"] = variant.choices.explorer
        searched = "+".join(one.name for one in recorded)
        key = json.dumps([searched, sources, parts, seed, trials], sort_keys=True)
        key = hashlib.sha256(key.encode()).hexdigest()[:24]
        if key not in self._runs:
            known = experience(recorded[0], spaces, variant.source, seed)
            run = replay(recorded, variant, seed, trials, known)
            self._runs[key] = asdict(run)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, **asdict(run)}) + "\n")
        return Run(**self._runs[key])


def _digest(recorded: Recorded) -> str:
    times = sorted((point, cost) for point, cost in recorded.costs.items())
    return hashlib.sha256(repr((recorded.name, times)).encode()).hexdigest()[:12]
