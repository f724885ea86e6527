"""`explain`: contributions of columns to the scores of a compiled model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.explanation import Explanation
from hbtvm.runtime.explaining.games import Game, MatrixGame, TableGame
from hbtvm.runtime.explaining.interactions import Interactions, of_pairs
from hbtvm.runtime.explaining.shapley import enumerated, sampled
from hbtvm.runtime.explaining.tables import table_of
from hbtvm.runtime.python_steps import chained
from hbtvm.runtime.rows.sparse import is_sparse

if TYPE_CHECKING:
    from hbtvm.runtime.host import Output
    from hbtvm.runtime.model import Model

SAMPLES = 128
"""Orders of a row's columns that are drawn by default."""

_EXACT = 1 << 15  # coalitions of a row, times background rows, that are all scored rather than drawn
_MOST_PLAYERS = 20  # a table of all coalitions stays small

_SUMS = ("linear", "network")
"""Operators of views whose contributions are functions of single columns."""

_SCALES: tuple[Output, ...] = ("raw", "decision")
_OTHERS: tuple[Output, ...] = ("proba", "score")


def explain(
    model: Model,
    X: Any,
    background: Any,
    samples: int | None,
    seed: int,
    output: str | None,
    interactions: bool,
) -> Explanation | Interactions:
    """Explain rows; see `hbtvm.Model.explain`."""
    package = model.package
    if package.transforms:
        raise InputError(f"{package.model} does not predict, so there is no score to explain.")
    if package.recursion is not None:
        raise InputError(f"{package.model} reads structures; expected a model of rows with columns.")
    if model.device != "cpu":
        X, background = _on_host(X), _on_host(background)
    if background is None:
        if samples is not None:
            raise InputError("samples is for estimates, which need background=.")
        return exact(model, X, output, interactions)
    if interactions:
        raise InputError("interactions are exact, from the package's reasons; leave out background=.")
    if package.input.rows_are_values:
        raise InputError("a row of this model is a single value; expected a model of several columns.")
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 3):
        raise InputError(f"samples is {samples!r}; expected a whole number of at least 3.")
    view = model.views.get("reasons")
    if output in (None, *_SCALES) and view is not None and view.package.forest["operator"] in _SUMS:
        return _centred(model, X, background)
    names, width = _columns(model)
    of = _output(model, output)
    # A frame may have columns that the model does not read.
    shown = _dense(X)
    table = table_of(shown, names).select(names)
    game: Game
    if MatrixGame.fits(model):
        game = MatrixGame(model, X, background, of)
    else:
        game = TableGame(model, table, table_of(_dense(background), names).select(names), of, names)
    if names is None:
        names = None if table.names is None else tuple(map(str, table.names))
        width = len(table.columns)
    values, errors = _values(game, samples, seed)
    shape = (len(game.full), width, game.full.shape[1])
    data = table.values(names, width)
    return _explanation(
        _spread(values, game.players, shape),
        np.broadcast_to(game.empty.mean(axis=0), game.full.shape).copy(),
        data,
        names,
        names_of_outputs(model, of, shape[2]),
        None if errors is None else _spread(errors, game.players, shape),
    )


def exact(model: Model, X: Any, output: str | None, interactions: bool = False) -> Explanation | Interactions:
    """Explain rows by the package's view "reasons", a kernel of Shapley values.

    A row's results have the shape (outputs, columns + 1), the last of which is the base value. Behind Python
    steps, the columns are the steps'.

    Raises `InputError` if the package has no such view, or no interactions.
    """
    if model._parts:
        lead = model._parts[0].transform if len(model._parts) > 1 else None
        last = model._parts[-1]
        behind = partial(exact, last, output=output, interactions=interactions)
        explanation: Explanation | Interactions = chained(model.package.python, lead)(behind, X)
        return explanation
    view = model.views.get("reasons")
    if view is None:
        reason = model.package.no_views.get("reasons")
        why = (
            "the package has no reasons; compile with explain=True (hbtvm compile --explain)"
            if reason is None
            else f"{model.package.model} has no exact reasons: {reason}"
        )
        raise InputError(f"{why}, or pass background= to estimate them.")
    if output not in (None, *_SCALES):
        raise InputError(f"the package has reasons of raw scores; for {output!r} pass background=.")
    explained = _of_view(model, view, X, _view_results(view, X))
    return of_pairs(view, X, explained) if interactions else explained


def _view_results(view: Model, X: Any) -> np.ndarray:
    """Return contributions and base values: float64, shape (n, outputs, columns + 1)."""
    results: np.ndarray = np.asarray(view.predict(X), np.float64)
    return results.reshape(len(results), *view.package.output.shape)


def _of_view(model: Model, view: Model, X: Any, results: np.ndarray) -> Explanation:
    values, base = results[:, :, :-1].transpose(0, 2, 1), results[:, :, -1]
    names, width = _columns(view)
    data = table_of(_dense(X), names).values(names, width)
    return _explanation(values, base, data, names, names_of_outputs(model, "raw", values.shape[2]), None)


def _centred(model: Model, X: Any, background: Any) -> Explanation:
    """Explain rows of a sum of terms over a background: differences to the mean terms, without sampling."""
    view = model.views["reasons"]
    results, mean = _view_results(view, X), _view_results(view, background).mean(axis=0)
    results[:, :, :-1] -= mean[:, :-1]
    results[:, :, -1] += mean[:, :-1].sum(axis=1)
    return _of_view(model, view, X, results)


def _explanation(
    values: np.ndarray,
    base: np.ndarray,
    data: np.ndarray,
    names: Any,
    outputs: Any,
    errors: np.ndarray | None,
) -> Explanation:
    """Return the explanation; of a single output, without its axis."""
    names = _numbered(values.shape[1]) if names is None else tuple(names)
    if values.shape[2] == 1:
        only = None if errors is None else errors[:, :, 0]
        return Explanation(values[:, :, 0], base[:, 0], data, names, None, only)
    return Explanation(values, base, data, names, outputs, errors)


def _values(game: Game, samples: int | None, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values of the players, (n, players, O), and standard errors, if they are not exact."""
    k, backgrounds = len(game.players), len(game.empty)
    if k <= 1:
        return np.repeat((game.full - game.empty.mean(axis=0))[:, None], k, axis=1), None
    orders = SAMPLES if samples is None else samples
    of_samples = 2 * orders * (k - 1)
    if k <= _MOST_PLAYERS and backgrounds << k <= max(of_samples, 0 if samples else _EXACT):
        blocks = game.blocks(backgrounds << k)
        return np.concatenate(
            [
                enumerated(partial(game.scores, start, stop), backgrounds, k, game.most)
                for start, stop in blocks
            ]
        ), None
    parts = [
        sampled(
            partial(game.scores, start, stop), game.full[start:stop], game.empty, k, orders, seed, game.most
        )
        for start, stop in game.blocks(of_samples)
    ]
    return np.concatenate([values for values, _ in parts]), np.concatenate([errors for _, errors in parts])


def _spread(values: np.ndarray, players: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return values of all columns: 0 of those that the model does not read."""
    out = np.zeros(shape)
    out[:, players] = values
    return out


def _columns(model: Model) -> tuple[tuple[str, ...] | None, int]:
    """Return names and number of the columns that the model was trained with; None and 0 if unknown."""
    try:
        spec = model._input
    except AttributeError:  # a Python step reads the rows
        return None, 0
    return spec.feature_names, spec.n_features


def _output(model: Model, output: str | None) -> Output | None:
    """Return the output to explain: by default, the first that adds up best."""
    spec = model.package.output
    numbers = spec.kind == "regressor" or "response" in spec.nodes
    if output == "prediction":
        if not numbers:
            raise InputError(f"this {spec.kind} predicts labels; explain its scores or probabilities.")
        return None
    if output is None:
        for candidate in (*_SCALES, *(() if numbers else _OTHERS)):
            if candidate in spec.outputs:
                return candidate
        if not numbers:
            raise InputError(f"this {spec.kind} has no scores or probabilities, only labels.")
        return None
    if output not in (*_SCALES, *_OTHERS):
        raise InputError(
            f"output is {output!r}; expected None, 'raw', 'decision', 'proba', 'score' or 'prediction'."
        )
    model._require(output)
    return output


def names_of_outputs(model: Model, output: Output | None, count: int) -> tuple[str, ...]:
    """Return the classes' names, if there is an output for each class; else numbers."""
    classes = model.package.output.classes
    names = [str(name) for labels in classes for name in labels.tolist()]
    if len(classes) > 1:
        names = [f"{i}_{name}" for i, labels in enumerate(classes) for name in labels.tolist()]
    if len(names) != count:
        names = [f"{output or 'prediction'}_{i}" for i in range(count)]
    return tuple(names)


def names_of_columns(model: Model, width: int) -> tuple[str, ...]:
    """Return the names that the model was trained with; ``x0`` and so on if it has none."""
    return _columns(model)[0] or _numbered(width)


def _numbered(width: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(width))


def _on_host(X: Any) -> Any:
    """Return a copy in host memory of an array on a GPU; an explanation holds its rows."""
    from hbtvm.runtime.cuda.rows.libraries import library_of

    library = library_of(X)
    return X if library is None else library.to_host(X)


def _dense(X: Any) -> Any:
    return X.toarray() if is_sparse(X) else X
