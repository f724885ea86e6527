"""``CalibratedClassifierCV``: means of the calibrated probabilities of several classifiers."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.calibration import calibrated_probabilities
from hbtvm.frontends.predictors.meta.members import output, second, single_target
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.shapes import reduce


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``CalibratedClassifierCV``."""
    labels = labels_of(record.get("classes_"))
    members = record.records("calibrated_classifiers_")
    if not members:
        raise where.damaged("it has no calibrated classifiers.")
    proba = joined.mean(
        [_calibrated(member, labels, table, where.child(i)) for i, member in enumerate(members)]
    )
    return Predictor("classifier", {"index": reduce("argmax", proba), "proba": proba}, (labels,))


def _calibrated(record: Record, labels: np.ndarray, table: Table, where: Where) -> Node:
    # The names before scikit-learn 1.2.
    estimator = record.record("estimator" if "estimator" in record else "base_estimator")
    inner = read_predictor(estimator, table, where)
    classes = single_target(inner, where).tolist()
    decides = "decision" in inner.outputs
    scores = inner.outputs["decision"] if decides else output(inner, "proba", where)
    if not decides and len(classes) == 2:
        scores = second(inner, where)
    calibrators = record.records("calibrators" if "calibrators" in record else "calibrators_")
    known = labels.tolist()
    # With a temperature, which serves all classes, the classifiers learned positions of labels.
    positions = [known.index(label) if label in known else -1 for label in classes]
    return calibrated_probabilities(calibrators, scores, positions, len(labels), not decides, where)
