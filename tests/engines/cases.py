"""What all engines predict here: a pipeline of numbers and texts, over files of Parquet."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm

ROWS, FILES = 400, 4
COLUMNS = ["age", "city", "note"]  # of training; the last is not read


class Case:
    """A model, its package, and rows in several files.

    Attributes
    ----------
    package, data
        Where they are.
    rows
        All rows; ``id`` counts them.
    expected
        Probabilities, by scikit-learn.
    """

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(5)
        self.rows = rows = pd.DataFrame(
            {
                "id": np.arange(ROWS),
                "age": rng.normal(40, 10, ROWS),
                "city": rng.choice(["Rome", "Oslo", "Lima"], ROWS),
                "note": "not read",
            }
        )
        front = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
        self.model = make_pipeline(front, LogisticRegression())
        self.model.fit(rows[COLUMNS], rng.choice(["no", "yes"], ROWS))
        self.expected = self.model.predict_proba(rows)
        self.package, self.data = folder / "model.tar", folder / "rows"
        hbtvm.compile(self.model, batch_sizes=(100,), threads=1, explain=True).save(self.package)
        self.write(self.data, rows)

    def write(self, folder: Path, rows: pd.DataFrame) -> None:
        """Write rows as several files."""
        folder.mkdir()
        for i, part in enumerate(np.array_split(np.arange(len(rows)), FILES)):
            rows.iloc[part].to_parquet(folder / f"{i}.parquet", index=False)

    def with_unknown_city(self, folder: Path) -> Path:
        """Rows of which the last has a city that the model refuses."""
        rows = self.rows.copy()
        rows.loc[ROWS - 1, "city"] = "Atlantis"
        self.write(folder, rows)
        return folder

    def check(self, found: pd.DataFrame) -> None:
        """Compare predictions, with ids in front, with those of scikit-learn."""
        assert list(found.columns) == ["id", "no", "yes"]
        found = found.sort_values("id")
        np.testing.assert_array_equal(found["id"], self.rows["id"])
        np.testing.assert_allclose(found[["no", "yes"]].to_numpy(float), self.expected, rtol=1e-6)

    def check_contributions(self, found: pd.DataFrame) -> None:
        """Compare contributions, with ids in front, with scikit-learn's weights and scores."""
        assert list(found.columns) == ["id", *COLUMNS, "base_value"]
        found = found.sort_values("id")
        np.testing.assert_array_equal(found["id"], self.rows["id"])
        front, linear = self.model[0], self.model[-1]
        age = front.named_transformers_["standardscaler"].transform(self.rows[["age"]])[:, 0]
        np.testing.assert_allclose(found["age"], linear.coef_[0, 0] * age, rtol=0, atol=1e-9)
        cities = dict(
            zip(front.named_transformers_["onehotencoder"].categories_[0], linear.coef_[0, 1:], strict=True)
        )
        city = self.rows["city"].map(cities) - np.mean([*cities.values()])
        np.testing.assert_allclose(found["city"], city, rtol=0, atol=1e-9)
        assert (found["note"] == 0).all()
        scores = found[[*COLUMNS, "base_value"]].sum(axis=1)
        np.testing.assert_allclose(scores, self.model.decision_function(self.rows), rtol=0, atol=1e-9)


def die_once(mark: str) -> None:
    """Kill this process, unless one has been killed before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
