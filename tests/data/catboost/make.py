"""Write the CatBoost models in this folder: ``python tests/data/catboost/make.py`` (CatBoost 1.2.10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
OPTIONS: dict[str, Any] = {
    "thread_count": 1,
    "verbose": False,
    "allow_writing_files": False,
    "random_seed": 1,
}


def frame(n: int = 200) -> pd.DataFrame:
    """Return rows of numbers and categories."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "amount": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "city": rng.choice(["Bern", "Genève", "Zug"], n),
            "shop": rng.choice([f"shop {i}" for i in range(12)], n),
            "day": rng.integers(0, 7, n),
        }
    )


def main() -> None:
    """Train the models; save each in both formats, with its answers."""
    import catboost  # its rows are read without it

    X = frame()
    y = X["amount"].fillna(0) + (X["city"] == "Zug") + X["shop"].str.len() / 3 + (X["day"] > 4)
    counters = catboost.CatBoostRegressor(
        iterations=8, depth=4, one_hot_max_size=3, cat_features=["city", "shop", "day"], **OPTIONS
    ).fit(X, y)
    numbers = X.drop(columns=["city", "shop"])
    level = np.array(["high", "low", "mid"])[np.digitize(y, [1.5, 2.5])]
    steps = catboost.CatBoostClassifier(iterations=3, depth=3, grow_policy="Depthwise", **OPTIONS).fit(
        numbers, level
    )
    for name, model, rows in (("counters", counters, X), ("steps", steps, numbers)):
        for ending, kind in ((".cbm", "cbm"), (".json", "json")):
            model.save_model(str(HERE / f"1.2.10-{name}{ending}"), format=kind)
        np.save(HERE / f"1.2.10-{name}.npy", catboost.CatBoost.predict(model, rows))


if __name__ == "__main__":
    main()
