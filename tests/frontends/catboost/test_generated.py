"""Models drawn at random answer as CatBoost: live, from ``.cbm`` and from JSON."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("catboost")

from tests.frontends.catboost import generated


@pytest.mark.parametrize("seed", range(25))
def test_answers_and_labels(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generated.compare(seed)
