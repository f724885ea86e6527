"""How a run searches: the parts that it is put together from, each chosen by name.

This module imports none of them, so that naming a part costs nothing: an explorer or
cost model that needs a library of its own is loaded when a run asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

EXPLORERS = ("annealing", "random", "grid", "genetic", "tpe", "metaschedule")
"""What proposes candidates (`hbtvm.tuning.explorers.create.create`)."""

COST_MODELS = ("rank_process", "gaussian_process", "rank", "regression", "tree_gru", "none")
"""What learns from them (`hbtvm.cost_model.create`)."""

FEATURES = ("knobs", "relation", "flat", "joint")
"""What it learns on (`hbtvm.cost_model.encode`)."""

ACQUISITIONS = ("auto", "mean", "ucb", "ei")
"""How predictions become acquisition values (`hbtvm.cost_model.acquisition`)."""

_EXTRAS = {"tpe": ("optuna", "Optuna"), "tree_gru": ("torch", "PyTorch")}


class ChoiceError(ValueError):
    """A part that does not exist, does not fit, or is not installed; one sentence says which."""


@dataclass(frozen=True)
class Choices:
    """The parts of a search.

    Parameters
    ----------
    explorer
        One of `EXPLORERS`. Only annealing uses a cost model; the others are what it is to
        be compared with.
    cost_model
        One of `COST_MODELS`.
    features
        One of `FEATURES`. The TreeGRU takes ``"flat"`` features whatever is said here. All but ``"knobs"``
        are computed from lowered candidates, some 20 ms each, so annealing then looks at 160 new ones for a
        batch at most, in place of 2,300.
    acquisition
        One of `ACQUISITIONS`. ``"auto"`` is ``"ei"`` for models with a Gaussian process, which knows how sure
        it is, and ``"mean"`` for other models, of which ``"ucb"`` and ``"ei"`` train five instead of one.
    diversity
        AutoTVM's λ: a batch of b is picked from the λ·b best candidates, so that it covers
        many choices (equation 3), or so that each tells something new where the model knows what
        it is sure of; with 1 it is the b best themselves.
    epsilon
        AutoTVM's ε: share of each batch that is drawn at random.

    Raises
    ------
    ChoiceError
        If there is no such choice.
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
        """Whether a cost model has a part in the search."""
        return self.explorer == "annealing" and self.cost_model != "none"

    @property
    def table(self) -> str:
        """The kind of features that the cost model gets."""
        return "flat" if self.cost_model == "tree_gru" else self.features

    @property
    def lowers(self) -> bool:
        """Whether the cost model reads loops, so that each candidate it scores has to be lowered."""
        return self.learns and self.table != "knobs"

    @property
    def merit(self) -> str:
        """The acquisition function, with ``"auto"`` resolved."""
        if self.acquisition != "auto":
            return self.acquisition
        return "ei" if self.cost_model in ("rank_process", "gaussian_process") else "mean"

    def require(self) -> None:
        """Make sure that what the parts need is installed.

        Raises
        ------
        ChoiceError
            If it is not; it says what to install.
        """
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
"""Whole searches by name. ``autotvm`` is the paper's: annealing on the rank model's mean, on context relation
features. ``process`` has no model but the Gaussian process. The last five are what it is compared to."""


def assembled(preset: str = "default", **parts: Any) -> Choices:
    """The parts of a search by its name, with some of them replaced.

    Parameters
    ----------
    preset
        A name in `PRESETS`.
    parts
        By the names of `Choices`' parameters; None leaves the preset's.

    Raises
    ------
    ChoiceError
        If there is no such search, or no such part.
    """
    _known("preset", preset, tuple(PRESETS))
    return replace(PRESETS[preset], **{name: part for name, part in parts.items() if part is not None})
