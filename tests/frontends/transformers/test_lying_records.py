"""Estimators whose attributes are anything at all: a graph or a clear refusal, nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from hbtvm.errors import ModelError
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import Global, ObjectArray, Record
from tests.frontends.transformers.oracle import record_of
from tests.frontends.transformers.test_containers import CONTAINERS, frame_of
from tests.frontends.transformers.test_encoders import frame_of as categories_of


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


def holders(value: Any, seen: set[int]) -> Iterator[dict[Any, Any] | list[Any]]:
    """Everything in a record that something can be put into."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Record):
        # pandas' objects hold their values in arguments, or in tuples.
        for one in value.args:
            yield from holders(one, seen)
        yield from holders(value.state if isinstance(value.state, tuple) else value.attributes, seen)
    elif isinstance(value, ObjectArray):
        yield from holders(value.items, seen)
    elif isinstance(value, dict) and value:
        yield value
        for one in value.values():
            yield from holders(one, seen)
    elif isinstance(value, (list, tuple)):
        if isinstance(value, list) and value:
            yield value
        for one in value:
            yield from holders(one, seen)


def junk(choose: random.Random, others: list[Any]) -> Any:
    plain: list[Any] = [
        None,
        True,
        -1,
        0,
        3,
        1 << 40,
        0.5,
        float("nan"),
        float("inf"),
        "x",
        "drop",
        "first",
        b"x",
    ]
    arrays: list[Any] = [
        np.zeros(0),
        np.arange(5),
        np.full(5, -1),
        np.full(5, np.nan),
        np.zeros((2, 5)),
        np.array(["a", "b"]),
        np.array(3.0),
        ObjectArray((2,), ["a", None]),
        ObjectArray((1,), [Global("pandas", "NA")]),
    ]
    made: list[Any] = [
        [],
        {},
        (),
        [1, 2],
        ("a", "b"),
        {"a": 1},
        Global("os", "system"),
        Record(Global("a", "B")),
    ]
    return choose.choice([*plain, *arrays, *made, *others])


@pytest.mark.parametrize("seed", range(4))
def test_any_attribute(seed: int) -> None:
    choose = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(250):
        record = record_of(choose.choice(ESTIMATORS))
        for _ in range(choose.randint(1, 2)):
            places = list(holders(record, set()))
            others = [
                value for place in places for value in (place.values() if isinstance(place, dict) else place)
            ]
            place = choose.choice(places)
            key = choose.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
            place[key] = junk(choose, others[:50])
        try:
            registry.read(record)
            outcomes["read"] += 1
        except ModelError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 20
