"""Cells that are compiled once, for any weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.compiler.recursion import compiled_cell
from hbtvm.compiler.recursion.compiled_cell import CompiledCell
from hbtvm.compiler.recursion.samples import sample
from hbtvm.compiler.targets.target import resolve
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Readout, Shape

SHAPES: dict[str, Shape] = {"W": (24, 5), "U": (24, 12), "Uf": (12, 12), "b": (24,), "v": (12,)}
CALL: Any = {"rows": 100, "nodes": 32, "levels": 8}


@rec.cell(children=2, state={"h": 12}, inputs={"x": rec.vector(5)})
def gated(node: Any, w: Any) -> Any:
    x = rec.split(w.W @ node.x + w.b, 2)
    u = rec.split(w.U @ rec.total(node.children.h), 2)
    kept = sum(rec.sigmoid(w.Uf @ child.h) * child.h for child in node.children)
    return {"h": rec.tanh(x[0] + u[0]) * rec.sigmoid(x[1] + u[1]) * w.v + kept}


def drawn(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in SHAPES.items()}


def checked(compiled: CompiledCell, weights: Mapping[str, Any]) -> None:
    cell = gated.bind(weights)
    structures = sample(cell, 9, seed=4)
    found = compiled.host(weights).run(structures)
    states = reference.states(cell, structures)
    expected = reference.readout(cell, Readout("h", "total"), structures, states)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


def test_tables_are_those_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = CompiledCell(gated, SHAPES, Readout("h", "total"), target=resolve(), **CALL)
    monkeypatch.setattr(compiled_cell, "kernels_of", None)  # nothing is compiled again
    for seed in range(3):
        checked(compiled, drawn(seed))
    # Weights that are alike, or nothing but zeros, are as good as any.
    checked(compiled, {**drawn(0), "b": np.zeros(24, np.float32), "v": np.ones(12, np.float32)})
    checked(compiled, {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})
    same = np.full((12, 12), 0.1, np.float32)
    checked(compiled, {**drawn(0), "U": np.concatenate([same, same]), "Uf": same})


def test_words_rows_are_weights() -> None:
    """Leaves' states are computed, not looked up: they depend on the weights."""
    compiled = CompiledCell(
        known.tree_rnn(12, 2),
        {"W": (12, 12), "words": (20, 12)},
        Readout("h", "total"),
        target=resolve(),
        **CALL,
    )
    for seed in range(2):
        weights = known.example_weights("tree_rnn", 12, 20, seed=seed)
        cell = known.tree_rnn(12, 2).bind(weights)
        structures = sample(cell, 9, seed=4)
        expected = reference.readout(
            cell, Readout("h", "total"), structures, reference.states(cell, structures)
        )
        np.testing.assert_allclose(compiled.host(weights).run(structures), expected, atol=1e-5)


def test_weights_of_other_shapes() -> None:
    compiled = CompiledCell(gated, SHAPES, Readout("h"), target=resolve(), **CALL)
    with pytest.raises(ValueError, match=r"weight 'b' has the shape \(12,\); expected \(24,\)"):
        compiled.host({**drawn(0), "b": np.zeros(12)})
    with pytest.raises(ValueError, match="weight 'Uf' has the shape"):
        compiled.host({name: one for name, one in drawn(0).items() if name != "Uf"})


def test_weights_that_cannot_be_counted() -> None:
    many: dict[str, Shape] = {**SHAPES, "W": (24, 700_000)}
    with pytest.raises(ValueError, match=r"expected fewer than 16,777,216"):
        CompiledCell(gated, many, Readout("h"), target=resolve(), **CALL)


def test_tables_that_are_computed_from_weights_are_refused() -> None:
    """Such as products of all words' rows."""

    @rec.cell(children=2, state={"h": 8}, inputs={"word": rec.embedding("words")})
    def words(node: Any, w: Any) -> Any:
        return {"h": rec.tanh(w.W @ node.word + rec.total(node.children.h))}

    with pytest.raises(ValueError, match="computed from weights"):
        CompiledCell(words, {"W": (8, 8), "words": (20, 8)}, Readout("h"), target=resolve(), **CALL)

    @rec.cell(children=2, state={"h": 8})
    def added(node: Any, w: Any) -> Any:
        return {"h": rec.tanh(rec.total(node.children.h) + (w.a + w.b))}

    with pytest.raises(ValueError, match="computed from weights"):
        CompiledCell(added, {"a": (8,), "b": (8,)}, Readout("h"), target=resolve(), **CALL)
