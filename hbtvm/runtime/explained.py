"""`Explained`: results of a model's trees one by one, from the views of its package (`hbtvm.graph.views`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.host import Output
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.python_steps import chained

VIEWS = {"leaves": "leaf indices", "trees": "scores of each tree"}
"""What views hold, by their names: leaves of trees, and scores of each."""


class Explained:
    """Methods of a model whose package has views.

    `views`: models of the package's views, by name.
    """

    package: Package
    views: Mapping[str, Any]
    _parts: Sequence[Any]  # models around Python steps, the last of which has the views

    def apply(self, X: Any) -> Any:
        """Return the leaf of each tree that rows reach.

        Parameters
        ----------
        X
            As for `predict`.

        Returns
        -------
        Shape (n, trees), for scikit-learn's ``GradientBoostingClassifier`` (n, iterations, outputs) as its
        ``apply`` returns: the library's number of each leaf. int64 for scikit-learn's models; int32 for
        XGBoost's (``apply``, ``pred_leaf``), LightGBM's (``pred_leaf``) and CatBoost's
        (``calc_leaf_indexes``).

        Raises
        ------
        InputError
            If the rows don't fit the model, or the package has no leaf indices: it was compiled without
            ``explain=True``, or the model has none.
        """
        return self._viewed("leaves", X)

    def predict_per_tree(self, X: Any) -> Any:
        """Return each tree's terms of the raw scores.

        Parameters
        ----------
        X
            As for `predict`.

        Returns
        -------
        float64, shape (n, trees) for models of one raw score, else (n, iterations, raw scores): an iteration
        is a tree that adds to all scores, or, in boosting, a tree for each score. The raw score is the sum
        over axis 1, in forests that average divided by the number of trees, plus the base score, as
        `staged_predict` and `predict_iterations` add it up.

        Raises
        ------
        InputError
            If the rows don't fit the model, or the package has no scores of each tree.
        """
        return self._viewed("trees", X)

    def staged_predict(self, X: Any, output: Output | None = None) -> Iterator[Any]:
        """Yield the prediction after each iteration, as ``staged_predict`` of scikit-learn and CatBoost.

        Parameters
        ----------
        X, output
            As for `predict`: ``"proba"`` gives the results of ``staged_predict_proba``, for example.

        Raises
        ------
        InputError
            If the rows don't fit the model, it has no such output, or the package has no scores of each tree.
        """
        terms = self.predict_per_tree(X)
        sums = np.zeros((len(terms), *terms.shape[2:]))
        for iteration in range(terms.shape[1]):
            sums += terms[:, iteration]
            yield self._of_sums(sums, (iteration + 1) / terms.shape[1], output)

    def predict_iterations(self, X: Any, iterations: tuple[int, int], output: Output | None = None) -> Any:
        """Predict with some of the iterations.

        This is XGBoost's ``iteration_range``, and LightGBM's ``start_iteration`` and ``num_iteration``.

        Parameters
        ----------
        X, output
            As for `predict`.
        iterations
            The first iteration, and the one after the last, counted from 0; see `predict_per_tree`.

        Raises
        ------
        InputError
            If the rows don't fit the model, it has no such iterations or output, or the package has no scores
            of each tree.
        """
        terms = self.predict_per_tree(X)
        start, stop = iterations
        if not 0 <= start < stop <= terms.shape[1]:
            raise InputError(f"iterations is {iterations!r}; expected a range within (0, {terms.shape[1]})")
        return self._of_sums(terms[:, start:stop].sum(axis=1), (stop - start) / terms.shape[1], output)

    def _of_sums(self, sums: np.ndarray, share: float, output: Output | None) -> Any:
        """Return an output of sums over a share of the iterations, shape (n,) or (n, raw scores)."""
        package = self._parts[-1].package if self._parts else self.package
        forest = package.forest
        base, divisor = np.array(forest["base_score"]), forest["divisor"]
        # Averages are over the trees that count.
        divisor = divisor * share if divisor != 1 else 1.0
        # A model of two classes may have the second score alone.
        raw = sums.reshape(len(sums), -1)[:, -len(base) :] / divisor + base
        return package.output.compute(output, raw)

    def _viewed(self, name: str, X: Any) -> Any:
        """Return a view's results for rows."""
        if self._parts:
            lead = self._parts[0].transform if len(self._parts) > 1 else None
            return chained(self.package.python, lead)(lambda rows: self._parts[-1]._viewed(name, rows), X)
        view = self.views.get(name)
        if view is None:
            raise InputError(lacking(self.package, name))
        results = view.predict(X)
        shape = view.package.output.shape
        return results if len(shape) == 1 else results.reshape(len(results), *shape)


def lacking(package: Package, name: str) -> str:
    """Return why a package lacks a view, in a sentence."""
    reason = package.no_views.get(name)
    if reason is None and package.forest["operator"] == "trees":
        return (
            f"the package has no {VIEWS[name]}; compile the model with explain=True "
            "(hbtvm compile --explain)."
        )
    return f"{package.model} has no {VIEWS[name]}: {reason or 'it is not an ensemble of trees'}."
