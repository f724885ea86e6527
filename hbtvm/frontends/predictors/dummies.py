"""scikit-learn's predictors that read no column."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, floats
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import constant


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``DummyClassifier``, unless it draws random labels."""
    name = "_strategy" if "_strategy" in record else "strategy"
    strategy = choice(record, name, where, ("most_frequent", "prior", "constant"))
    targets = record.whole("n_outputs_", 1)
    if record.get("sparse_output_", False):
        raise where.unsupported("was trained on a sparse target, which is not supported.")
    classes, priors = record.get("classes_"), record.get("class_prior_")
    fixed = record.get("constant", None)
    if targets == 1:
        classes, priors = [classes], [priors]
    elif not isinstance(classes, list) or not isinstance(priors, list) or len(classes) != targets:
        raise where.damaged("its classes do not fit its targets.")
    constants = np.array(fixed, dtype=object).reshape(-1).tolist() if strategy == "constant" else []
    index, proba, labels = [], [], []
    for i, (values, prior) in enumerate(zip(classes, priors, strict=True)):
        labels.append(labels_of(values))
        share = np.asarray(prior, np.float64).reshape(-1)
        if share.shape != labels[-1].shape:
            raise where.damaged("its class_prior_ does not fit its classes.")
        if strategy == "constant":
            if len(constants) != targets:
                raise where.damaged("its constant does not have a value for each target.")
            at = np.flatnonzero(labels[-1] == constants[i])
            if len(at) != 1:
                raise where.damaged("its constant is not one of its classes.")
            index.append(int(at[0]))
        else:
            index.append(int(share.argmax()))
        proba.append(share if strategy == "prior" else np.eye(len(share))[index[-1]])
    outputs = {"index": constant(index), "proba": constant(np.concatenate(proba))}
    return Predictor("classifier", outputs, tuple(labels))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``DummyRegressor``."""
    values = floats(record, "constant_", where).reshape(-1)
    if len(values) != record.whole("n_outputs_", 1):
        raise where.damaged("its constant_ does not have a value for each target.")
    return Predictor("regressor", {"response": constant(values)})
