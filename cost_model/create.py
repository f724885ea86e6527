"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cost_model.base import CostModel

if TYPE_CHECKING:
    from cost_model.gaussian_process import Frame

MakeModel = Callable[[], CostModel]
"""Makes an untrained model."""


def maker(kind: str, acquisition: str = "mean", frame: Callable[[], Frame] | None = None) -> MakeModel:
    """What makes cost models of a kind.

    Parameters
    ----------
    kind
        ``"gaussian_process"``, ``"blend"`` (of rank and kernel), ``"rank"``, ``"regression"``,
        ``"kernel"`` or ``"tree_gru"``.
    acquisition
        ``"mean"``; with ``"ucb"`` or ``"ei"`` a bootstrap of models is made in place of each
        (see `cost_model.acquisition`) that cannot say how sure it is.
    frame
        Tells a Gaussian process how features are to be read; asked when one is made.

    Notes
    -----
    Whether there is such a model, and whether its library can be imported, shows when one is made.
    """
    if kind == "gaussian_process":
        from cost_model.gaussian_process import GaussianProcess

        return lambda: GaussianProcess(frame=frame() if frame is not None else None)
    if acquisition == "mean":
        return lambda: _make(kind, 0)
    from cost_model.acquisition import Bootstrap

    return lambda: Bootstrap(lambda seed: _make(kind, seed))


def _make(kind: str, seed: int) -> CostModel:
    # Imported here, so that a library that is missing or broken is a failing model.
    if kind == "tree_gru":
        from cost_model.tree_gru import TreeGRU

        return TreeGRU(seed=seed)
    if kind == "blend":
        from cost_model.blend import Blend

        return Blend([_make("rank", seed), _make("kernel", seed)])
    if kind == "kernel":
        from cost_model.kernel import KernelModel

        return KernelModel(seed=seed)
    from cost_model.rank_xgboost import RankModel, RegressionModel

    if kind == "rank":
        return RankModel(seed=seed)
    if kind == "regression":
        return RegressionModel(seed=seed)
    raise ValueError(f"there is no cost model {kind!r}")
