"""Cost models: predict which candidates of a search are worth measuring."""

from hbtvm.cost_model.base import CostModel, Prediction
from hbtvm.cost_model.encoding.features import FEATURE_NAMES, features
from hbtvm.cost_model.metrics import pairwise_accuracy, recall_at_k
from hbtvm.cost_model.models.rank_xgboost import RankModel, RegressionModel
from hbtvm.cost_model.models.transfer import TransferModel

__all__ = [
    "FEATURE_NAMES",
    "CostModel",
    "Prediction",
    "RankModel",
    "RegressionModel",
    "TransferModel",
    "features",
    "pairwise_accuracy",
    "recall_at_k",
]
