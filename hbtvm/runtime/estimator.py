"""`Estimator`: what scikit-learn asks of a fitted estimator, so that its tools take compiled models.

scikit-learn calls these methods itself; only `__sklearn_tags__` imports it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn, TypeVar

import numpy as np

from hbtvm.errors import InputError, NoMethodError
from hbtvm.runtime.package.file import Package

_OUTPUT_OF = {
    "predict_proba": "proba",
    "predict_log_proba": "proba",
    "decision_function": "decision",
    "score_samples": "score",
}
_KINDS = {"anomaly": "outlier_detector", "booster": None}
"""Kinds of models that scikit-learn calls otherwise."""

_Self = TypeVar("_Self", bound="Estimator")


class Estimator:
    """A fitted estimator of scikit-learn's conventions that can't be fitted again."""

    package: Package

    def __new__(cls: type[_Self], package: Package, *_: Any, **__: Any) -> _Self:
        kind: Any = cls
        new: _Self = object.__new__(_lacking(kind, _absent(package)))
        return new

    def fit(self, X: Any, y: Any = None, **options: Any) -> NoReturn:
        """Raise `InputError`: a compiled model can't be trained."""
        raise InputError(
            f"a compiled model can't be trained: fit the {self.package.model} and compile it again, or pass "
            "sklearn.frozen.FrozenEstimator(model) to what calls fit."
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, or the R² of a regressor.

        Parameters
        ----------
        X
            As for `predict`.
        y
            Labels or targets, shape (n,) or (n, targets).
        sample_weight
            Weights, shape (n,); by default, all rows count alike.

        Raises
        ------
        InputError
            If the rows don't fit the model, or `y` or the weights have another shape.
        """
        predicted, truth = np.asarray(self.predict(X)), np.asarray(y)  # type: ignore[attr-defined]
        if predicted.ndim == 2 and predicted.shape[1] == 1:
            predicted = predicted[:, 0]
        if truth.ndim == 2 and truth.shape[1] == 1:
            truth = truth[:, 0]
        if truth.shape != predicted.shape:
            raise InputError(f"expected y of shape {predicted.shape}, as the prediction, got {truth.shape}.")
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weights is not None and weights.shape != truth.shape[:1]:
            raise InputError(f"expected sample_weight of shape {truth.shape[:1]}, got {weights.shape}.")
        if self._estimator_type == "classifier":
            right = predicted == truth
            return float(np.average(right if right.ndim == 1 else right.all(axis=1), weights=weights))
        return _r2(predicted, truth.astype(np.float64), weights)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of class probabilities; see `predict_proba`."""
        proba = self.predict_proba(X)  # type: ignore[attr-defined]
        with np.errstate(divide="ignore"):
            return [np.log(each) for each in proba] if isinstance(proba, list) else np.log(proba)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return an empty dict: a compiled model has no parameters."""
        return {}

    def set_params(self: _Self, **params: Any) -> _Self:
        """Return the model. Raises `InputError` for any parameter."""
        if params:
            raise InputError(
                f"a compiled model has no parameter {next(iter(params))!r}: set it before training, and "
                "compile the model again."
            )
        return self

    @property
    def _estimator_type(self) -> str | None:
        """The kind of estimator, as scikit-learn before 1.6 asks for it."""
        kind = self.package.output.kind
        return _KINDS.get(kind, kind)

    @property
    def _transforms(self) -> bool:
        return self.package.transforms or self.package.transform is not None

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self: _Self) -> _Self:
        """Return the model itself, as `FrozenEstimator` does: there is nothing to train anew."""
        return self

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags; only scikit-learn 1.6 and later call this."""
        from importlib import import_module  # no import of a training library in the runtime

        utils = import_module("sklearn.utils")
        spec, kind = self.package.input, self._estimator_type
        several = len(self.package.output.classes) > 1 or (
            kind == "regressor" and not self.package.output.is_flat(self.package.output.name_of(None))
        )
        return utils.Tags(
            estimator_type=kind,
            target_tags=utils.TargetTags(
                required=kind in ("classifier", "regressor", "ranker"), multi_output=several
            ),
            transformer_tags=utils.TransformerTags(preserves_dtype=[]) if self._transforms else None,
            classifier_tags=utils.ClassifierTags() if kind == "classifier" else None,
            regressor_tags=utils.RegressorTags() if kind == "regressor" else None,
            input_tags=utils.InputTags(
                two_d_array=not spec.rows_are_values,
                string=spec.rows_are_values,
                sparse=not spec.sparse_refused,
                categorical=bool(spec.categories or spec.category_order),
                allow_nan=spec.allow_nan,
            ),
            requires_fit=False,
        )

    def _repr_html_(self) -> str:
        """Return the model's description for notebooks: columns, classes, kernels and times."""
        from hbtvm.runtime.package.html import page  # only notebooks need it

        return page(self.package)


class _Absent:
    """A method that the model lacks: `hasattr` is false, as in scikit-learn."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, kind: type | None = None) -> Any:
        if model is None:
            return self
        raise _no_method(model.package, self._name)


@cache
def _lacking(kind: type, names: tuple[str, ...]) -> type:
    """Return a subclass without some methods; calls of the others cost nothing more."""
    if not names:
        return kind
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**members, **{name: _Absent(name) for name in names}})


def _absent(package: Package) -> tuple[str, ...]:
    """Return the names of the methods that a model lacks."""
    out = package.output
    lacking = [
        name
        for name, output in _OUTPUT_OF.items()
        if output not in out.outputs and not (output == "score" and package.scores is not None)
    ]
    if out.kind not in ("classifier", "regressor"):
        lacking.append("score")
    return tuple(lacking)


def _no_method(package: Package, name: str) -> NoMethodError:
    """Return the error of a method that a model lacks, in the words of its prediction."""
    if name == "score":
        what = "transformer" if package.transforms else package.output.kind
        return NoMethodError(f"score is for classifiers and regressors, and {package.model} is a {what}.")
    if package.transforms:
        return NoMethodError(f"{package.model} does not predict; its output is that of transform.")
    try:
        package.output.compute(_OUTPUT_OF[name], np.zeros((1, package.output.n_outputs)))  # type: ignore[arg-type]
    except InputError as error:
        return NoMethodError(str(error))
    raise AssertionError(name)


def _r2(predicted: np.ndarray, truth: np.ndarray, weights: np.ndarray | None) -> float:
    """Return R², averaged over targets; a constant target scores 1 if it is predicted exactly, else 0."""
    w = np.ones(len(truth)) if weights is None else weights
    rest = w @ (truth - predicted) ** 2
    all_of_it = w @ (truth - np.average(truth, axis=0, weights=w)) ** 2
    constant = all_of_it == 0
    r2 = np.where(constant, np.where(rest == 0, 1.0, 0.0), 1 - rest / np.where(constant, 1, all_of_it))
    return float(np.mean(r2))
