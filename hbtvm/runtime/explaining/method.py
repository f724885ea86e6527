"""`Explainable`: the method ``explain`` of compiled models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, overload

from hbtvm.runtime.explained import Explained

if TYPE_CHECKING:
    from hbtvm.runtime.explaining.explanation import Explanation
    from hbtvm.runtime.explaining.interactions import Interactions
    from hbtvm.runtime.model import Model


class Explainable(Explained):
    """A model whose scores can be explained."""

    @overload
    def explain(
        self,
        X: Any,
        background: Any = None,
        samples: int | None = None,
        seed: int = 0,
        output: str | None = None,
        interactions: Literal[False] = False,
    ) -> Explanation: ...
    @overload
    def explain(self, X: Any, *, output: str | None = None, interactions: Literal[True]) -> Interactions: ...
    def explain(
        self,
        X: Any,
        background: Any = None,
        samples: int | None = None,
        seed: int = 0,
        output: str | None = None,
        interactions: bool = False,
    ) -> Explanation | Interactions:
        """Return how much each column contributes to each row's score (Shapley values).

        Parameters
        ----------
        X
            Rows as for `predict`; arrays on a GPU are copied to host memory.
        background
            Rows of the same kind, such as a hundred of the training data. Columns that a coalition does not
            know take their values, and its score is the mean over these rows (interventional). None to use
            the package's own kernel of Shapley values (``hbtvm.compile(..., explain=True)``).
        samples, seed
            With a background: number of orders of the columns that are drawn for a row, each with one
            background row (default 128), and the seed. With few columns and background rows, all coalitions
            are scored instead, and the values are exact.
        output
            What to explain: ``"raw"``, ``"decision"``, ``"proba"``, ``"score"``, or ``"prediction"`` of a
            regressor. None for raw scores if the library has them, else its decision function, a regressor's
            prediction, probabilities or anomaly scores.
        interactions
            Whether to return Shapley interaction values, of each pair of columns, from the package's reasons.
            They take some hundred times as long.

        Returns
        -------
        Contributions by row, column and output; with base values they add up to the scores. With
        `interactions`, by row, column, column and output.

        Raises
        ------
        InputError
            If the rows don't fit the model, or it has no such output, neither reasons nor a background, or no
            interactions.
        """
        from hbtvm.runtime.explaining.explain import explain

        return explain(cast("Model", self), X, background, samples, seed, output, interactions)
