"""Scores of coalitions: rows that take some columns from a row and the others from a background row.

Most models read rows into a matrix, each column of which comes from one of the caller's columns. Coalitions
are then mixed in the matrix: texts and categories are read once. Otherwise the caller's columns are mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.tables import Mixer, Table
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.rows.sparse import SparseRows, is_sparse

if TYPE_CHECKING:
    from hbtvm.runtime.host import Output
    from hbtvm.runtime.model import Model

_VALUES = 1 << 20  # numbers of the coalitions of a call; they stay in a cache

BACKGROUND = "background: "


class Game:
    """The game of each row, whose players are columns.

    `players`: positions of the columns, of those that the model reads.
    `full`: scores of the rows, float64 (n, O).
    `empty`: scores of the background's rows, float64 (b, O).
    `width`: numbers of a coalition.
    """

    players: np.ndarray
    full: np.ndarray
    empty: np.ndarray
    width: int

    def scores(self, start: int, stop: int, background: np.ndarray, coalitions: np.ndarray) -> np.ndarray:
        """Return scores of coalitions of rows, float64 (stop - start, m, O).

        `background`: positions of background rows, (m,).
        `coalitions`: whether a player's value is the row's, bool (m, players).
        """
        raise NotImplementedError

    @property
    def most(self) -> int:
        """Most coalitions of a call."""
        return max(1, _VALUES // max(self.width, int(self.full.shape[1])))

    def blocks(self, coalitions: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows whose coalitions, so many for each, are scored by one call."""
        n = len(self.full)
        step = max(1, self.most // max(coalitions, 1))
        for start in range(0, n, step):
            yield start, min(start + step, n)


class MatrixGame(Game):
    """Mixes columns of the matrix that kernels read."""

    def __init__(self, model: Model, X: Any, background: Any, output: Output | None) -> None:
        kernels = model._kernels
        kernels.warm_up()
        self._score: Callable[[np.ndarray], np.ndarray] = lambda rows: flat(
            model._finished(kernels.raw(rows), output)
        )
        self._X = matrix_of(model, X)
        with_name = named(lambda: matrix_of(model, background))
        reader = kernels.inputs
        if isinstance(reader, FeedReader):
            raw = np.array([reader.plan.raw_of[j] for j in range(self._X.shape[1])])
        else:
            raw = np.arange(self._X.shape[1])
        self.players, self._owner = np.unique(raw, return_inverse=True)
        self._background = with_name
        if self._X.dtype != with_name.dtype:
            # Kernels for float32 may compute something else; otherwise both types give the same scores.
            kind = self._X.dtype if model.package.rows_apart else np.dtype(np.float64)
            self._X, self._background = self._X.astype(kind), with_name.astype(kind)
        self.width = self._X.shape[1]
        self.full = self._score(self._X)
        self.empty = named(lambda: self._score(self._background))

    def scores(self, start: int, stop: int, background: np.ndarray, coalitions: np.ndarray) -> np.ndarray:
        rows = np.where(
            coalitions[:, self._owner], self._X[start:stop, None], self._background[background]
        ).reshape(-1, self.width)
        return self._score(rows).reshape(stop - start, len(background), -1)

    @staticmethod
    def fits(model: Model) -> bool:
        """Return whether each column of the model's matrix comes from one of the caller's columns."""
        if model._parts or model.package.recursion is not None or not model.package.kernels:
            return False
        reader = model._kernels.inputs
        return not isinstance(reader, FeedReader) or not (reader.plan.hosts or reader.plan.texts)


class TableGame(Game):
    """Mixes columns of the caller's tables; `names` are those of the model's columns."""

    def __init__(
        self,
        model: Model,
        X: Table,
        background: Table,
        output: Output | None,
        names: Sequence[str] | None,
    ) -> None:
        self._score: Callable[[Any], np.ndarray] = lambda rows: flat(model.predict(rows, output))
        self._mixer = mixer = Mixer(X, background)
        self.width = len(X.columns)
        places = X.places(names)
        reader = None if model._parts else model._kernels.inputs
        read = reader.plan.raws if isinstance(reader, FeedReader) else places
        self.players = np.array([i for i in places if i in read], int)
        self._places = [places[i] for i in self.players]
        everything, rows = np.ones((X.rows, self.width), bool), np.arange(X.rows)
        self.full = self._score(mixer.rows(everything, rows, np.zeros_like(rows)))
        rows = np.arange(background.rows)
        nothing = np.zeros((background.rows, self.width), bool)
        self.empty = named(lambda: self._score(mixer.rows(nothing, np.zeros_like(rows), rows)))

    def scores(self, start: int, stop: int, background: np.ndarray, coalitions: np.ndarray) -> np.ndarray:
        count, n = stop - start, len(background)
        own = np.zeros((n, self.width), bool)
        own[:, self._places] = coalitions
        rows = self._mixer.rows(
            np.tile(own, (count, 1)), np.repeat(np.arange(start, stop), n), np.tile(background, count)
        )
        return self._score(rows).reshape(count, n, -1)


def flat(predicted: Any) -> np.ndarray:
    """Return an output as float64 of shape (n, O); probabilities of several targets are side by side."""
    array = np.concatenate(predicted, axis=1) if isinstance(predicted, list) else np.asarray(predicted)
    return array.astype(np.float64).reshape(len(array), -1)


def named(call: Callable[[], np.ndarray]) -> np.ndarray:
    """Return a result for the background's rows; errors say that they are about these."""
    try:
        return call()
    except InputError as error:
        raise InputError(f"{BACKGROUND}{error.args[0]}", error.row) from error


def matrix_of(model: Model, X: Any) -> np.ndarray:
    """Return rows as kernels read them, shape (n, features)."""
    kernels = model._kernels
    if is_sparse(X) and not isinstance(kernels.inputs, FeedReader):
        tiles = [tile.copy() for _, tile in SparseRows(kernels.inputs, X, model.package.library).tiles()]
        if tiles:
            return np.concatenate(tiles)
    return kernels.prepared(X)
