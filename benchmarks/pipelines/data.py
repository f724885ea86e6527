"""Frames in the shapes of data that pipelines are trained on: numbers, strings, missing values."""

from __future__ import annotations

from typing import Any

import numpy as np

NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
CATEGORIES = {
    "workclass": 8,
    "education": 16,
    "marital_status": 7,
    "occupation": 14,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native_country": 41,
}
"""String columns of `adult`, and how many categories each has: those of UCI's set of that name."""


def words(count: int, seed: int = 1) -> list[str]:
    """Different words of 3 to 14 letters."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        letters = rng.integers(97, 123, rng.integers(3, 15))
        found.setdefault("".join(map(chr, letters)))
    return list(found)


def adult(rows: int, *, missing_strings: bool = False, seed: int = 2) -> Any:
    """A frame of six numbers, 5% of three of them missing, and eight string columns of 2 to 41 categories."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "age": rng.integers(17, 90, rows).astype(float),
        "fnlwgt": rng.lognormal(12, 0.5, rows).round(),
        "education_num": rng.integers(1, 17, rows).astype(float),
        "capital_gain": np.where(rng.random(rows) < 0.08, rng.lognormal(8, 1, rows).round(), 0.0),
        "capital_loss": np.where(rng.random(rows) < 0.05, rng.lognormal(7, 0.3, rows).round(), 0.0),
        "hours_per_week": rng.integers(1, 99, rows).astype(float),
    }
    for name in ("age", "fnlwgt", "hours_per_week"):
        columns[name][rng.random(rows) < 0.05] = np.nan
    vocabulary = iter(words(sum(CATEGORIES.values())))
    for name, count in CATEGORIES.items():
        known = np.array([next(vocabulary) for _ in range(count)], object)
        share = 1 / np.arange(1, count + 1)
        columns[name] = known[rng.choice(count, rows, p=share / share.sum())]
        if missing_strings and name in ("workclass", "occupation", "native_country"):
            columns[name][rng.random(rows) < 0.05] = None
    frame = pd.DataFrame(columns)
    return frame.astype(dict.fromkeys(CATEGORIES, "str"))


def adult_target(frame: Any) -> np.ndarray:
    """0 or 1 for each row of `adult`; a quarter are 1."""
    rng = np.random.default_rng(9)
    score = frame["age"].fillna(40) / 20 + frame["education_num"] / 5 + (frame["capital_gain"] > 0) * 3
    score = score + frame["hours_per_week"].fillna(40) / 25
    score = score + frame["education"].fillna("").str.len() / 6 + (frame["sex"] == frame["sex"].iloc[0])
    noisy = np.asarray(score, float) + rng.standard_normal(len(frame))
    return (noisy > np.quantile(noisy, 0.75)).astype(int)


def wide(rows: int, *, numbers: int = 89, categories: int = 30, missing: float = 0.05, seed: int = 4) -> Any:
    """A frame of numbers, some missing, and of integers of three values; the shape of OpenML's nomao."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, numbers))
    values[rng.random(values.shape) < missing] = np.nan
    columns = {f"n{i}": values[:, i] for i in range(numbers)}
    return pd.DataFrame(columns | {f"c{i}": rng.integers(0, 3, rows) for i in range(categories)})


def wide_target(frame: Any) -> np.ndarray:
    """0 or 1 for each row, from a few of the numbers."""
    values = np.nan_to_num(frame.to_numpy(float))
    rng = np.random.default_rng(5)
    score = values[:, :8] @ rng.normal(size=8) + 0.5 * rng.standard_normal(len(values))
    return (score > 0).astype(int)


def strings(rows: int, *, columns: int = 3, categories: int = 1_000, seed: int = 6) -> Any:
    """A frame of string columns of many categories."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    vocabulary = np.array(words(columns * categories), object).reshape(columns, categories)
    found = {f"s{i}": vocabulary[i][rng.integers(0, categories, rows)] for i in range(columns)}
    return pd.DataFrame(found).astype("str")


def strings_target(frame: Any) -> np.ndarray:
    """A number for each row, from the lengths of its strings."""
    return np.asarray(sum(frame[name].str.len() for name in frame), float)


def bundled(name: str) -> tuple[Any, np.ndarray]:
    """A set that scikit-learn brings along, such as ``digits``: a frame and its targets."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")(as_frame=True)
    return found.data, found.target.to_numpy()


def repeated(name: str, rows: int) -> Any:
    """So many rows of a bundled set, drawn with replacement."""
    frame, _ = bundled(name)
    chosen = np.random.default_rng(0).integers(0, len(frame), rows)
    return frame.iloc[chosen].reset_index(drop=True)


def texts(rows: int, *, length: int = 20, vocabulary: int = 5_000) -> Any:
    """A series of texts of so many words, whose frequencies follow Zipf's law."""
    import pandas as pd

    rng = np.random.default_rng(11)
    share = 1 / np.arange(1, vocabulary + 1)
    known = np.array(words(vocabulary), object)
    chosen = known[rng.choice(vocabulary, (rows, length), p=share / share.sum())]
    return pd.Series([" ".join(row) for row in chosen], dtype="str")
