"""Cost models: which candidates of a search are worth measuring."""

from cost_model.base import CostModel
from cost_model.features import FEATURE_NAMES, features
from cost_model.metrics import best_so_far, best_so_far_auc, pairwise_accuracy, recall_at_k
from cost_model.rank_xgboost import RankModel, RegressionModel
from cost_model.transfer import TransferModel

__all__ = [
    "FEATURE_NAMES",
    "CostModel",
    "RankModel",
    "RegressionModel",
    "TransferModel",
    "best_so_far",
    "best_so_far_auc",
    "features",
    "pairwise_accuracy",
    "recall_at_k",
]
