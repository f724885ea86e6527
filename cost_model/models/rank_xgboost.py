"""Gradient-boosted cost models (AutoTVM, section 3.1), by XGBoost.

The rank loss is a custom objective. XGBoost's ``rank:pairwise`` approximates equation 2 only with four
parameters set (all pairs, no normalisation by rank or score), refuses the infinite labels of failed
candidates, and takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model import rank_loss
from hbtvm.cost_model.base import CostModel, Prediction, Vector, check, clean, slope, speeds_by_group

if TYPE_CHECKING:
    import xgboost

# XGBoost is imported where a model is trained: it imports scikit-learn, pandas and SciPy, and processes that
# only describe loops use this package too.


class _Boosted(CostModel):
    """Parameters, prediction and data of both models."""

    def __init__(
        self,
        *,
        rounds: int = 60,
        learning_rate: float = 0.3,
        max_depth: int = 4,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        self.rounds = rounds
        self.seed = seed
        self._parameters: dict[str, Any] = {
            "eta": learning_rate,
            "max_depth": max_depth,
            "min_child_weight": 0.05,
            "lambda": 1.0,
            "colsample_bynode": 0.5,
            "tree_method": "hist",
            "max_bin": 64,
            # Scores count from 0; XGBoost would otherwise start from the labels' mean.
            "base_score": 0.0,
            "seed": seed,
            "nthread": threads,
            "verbosity": 0,
        }
        self._trees: xgboost.Booster | None = None
        self._slope = 1.0

    def predict(self, features: ArrayLike) -> Prediction:
        """Predict speeds without uncertainty (see `CostModel.predict`)."""
        return Prediction.certain(self._slope * self._scores(clean(features)))

    def _scores(self, table: NDArray[np.float32]) -> Vector:
        """Return the sums of the trees' leaves, (n,)."""
        if self._trees is None or len(table) == 0:
            return np.zeros(len(table))
        return np.asarray(self._trees.inplace_predict(table, predict_type="margin"), dtype=np.float64)

    def _data(self, table: NDArray[np.float32], **fields: object) -> Any:
        import xgboost

        threads = self._parameters["nthread"]
        return xgboost.QuantileDMatrix(table, max_bin=64, nthread=threads, **fields)


class RankModel(_Boosted):
    """Trees that minimise the rank loss (AutoTVM, eq. 2), the paper's default.

    The loss considers the order of costs only. A scale from scores to log speeds is fitted afterwards
    (`hbtvm.cost_model.base.slope`), so that scores can be added to other models' predictions.

    `rounds`, `learning_rate`, `max_depth`: number, weight and depth of the trees.
    `seed`: with the same seed and thread count, the same data give the same model.
    `threads`: number of threads of XGBoost.
    `pairs`: rows with which each row is compared per round, approximately, drawn at random in groups of more
        rows.
    """

    def __init__(self, *, pairs: int = 512, **boosting: Any) -> None:
        super().__init__(**boosting)
        self.pairs = pairs

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn the order of costs within each group (see `CostModel.fit`).

        Failed candidates come last, in no order. Without pairs of different costs, the model scores
        everything 0.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        rng = np.random.default_rng(self.seed)

        def cut() -> list[NDArray[np.intp]]:
            return list(rank_loss.blocks(times, labels, self.pairs, rng))

        parts = cut()
        self._trees = None
        if all(times[block[0]] == times[block[-1]] for block in parts if len(block)):
            return
        resample = int(np.bincount(labels).max()) > self.pairs

        def objective(scores: Any, _: object) -> tuple[Any, Any]:
            current = cut() if resample else parts
            return rank_loss.gradient(scores.astype(np.float64), times, current)

        data = self._data(table, base_margin=rank_loss.STEEPNESS * base)
        import xgboost

        self._trees = xgboost.train(self._parameters, data, self.rounds, obj=objective)
        self._slope = slope(self._scores(table), times, labels, base)


class RegressionModel(_Boosted):
    """Trees that minimise the squared error of log2(seconds).

    `rounds`, `learning_rate`, `max_depth`, `seed`, `threads`: as for `RankModel`.
    """

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn log costs relative to each group's mean (see `CostModel.fit`).

        A failed candidate counts as twice as slow as the group's slowest. Groups without a success are
        ignored.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        goal = speeds_by_group(times, labels)
        known = np.isfinite(goal)
        self._trees = None
        if not goal[known].any():
            return
        data = self._data(table[known], label=goal[known], base_margin=base[known])
        parameters = {**self._parameters, "objective": "reg:squarederror"}
        import xgboost

        self._trees = xgboost.train(parameters, data, self.rounds)
