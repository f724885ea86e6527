"""scikit-learn's GradientBoosting classifiers and regressors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import assemble
from hbtvm.frontends.sklearn_common import input_spec, labels_of, nodes_of, tree_of, values_of
from hbtvm.pipeline.output import OutputSpec
from hbtvm.pipeline.pipeline import Pipeline

_RANDOM = ("stratified", "uniform")


def read(model: Any) -> Pipeline:
    """Read a ``GradientBoostingClassifier`` or ``GradientBoostingRegressor``.

    Raises
    ------
    UnsupportedModel
        If it starts from the predictions of another estimator rather than constants.
    """
    _check_init(model)
    n_features = int(model.n_features_in_)
    base = model._raw_predict_init(np.zeros((1, n_features), np.float32))[0]
    stages, outputs = model.estimators_.shape
    trees = [
        tree_of(nodes_of(tree.tree_), values_of(tree.tree_)[:, 0, :] * model.learning_rate)
        for tree in model.estimators_.ravel()
    ]
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float32",
        tree_output=np.tile(np.arange(outputs), stages),
        base_score=base,
    )
    inputs = input_spec(model, allow_nan=False, allow_inf=False)
    return Pipeline("scikit-learn", type(model).__name__, inputs, ensemble, _output(model, outputs))


def _check_init(model: Any) -> None:
    init = model.init_
    if isinstance(init, str) and init == "zero":
        return
    name = type(init).__name__
    if name not in ("DummyClassifier", "DummyRegressor") or init.strategy in _RANDOM:
        raise UnsupportedModel(
            f"the {type(model).__name__} starts from a {name} (its `init`), whose predictions are not the "
            "same for every row; init=None and init='zero' are supported."
        )


def _output(model: Any, outputs: int) -> OutputSpec:
    if not hasattr(model, "classes_"):
        return OutputSpec(kind="regressor", n_outputs=outputs)
    return OutputSpec(
        kind="classifier",
        n_outputs=outputs,
        transform="sigmoid" if outputs == 1 else "softmax",
        # The exponential loss takes half the log-odds as its raw score.
        scale=2.0 if model.loss == "exponential" else 1.0,
        outputs=("label", "proba", "decision"),
        classes=(labels_of(model.classes_),),
        label_rule="raw_not_negative" if outputs == 1 else "raw_argmax",
    )
