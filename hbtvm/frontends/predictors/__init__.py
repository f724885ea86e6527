"""Front ends of estimators that predict, as operators over a table: the registry."""

from __future__ import annotations

from hbtvm.frontends.predictors import clusters
from hbtvm.frontends.predictors.reading import Build, Reader

__all__ = ["PREDICTORS", "Build", "Reader"]

PREDICTORS: dict[tuple[str, str], Reader] = {
    ("sklearn", "KMeans"): clusters.k_means,
    ("sklearn", "MiniBatchKMeans"): clusters.k_means,
}
"""By library and class name."""
