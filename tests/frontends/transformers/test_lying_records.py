"""Estimators whose attributes are anything at all: a graph or a clear refusal, nothing else."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tests.frontends.transformers.oracle import record_of
from tests.frontends.transformers.test_containers import CONTAINERS, frame_of
from tests.frontends.transformers.test_encoders import frame_of as categories_of
from tests.lying_records import is_read, put_junk


def estimators() -> list[Any]:
    frame = frame_of(0)
    found = [container.fit(frame, None) for container in CONTAINERS.values()]
    found += [
        OneHotEncoder(drop="first", min_frequency=9).fit(categories_of(0)),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1).fit(categories_of(0)),
    ]
    rows = np.random.default_rng(0).normal(size=(60, 5))
    y = (rows[:, 0] > 0).astype(int)
    for selector in (
        SelectKBest(k=3),
        SelectFromModel(LogisticRegression()),
        SelectFromModel(DecisionTreeClassifier()),
        RFE(LogisticRegression(), n_features_to_select=2),
    ):
        found.append(make_pipeline(StandardScaler(), selector, StandardScaler()).fit(rows, y))
    return found


ESTIMATORS = estimators()


@pytest.mark.parametrize("seed", range(4))
def test_any_attribute(seed: int) -> None:
    choose = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(250):
        record = record_of(choose.choice(ESTIMATORS))
        for _ in range(choose.randint(1, 2)):
            put_junk(record, choose)
        outcomes["read" if is_read(record) else "refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 20
