"""Two classes of which one score tells both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import ensemble, tree

import hbtvm
from hbtvm.frontends import from_object
from hbtvm.graph.networks.complement import keep_second
from tests.models import data, targets
from tests.oracle import edge_rows

MODELS: dict[str, Any] = {
    "pure leaves": ensemble.RandomForestClassifier(7, random_state=0),
    "mixed leaves": ensemble.ExtraTreesClassifier(9, max_depth=3, random_state=0),
    "single tree": tree.DecisionTreeClassifier(max_depth=4, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_score_is_as_good_as_two(name: str, dtype: Any) -> None:
    model = MODELS[name].fit(data()[0], np.array(["no", "yes"])[targets("two")])
    graph = from_object(model)
    assert graph.anchor.n_outputs == 2
    # In float64, only where the difference to 1 is exact.
    one = name == "pure leaves" or dtype == "float32"
    kept = keep_second(graph, exact=dtype == "float64")
    assert (kept.anchor.n_outputs, kept.anchor.precise) == (
        1 if one else 2,
        one and name != "pure leaves",
    )
    rows = edge_rows(graph, "float32")
    compiled = hbtvm.compile(model, batch_sizes=(1, 100), threads=1, dtype=dtype)
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(compiled.predict_proba(rows), expected, rtol=0, atol=1e-15 if one else 1e-7)
    np.testing.assert_array_equal(compiled.predict(rows), model.predict(rows))
    for row in rows[:20]:
        np.testing.assert_array_equal(compiled.predict(row[None]), model.predict(row[None]))


def test_what_is_no_pair_of_shares_keeps_its_scores() -> None:
    X = data()[0]
    three = ensemble.RandomForestClassifier(3, random_state=0).fit(X, targets("three"))
    boosted = ensemble.HistGradientBoostingClassifier(max_iter=3).fit(X, targets("two"))
    pairs = np.stack([targets("two"), 1 - targets("two")], 1)
    several = ensemble.RandomForestClassifier(3, random_state=0).fit(X, pairs)
    for model in (three, boosted, several):
        graph = from_object(model)
        assert keep_second(graph, exact=False) is graph
