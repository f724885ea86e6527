"""Models drawn at random answer as CatBoost: live, from ``.cbm`` and from JSON."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hbtvm.frontends import load_model
from hbtvm.frontends.catboost import cbm
from tests.by_reference import predict
from tests.counters import counter_code
from tests.frontends.catboost import generated


@pytest.mark.parametrize("seed", range(25))
def test_answers_and_labels(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generated.compare(seed)


def test_combinations(tmp_path: Path) -> None:
    """Counters of several categories, and of results of comparisons."""
    rng = np.random.default_rng(2)
    n = 500
    X = pd.DataFrame(
        {name: rng.choice(generated.WORDS[:k], n) for name, k in (("a", 3), ("b", 9), ("c", 12))}
    )
    X["x"] = rng.normal(size=n)
    X["user"] = rng.integers(0, 300, n)
    sizes = X[["a", "b", "c"]].map(len)
    y = (sizes.sum(axis=1) % 2) * 3 + (X["x"] > 0) * (sizes["b"] % 3) + X["user"] % 5
    model = generated.catboost.CatBoostRegressor(
        iterations=40, depth=6, one_hot_max_size=3, max_ctr_complexity=4, random_seed=1, thread_count=1,
        cat_features=["a", "b", "c", "user"], verbose=False, allow_writing_files=False,
    ).fit(X, y)  # fmt: skip
    rows = X.assign(user=X["user"] + rng.choice([0, 300], n), a=rng.choice(generated.WORDS[:6], n))
    for kind in ("cbm", "json"):
        path = tmp_path / f"model.{kind}"
        model.save_model(str(path), format=kind)
        for code in (None, counter_code()):
            answers = predict(load_model(path), rows, None, code)
            np.testing.assert_allclose(answers, model.predict(rows), rtol=1e-9)
    combinations = [c.combination for c in cbm.read((tmp_path / "model.cbm").read_bytes()).counters]
    assert max(len(combination.categories) for combination in combinations) > 1
    assert any(combination.above for combination in combinations)
    assert any(combination.equal for combination in combinations)
