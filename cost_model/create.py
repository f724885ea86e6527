"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hbtvm.cost_model.base import CostModel

if TYPE_CHECKING:
    from hbtvm.cost_model.gaussian_process import FeatureSpace

MakeModel = Callable[[], CostModel]
"""Makes an untrained model."""

_BROAD = 800
"""Measurements of other workloads that a Gaussian process learns from."""


def maker(kind: str, acquisition: str = "mean", frame: Callable[[], FeatureSpace] | None = None) -> MakeModel:
    """What makes cost models of a kind.

    Parameters
    ----------
    kind
        ``"gaussian_process"``, ``"rank"``, ``"regression"`` or ``"tree_gru"``.
    acquisition
        ``"mean"``; with ``"ucb"`` or ``"ei"`` a bootstrap of models is made in place of each
        (see `hbtvm.cost_model.acquisition`) that predicts no standard deviation.
    frame
        Tells a Gaussian process how features are to be read; asked when one is made.

    Notes
    -----
    Whether there is such a model, and whether its library can be imported, shows when one is made.
    """
    if kind == "gaussian_process":
        from hbtvm.cost_model.gaussian_process import GaussianProcess

        return lambda: GaussianProcess(frame=frame() if frame is not None else None)
    if acquisition == "mean":
        return lambda: _make(kind, 0)
    from hbtvm.cost_model.acquisition import Bootstrap

    return lambda: Bootstrap(lambda seed: _make(kind, seed))


def broad(frame: FeatureSpace) -> CostModel:
    """The model of other workloads' records, by the thousand, that a Gaussian process corrects."""
    from hbtvm.cost_model.blend import Blend
    from hbtvm.cost_model.gaussian_process import GaussianProcess

    return Blend([_make("rank", 0), GaussianProcess(frame=frame, most=_BROAD)])


def _make(kind: str, seed: int) -> CostModel:
    # Imported here, so that a library that is missing or broken is a failing model.
    if kind == "tree_gru":
        from hbtvm.cost_model.tree_gru import TreeGRU

        return TreeGRU(seed=seed)
    from hbtvm.cost_model.rank_xgboost import RankModel, RegressionModel

    if kind == "rank":
        return RankModel(seed=seed)
    if kind == "regression":
        return RegressionModel(seed=seed)
    raise ValueError(f"there is no cost model {kind!r}")
