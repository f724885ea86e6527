"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hbtvm.cost_model.base import CostModel

if TYPE_CHECKING:
    from hbtvm.cost_model.encoding.loop_trees import MakeScorer
    from hbtvm.cost_model.models.gaussian_process import FeatureSpace

MakeModel = Callable[[Sequence[CostModel]], CostModel]
"""Creates an untrained model that corrects fitted models."""

_ROUNDS = 25
"""Trees of a rank model that a process corrects: with few dozen measurements, more trees fit noise."""

_BROAD = (400, 800)
"""Minimal and maximal number of measurements of other workloads for a Gaussian process, which uses a quarter
of them within these limits. Learning from the shipped records takes half a second; large logs justify
more."""


def maker(
    kind: str,
    acquisition: str = "mean",
    frame: Callable[[], FeatureSpace] | None = None,
    make_scorer: MakeScorer | None = None,
) -> MakeModel:
    """Return a factory of cost models for this run's measurements.

    `kind`: ``"rank_process"`` (rank models, and a Gaussian process on their residual),
        ``"gaussian_process"``, ``"rank"``, ``"regression"`` or ``"tree_gru"``.
    `acquisition`: ``"mean"``; with ``"ucb"`` or ``"ei"``, a model without standard deviations becomes a
        bootstrap of models (see `hbtvm.cost_model.models.bootstrap`).
    `frame`: returns the units of features for a Gaussian process; called when a process is created.
    `make_scorer`: creates the scorer that replaces PyTorch (see `hbtvm.cost_model.models.tree_gru.TreeGRU`).
    The result creates an untrained model that corrects fitted global models, if any (AutoTVM, equation 4).

    Notes
    -----
    Unknown kinds and missing libraries raise errors when a model is created.
    """
    if kind in ("rank_process", "gaussian_process"):
        return lambda known: _process(kind, known, frame() if frame is not None else None)
    if acquisition == "mean":
        return lambda known: transfer(known, _make(kind, 0, make_scorer))
    from hbtvm.cost_model.models.bootstrap import Bootstrap

    return lambda known: transfer(known, Bootstrap(lambda seed: _make(kind, seed, make_scorer)))


def transfer(known: Sequence[CostModel], local: CostModel) -> CostModel:
    """Return a model that corrects the fitted global models, or `local` if there are none."""
    from hbtvm.cost_model.models.transfer import TransferModel

    return TransferModel(known, local) if known else local


def sources(
    kind: str, frame: FeatureSpace, count: int, make_scorer: MakeScorer | None = None
) -> list[CostModel]:
    """Return untrained global models for this number of records of other workloads."""
    from hbtvm.cost_model.models.gaussian_process import GaussianProcess

    process = GaussianProcess(frame=frame, most=min(max(count // 4, _BROAD[0]), _BROAD[1]))
    match kind:
        case "rank_process":
            return [_make("rank", 0), process]
        case "gaussian_process":
            return [process]
        case _:
            return [_make(kind, 0, make_scorer)]


def _process(kind: str, known: Sequence[CostModel], frame: FeatureSpace | None) -> CostModel:
    from hbtvm.cost_model.models.gaussian_process import GaussianProcess

    process = GaussianProcess(frame=frame)
    if kind == "gaussian_process":
        return transfer(known, process)
    from hbtvm.cost_model.models.rank_xgboost import RankModel
    from hbtvm.cost_model.models.residual import ResidualModel

    return ResidualModel(known, lambda seed: RankModel(rounds=_ROUNDS, seed=seed), process)


def _make(kind: str, seed: int, make_scorer: MakeScorer | None = None) -> CostModel:
    # Imported here, so that a missing or broken library fails like a model.
    if kind == "tree_gru":
        from hbtvm.cost_model.models.tree_gru import TreeGRU

        return TreeGRU(seed=seed, make_scorer=make_scorer)
    from hbtvm.cost_model.models.rank_xgboost import RankModel, RegressionModel

    if kind == "rank":
        return RankModel(seed=seed)
    if kind == "regression":
        return RegressionModel(seed=seed)
    raise ValueError(f"there is no cost model {kind!r}")
