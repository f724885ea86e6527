"""``RandomTreesEmbedding`` against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import ModelError
from hbtvm.graph.columns.evaluate import evaluate
from tests.answers import same
from tests.frontends.predictors.data import ROWS, TARGETS, X
from tests.frontends.transformers.oracle import raw_of, table_of


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_leaves(dtype: str) -> None:
    model = RandomTreesEmbedding(7, max_depth=4, sparse_output=False, random_state=0).fit(X)
    rows = np.concatenate([ROWS, X]).astype(dtype)
    table = table_of(model, 6)
    np.testing.assert_array_equal(evaluate(table, raw_of(rows)), model.transform(rows))
    assert table.names == tuple(model.get_feature_names_out()) and not table.sparse
    assert table_of(RandomTreesEmbedding(3).fit(X), 6).sparse


def test_compiled() -> None:
    embedding = RandomTreesEmbedding(9, random_state=0)
    linear = make_pipeline(StandardScaler(), embedding, LogisticRegression()).fit(X, TARGETS["strings"])
    bayes = make_pipeline(RandomTreesEmbedding(3, random_state=0), BernoulliNB()).fit(X, TARGETS["binary"])
    for model in (linear, bayes):
        compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
        for rows in (ROWS, ROWS[:1]):
            same(compiled.predict_proba(rows), model.predict_proba(rows), 1e-9, 1e-11)
    alone = RandomTreesEmbedding(4, sparse_output=False, random_state=1).fit(X)
    compiled = hbtvm.compile(alone, batch_sizes=64, threads=1)
    np.testing.assert_array_equal(compiled.transform(ROWS), alone.transform(ROWS))


def test_damaged() -> None:
    model = RandomTreesEmbedding(3).fit(X)
    model.one_hot_encoder_.categories_ = model.one_hot_encoder_.categories_[:-1]
    with pytest.raises(ModelError, match="it knows leaves of 2 trees of 3"):
        table_of(model, 6)
    model = RandomTreesEmbedding(3).fit(X)
    model.estimators_ = []
    with pytest.raises(ModelError):
        table_of(model, 6)
