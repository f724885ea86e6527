"""The parts of a search, chosen by name.

This module imports none of them: a run loads the explorer and cost model that it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

EXPLORERS = ("annealing", "random", "grid", "genetic", "tpe", "metaschedule")
"""Explorers, which propose candidates (`hbtvm.tuning.explorers.create.create`)."""

COST_MODELS = ("rank_process", "gaussian_process", "rank", "regression", "tree_gru", "none")
"""Cost models, which learn from results (`hbtvm.cost_model.create`)."""

FEATURES = ("knobs", "relation", "flat", "joint")
"""Features of candidates (`hbtvm.cost_model.encoding.encode`)."""

ACQUISITIONS = ("auto", "mean", "ucb", "ei")
"""Acquisition functions of predictions (`hbtvm.cost_model.acquisition`)."""

ENOUGH = 0.02
"""Relative improvement that another batch must promise, in runs that may stop early."""

_EXTRAS = {"tpe": ("optuna", "Optuna"), "tree_gru": ("torch", "PyTorch")}


class ChoiceError(ValueError):
    """A part does not exist, does not fit, or is not installed."""


@dataclass(frozen=True)
class Choices:
    """The parts of a search.

    `explorer`: one of `EXPLORERS`. Only annealing uses a cost model; the others serve comparisons.
    `cost_model`: one of `COST_MODELS`.
    `features`: one of `FEATURES`; the TreeGRU always takes ``"flat"``. All but ``"knobs"`` lower each
        candidate, in some 20 ms, so annealing scores at most 160 new candidates per batch instead of 2,300.
    `acquisition`: one of `ACQUISITIONS`. ``"auto"`` is ``"ei"`` for models with a Gaussian process, which
        predicts its uncertainty, and ``"mean"`` for others, which train five models instead of one for
        ``"ucb"`` and ``"ei"``.
    `diversity`: AutoTVM's λ: a batch of b is picked from the λ·b best candidates to cover many choices
        (equation 3) or, with a model that predicts its uncertainty, to be informative; with 1 it is the b
        best.
    `epsilon`: AutoTVM's ε: random share of each batch.
    Raises `ChoiceError` if a choice does not exist or is out of range.
    """

    explorer: str = "annealing"
    cost_model: str = "rank_process"
    features: str = "knobs"
    acquisition: str = "auto"
    diversity: int = 8
    epsilon: float = 0.05

    def __post_init__(self) -> None:
        _known("explorer", self.explorer, EXPLORERS)
        _known("cost model", self.cost_model, COST_MODELS)
        _known("kind of features", self.features, FEATURES)
        _known("acquisition", self.acquisition, ACQUISITIONS)
        if self.diversity < 1:
            raise ChoiceError(f"expected a diversity of at least 1, got {self.diversity}")
        if not 0 <= self.epsilon <= 1:
            raise ChoiceError(f"expected an epsilon from 0 to 1, got {self.epsilon}")

    @property
    def learns(self) -> bool:
        """Whether the search uses a cost model."""
        return self.explorer == "annealing" and self.cost_model != "none"

    @property
    def table(self) -> str:
        """The features of the cost model."""
        return "flat" if self.cost_model == "tree_gru" else self.features

    @property
    def lowers(self) -> bool:
        """Whether the cost model reads loops, so that scoring a candidate lowers it."""
        return self.learns and self.table != "knobs"

    @property
    def merit(self) -> str:
        """The acquisition function, with ``"auto"`` resolved."""
        if self.acquisition != "auto":
            return self.acquisition
        return "ei" if self.cost_model in ("rank_process", "gaussian_process") else "mean"

    def require(self) -> None:
        """Raise a `ChoiceError` that says what to install, if a part needs a library that is missing."""
        parts = [("explorer", self.explorer)]
        if self.learns:
            parts.append(("cost model", self.cost_model))
        for kind, name in parts:
            module, library = _EXTRAS.get(name, ("", ""))
            if module and find_spec(module) is None:
                raise ChoiceError(
                    f"{kind} {name!r} needs {library}, which is not installed: pip install 'hbtvm[{module}]'"
                )


def _known(kind: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ChoiceError(f"there is no {kind} {name!r}; expected one of {', '.join(names)}")


PRESETS: Mapping[str, Choices] = MappingProxyType(
    {
        "default": Choices(),
        "autotvm": Choices(cost_model="rank", features="relation", diversity=2),
        "tree_gru": Choices(cost_model="tree_gru", diversity=2),
        "regression": Choices(cost_model="regression"),
        "rank": Choices(cost_model="rank"),
        "process": Choices(cost_model="gaussian_process"),
        **{name: Choices(name) for name in ("metaschedule", "tpe", "genetic", "random", "grid")},
    }
)
"""Whole searches by name. ``autotvm`` is the paper's: annealing on the rank model's mean, with context
relation features. ``process`` uses the Gaussian process alone. The last five serve comparisons."""


def assembled(preset: str = "default", **parts: Any) -> Choices:
    """Return a preset with some parts replaced.

    `preset`: a name in `PRESETS`.
    `parts`: parameters of `Choices`; None keeps the preset's.
    Raises `ChoiceError` if the preset or a part does not exist.
    """
    _known("preset", preset, tuple(PRESETS))
    return replace(PRESETS[preset], **{name: part for name, part in parts.items() if part is not None})
