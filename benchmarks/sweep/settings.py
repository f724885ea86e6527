"""The settings in which a class is swept: options, what is around it, and what it is fitted on."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks.sweep import classes
from benchmarks.sweep.contexts import contexts
from benchmarks.sweep.training import Training, training

LIMIT = 8
"""Settings of a class and seed."""


@dataclass(frozen=True)
class Setting:
    """A fitted model with what it was fitted on.

    Attributes
    ----------
    title
        The options, what is around the estimator, and what it was fitted on.
    """

    title: str
    model: Any
    data: Training


def settings(name: str, seed: int, limit: int = LIMIT) -> Iterator[Setting]:
    """Yield fitted settings of a class, at most `limit`, the plainest first.

    Settings that the library refuses to fit are left out.
    """
    kind = classes.classes()[name]
    for at, (title, model, container, target) in enumerate(_plans(kind, seed)):
        if limit <= 0:
            return
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), at])
        data = training(classes.kind_of(name), target, container, rng)
        fitted = _fitted(model, data)
        if fitted is not None:
            limit -= 1
            yield Setting(f"{title}, {container}" + (f", {target}" if target else ""), fitted, data)


def _fitted(model: Any, data: Training) -> Any:
    """The model fitted; None where the library refuses it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = clone(model)
            if data.kind in ("labels", "sets"):
                return model.fit(data.X)
            return model.fit(data.X, data.y)
        except Exception:
            return None


def _plans(kind: type, seed: int) -> Iterator[tuple[str, Any, str, str]]:
    """Yield title, unfitted model, container and target of each setting."""
    name = kind.__name__
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    made = classes.instance(kind)
    target = classes.target_of(name, made, seed)
    other = classes.target_of(name, made, seed + 1)
    rows = classes.kind_of(name)
    of_numbers = rows in ("numbers", "positive", "column")
    yield "plain", made, "float64", target
    if of_numbers:
        yield "plain", made, "int64", other
        yield "plain", made, "float32", target
        yield "plain", made, "csr", other
        yield "plain", made, "missing", target
    framed = rows in ("numbers", "positive", "categories")
    if framed:
        yield "plain", made, "frame", other
    around = contexts(classes.role_of(made), target)
    around = [around[at] for at in rng.permutation(len(around))]
    single = classes.options(kind, rng)
    containers: tuple[str, ...] = ("float64", "int64", "float64") if of_numbers else ("float64",)
    containers += ("frame",) * framed
    for turn in range(max(len(around), len(single))):
        container = containers[(turn + seed) % len(containers)]
        if turn < len(around):
            title, make = around[turn]
            try:
                model = make(clone(made))
            except Exception:
                model = None
            if model is not None:
                yield title, model, container, target
        for option in single[2 * turn : 2 * turn + 2]:
            try:
                model = classes.instance(kind, **option)
            except Exception:
                continue
            yield _title(option), model, container, (target, other)[turn % 2]


def _title(option: dict[str, Any]) -> str:
    """An option in words."""
    return ", ".join(f"{name}={getattr(value, '__name__', None) or value}" for name, value in option.items())
