"""Random mixed pipelines, to the bit: types, missing and unknown values, selections, in both precisions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectFromModel, SelectPercentile, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from tests.frontends.transformers.oracle import check

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = ("numbers", "numbers with gaps", "integers", "words", "words with gaps")


def frame_of(seed: int, kinds: list[str], unknown: bool, dtype: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = 80
    columns: dict[str, pd.Series] = {}
    for i, kind in enumerate(kinds):
        if "words" in kind:
            values = rng.choice(["a", "b", "c", "d"] + ["q"] * unknown, n).astype(object)
        elif kind == "integers":
            values = rng.integers(0, 6, n).astype(dtype)
        else:
            values = np.round(rng.normal(size=n) * 10, int(rng.integers(0, 5))).astype(dtype)
        if "gaps" in kind:
            values[rng.random(n) < 0.2] = np.nan
        columns[f"{kind} {i}"] = pd.Series(values, dtype=values.dtype)
    return pd.DataFrame(columns)


def of_numbers(choose: random.Random, gaps: bool) -> Any:
    makers: list[Callable[[], Any]] = [
        StandardScaler,
        MinMaxScaler,
        MaxAbsScaler,
        RobustScaler,
        VarianceThreshold,
        lambda: MinMaxScaler(clip=True),
        lambda: FunctionTransformer(choose.choice([np.cbrt, np.arctan, np.square, np.tanh, None])),
        lambda: Binarizer(threshold=choose.random()),
        lambda: SelectPercentile(percentile=60),
        lambda: KBinsDiscretizer(4, encode=choose.choice(["ordinal", "onehot", "onehot-dense"])),
        lambda: QuantileTransformer(n_quantiles=40),
        PowerTransformer,
        lambda: FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]),
    ]
    strategy = choose.choice(["mean", "median", "most_frequent", "constant"])
    imputer = SimpleImputer(strategy=strategy, add_indicator=choose.random() < 0.4)
    steps = [imputer] if gaps or choose.random() < 0.3 else []
    steps += [choose.choice(makers)() for _ in range(choose.randint(0, 3))]
    return make_pipeline(*steps) if steps else "passthrough"


def of_words(choose: random.Random, gaps: bool) -> Any:
    rare = choose.choice([{}, {"min_frequency": 15}, {"max_categories": 3}])
    steps: list[Any] = []
    if gaps and choose.random() < 0.6:
        steps.append(SimpleImputer(strategy=choose.choice(["most_frequent", "constant"])))
    if choose.random() < 0.6:
        encoder = OneHotEncoder(
            handle_unknown=choose.choice(["ignore", "infrequent_if_exist"]),
            drop=choose.choice([None, None, "first", "if_binary"]),
            sparse_output=choose.random() < 0.5,
            dtype=choose.choice([np.float64, np.float32]),
            **rare,
        )
    else:
        missing = choose.choice([-2, -3])
        encoder = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=missing, **rare
        )
    return make_pipeline(*steps, encoder)


def tail(choose: random.Random) -> list[Any]:
    makers: list[Callable[[], Any]] = [
        lambda: StandardScaler(with_mean=False),
        MaxAbsScaler,
        lambda: RobustScaler(with_centering=False),
        lambda: SelectPercentile(percentile=50),
        lambda: VarianceThreshold(0.01),
        lambda: SelectFromModel(RandomForestRegressor(5, random_state=0)),
        lambda: SelectFromModel(Lasso(0.01)),
    ]
    return [choose.choice(makers)() for _ in range(choose.randint(0, 3))]


def pipeline_of(seed: int) -> tuple[Any, list[str], str]:
    choose = random.Random(seed)
    kinds = [choose.choice(KINDS) for _ in range(choose.randint(1, 7))]
    dtype = choose.choice(["float32", "float64"])
    parts: list[tuple[str, Any, list[str]]] = []
    for kind in KINDS:
        columns = [f"{one} {i}" for i, one in enumerate(kinds) if one == kind]
        make = of_words if "words" in kind or (kind == "integers" and choose.random() < 0.4) else of_numbers
        if columns:
            parts.append((kind, make(choose, "gaps" in kind), columns))
    choose.shuffle(parts)
    if len(parts) > 1 and choose.random() < 0.2:
        parts.pop()
    weights = choose.choice([None, {"numbers": 0.3}])
    both = ColumnTransformer(parts, sparse_threshold=choose.choice([0, 0.3, 1]), transformer_weights=weights)
    return make_pipeline(both, *tail(choose)), kinds, dtype


SEEDS = [*range(60), 125, 161, 398]
"""Some of which found differences while this was written."""


def fitted(seed: int) -> tuple[Any, pd.DataFrame] | None:
    """A pipeline and new rows; None if the library refuses the combination."""
    pipeline, kinds, dtype = pipeline_of(seed)
    known, new = frame_of(seed, kinds, False, dtype), frame_of(seed + 1000, kinds, True, dtype)
    try:
        pipeline.fit(known, np.random.default_rng(seed).integers(0, 2, len(known)))
        pipeline.transform(new)
    except (ValueError, TypeError):
        return None
    return pipeline, new


@pytest.mark.parametrize("start", range(0, len(SEEDS), 9))
def test_random_pipelines(start: int) -> None:
    found = [one for one in map(fitted, SEEDS[start : start + 9]) if one is not None]
    assert len(found) >= 5
    for pipeline, rows in found:
        check(pipeline, rows, same_type=False)
