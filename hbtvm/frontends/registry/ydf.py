"""Models of YDF (Yggdrasil Decision Forests)."""

from __future__ import annotations

from hbtvm.frontends.transformers.where import Estimator, Section
from hbtvm.frontends.ydf import model as ydf_model

SECTIONS: dict[tuple[str, str], Section] = {
    ("ydf", "YDF"): {
        "GradientBoostedTreesModel RandomForestModel": Estimator(model=ydf_model.read),
    },
}
