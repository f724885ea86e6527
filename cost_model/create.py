"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hbtvm.cost_model.base import CostModel

if TYPE_CHECKING:
    from hbtvm.cost_model.gaussian_process import FeatureSpace
    from hbtvm.cost_model.loop_trees import MakeScorer

MakeModel = Callable[[Sequence[CostModel]], CostModel]
"""Makes an untrained model that corrects fitted ones."""

_ROUNDS = 25
"""Trees of a rank model that a process corrects: of few dozen measurements more of them learn noise."""

_BROAD = (400, 800)
"""Fewest and most measurements of other workloads that a Gaussian process learns from: a quarter of them, as
far as that is between the two. What ships is learned from in half a second; of a large log, more pays."""


def maker(
    kind: str,
    acquisition: str = "mean",
    frame: Callable[[], FeatureSpace] | None = None,
    make_scorer: MakeScorer | None = None,
) -> MakeModel:
    """What makes cost models of a kind, for what a run measures.

    Parameters
    ----------
    kind
        ``"rank_process"`` (rank models, and a Gaussian process on their residual), ``"gaussian_process"``,
        ``"rank"``, ``"regression"`` or ``"tree_gru"``.
    acquisition
        ``"mean"``; with ``"ucb"`` or ``"ei"`` a bootstrap of models is made in place of each
        (see `hbtvm.cost_model.bootstrap`) that predicts no standard deviation.
    frame
        Tells a Gaussian process how features are to be read; asked when one is made.
    make_scorer
        Makes what predicts in PyTorch's place (see `hbtvm.cost_model.tree_gru.TreeGRU`).

    Returns
    -------
    Makes an untrained model that corrects fitted global ones (AutoTVM, equation 4), if there are any.

    Notes
    -----
    Whether there is such a model, and whether its library can be imported, shows when one is made.
    """
    if kind in ("rank_process", "gaussian_process"):
        return lambda known: _process(kind, known, frame() if frame is not None else None)
    if acquisition == "mean":
        return lambda known: transfer(known, _make(kind, 0, make_scorer))
    from hbtvm.cost_model.bootstrap import Bootstrap

    return lambda known: transfer(known, Bootstrap(lambda seed: _make(kind, seed, make_scorer)))


def transfer(known: Sequence[CostModel], local: CostModel) -> CostModel:
    """A model that corrects fitted global ones, where there are any."""
    from hbtvm.cost_model.transfer import TransferModel

    return TransferModel(known, local) if known else local


def sources(
    kind: str, frame: FeatureSpace, count: int, make_scorer: MakeScorer | None = None
) -> list[CostModel]:
    """Untrained models for so many of other workloads' records, that a run's model corrects."""
    from hbtvm.cost_model.gaussian_process import GaussianProcess

    process = GaussianProcess(frame=frame, most=min(max(count // 4, _BROAD[0]), _BROAD[1]))
    match kind:
        case "rank_process":
            return [_make("rank", 0), process]
        case "gaussian_process":
            return [process]
        case _:
            return [_make(kind, 0, make_scorer)]


def _process(kind: str, known: Sequence[CostModel], frame: FeatureSpace | None) -> CostModel:
    from hbtvm.cost_model.gaussian_process import GaussianProcess

    process = GaussianProcess(frame=frame)
    if kind == "gaussian_process":
        return transfer(known, process)
    from hbtvm.cost_model.rank_xgboost import RankModel
    from hbtvm.cost_model.residual import ResidualModel

    return ResidualModel(known, lambda seed: RankModel(rounds=_ROUNDS, seed=seed), process)


def _make(kind: str, seed: int, make_scorer: MakeScorer | None = None) -> CostModel:
    # Imported here, so that a library that is missing or broken is a failing model.
    if kind == "tree_gru":
        from hbtvm.cost_model.tree_gru import TreeGRU

        return TreeGRU(seed=seed, make_scorer=make_scorer)
    from hbtvm.cost_model.rank_xgboost import RankModel, RegressionModel

    if kind == "rank":
        return RankModel(seed=seed)
    if kind == "regression":
        return RegressionModel(seed=seed)
    raise ValueError(f"there is no cost model {kind!r}")
