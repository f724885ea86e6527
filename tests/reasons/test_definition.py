"""The reference of path-dependent Shapley values against all coalitions."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.graph.reasons.anchor import TreeReasons
from tests.ensembles import random_ensemble
from tests.reasons.coalitions import game, shapley, with_covers

FORMS = [
    {"max_leaves": 6},
    {"max_leaves": 12, "missing": "mixed"},
    {"chain": True, "max_leaves": 8},
    {"oblivious": True, "max_leaves": 8},
    {"groups": 2, "compare_dtype": "float64"},
    {"width": 3, "missing": "zero"},
    {"categories": True, "missing": "left"},
    {"max_leaves": 1},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("merged", [False, True], ids=["columns", "merged"])
def test_all_coalitions(form: dict[str, object], merged: bool) -> None:
    for seed in range(32):
        rng = np.random.default_rng(seed)
        ensemble = with_covers(random_ensemble(rng, trees=2, features=4, **form), rng)  # type: ignore[arg-type]
        player = np.array([0, 1, 0, 2] if merged else [0, 1, 2, 3], np.int32)
        players = int(player.max()) + 1
        reasons = TreeReasons(ensemble, player, players)
        rows = rng.normal(size=(2, 4)).round(1)
        rows[rng.random(rows.shape) < 0.1] = np.nan
        values = reasons.reference(rows).reshape(2, ensemble.n_outputs, players + 1)
        for row, found in zip(rows, values, strict=True):
            expected = shapley(ensemble, player, players, row)
            np.testing.assert_allclose(found[:, :-1], expected, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found[:, -1], game(ensemble, player, row, ()), rtol=0, atol=1e-9)
            whole = game(ensemble, player, row, range(players))
            np.testing.assert_allclose(found.sum(axis=1), whole, rtol=0, atol=1e-9)


def test_branches_without_cover_stay_finite() -> None:
    rng = np.random.default_rng(0)
    ensemble = with_covers(random_ensemble(rng, trees=3, max_leaves=10), rng)
    assert ensemble.cover is not None
    ensemble.cover[ensemble.is_leaf() & (rng.random(ensemble.n_nodes) < 0.4)] = 0.0
    reasons = TreeReasons(ensemble, np.arange(4, dtype=np.int32), 4)
    values = reasons.reference(rng.normal(size=(20, 4)))
    assert np.isfinite(values).all()
