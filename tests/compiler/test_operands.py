"""Which operands a package's kernels are made for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hbtvm.compiler.candidates.samples import CHECKED_ROWS, error_scale, plain_sums, sample_rows
from hbtvm.compiler.candidates.tasks import anchor_of, operands_of
from hbtvm.frontends import from_object
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Encode
from hbtvm.graph.columns.table import Raw
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.strategies import Forest, LinearOperand
from tests.ensembles import random_ensemble
from tests.models import data, targets
from tests.runtime_models import trained
from tests.strategies.test_linear import random_linear

REGRESSOR = OutputSpec("regressor", 1, {"response": Input(1)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float32_rows_have_trees_of_their_own(dtype: str) -> None:
    ensemble = random_ensemble(np.random.default_rng(0), trees=3, compare_dtype="float64")
    single = replace(ensemble, threshold=ensemble.threshold + 1)
    graph = Graph("scikit-learn", "Any", InputSpec(ensemble.n_features), ensemble, REGRESSOR)
    both = replace(graph, single=single)
    made = {one.dtype: one for one in operands_of(both, dtype)}  # type: ignore[arg-type]
    assert set(made) == {"float32", "float64"}
    for name, anchor in (("float32", single), ("float64", ensemble)):
        operand = made[name]  # type: ignore[index]
        assert isinstance(operand, Forest)
        assert anchor_of(both, operand) is anchor
        inner = operand.left >= 0
        tests = np.sort(operand.threshold[inner])
        expected = np.sort(anchor.threshold[inner])
        np.testing.assert_allclose(tests, expected, rtol=1e-6)
        assert anchor_of(graph, operand) is ensemble
    # The first is tuned: that in the type asked for.
    assert operands_of(both, dtype)[0].dtype == dtype  # type: ignore[arg-type]


def test_both_trees_lose_the_first_of_two_outputs() -> None:
    graph = trained("sk_forest_two")[1]
    both = replace(graph, single=replace(graph.anchor, threshold=graph.anchor.threshold * 2))
    kept = keep_second(both, exact=False)
    assert (kept.anchor.n_outputs, kept.single.n_outputs, kept.output.n_outputs) == (1, 1, 1)  # type: ignore[union-attr]
    np.testing.assert_array_equal(kept.single.threshold, graph.anchor.threshold * 2)  # type: ignore[union-attr]
    assert keep_second(graph, exact=False).single is None


def test_what_frames_of_float64_run_is_tuned() -> None:
    ensemble = random_ensemble(np.random.default_rng(0), trees=3, compare_dtype="float64")
    graph = Graph("scikit-learn", "Any", InputSpec(ensemble.n_features), ensemble, REGRESSOR)
    number, code = Feed(Raw(0)), Feed(Raw(1), (Encode(("a", "b")),))
    mixed = (number, code) * (ensemble.n_features // 2) + (number,) * (ensemble.n_features % 2)
    single = replace(ensemble, compare_dtype="float32")
    for feeds, anchor, first in (
        (mixed, ensemble, "float64"),
        (mixed, single, "float32"),
        ((code,) * ensemble.n_features, ensemble, "float32"),
        ((), ensemble, "float32"),
    ):
        made = replace(graph, feeds=feeds, anchor=anchor)
        operands = operands_of(made, "float32")
        assert operands[0].dtype == first
        assert len({one.dtype for one in operands}) == len(operands)
        if feeds:
            dtypes = [one.dtype for one in operands]
            read = FeedReader(graph.input, feeds, anchor.compare_dtype, dtypes)
            frame = pd.DataFrame(np.zeros((3, ensemble.n_features))).astype({1: object})
            assert read.prepare(frame).dtype == first


def test_linear_models_know_whether_numbers_may_be_missing() -> None:
    graph = from_object(Ridge().fit(data()[0], targets("real")))
    operands = operands_of(graph, "float32")
    assert [one.dtype for one in operands] == ["float64", "float32"]
    assert [one.dtype for one in operands_of(graph, "float64")] == ["float64"]
    for step, fills in ((StandardScaler(), False), (SimpleImputer(), True)):
        model = make_pipeline(step, Ridge()).fit(data()[0], targets("real"))
        for one in operands_of(from_object(model), "float32"):
            assert isinstance(one, LinearOperand)
            assert one.sums.fills_missing == fills
    assert all(isinstance(one, LinearOperand) and not one.sums.fills_missing for one in operands)
    assert keep_second(graph, exact=False) is graph


def test_sample_rows_of_linear_models_spread_over_tables_and_miss_some_numbers() -> None:
    linear = random_linear(np.random.default_rng(1), numbers=3, codes=2)
    X = sample_rows(linear, 2000, "float64")
    for feature, size in zip(linear.sums.code_feature, linear.sums.sizes, strict=True):
        np.testing.assert_array_equal(np.unique(X[:, feature]), np.arange(size))
    numbers = X[:, linear.sums.feature]
    assert np.isnan(numbers[:CHECKED_ROWS]).any()
    assert not np.isnan(numbers[CHECKED_ROWS:]).any()
    np.testing.assert_allclose(np.nanmean(numbers, axis=0), linear.sums.shift, atol=0.2)
    assert error_scale(linear, X) >= np.abs(plain_sums(linear, X)).max()
