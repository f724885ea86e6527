"""Linear models over feeds, against scikit-learn's pipelines of transformers and the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from hbtvm.frontends import from_object
from hbtvm.graph.columns.evaluate import Evaluator, evaluate
from hbtvm.graph.columns.steps import (
    Arithmetic,
    Cast,
    Encode,
    Equals,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Step,
)
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation, Table, side_by_side
from hbtvm.graph.compose import compose
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import Linear

JOBS = np.array(["admin", "nurse", "pilot", "tech"], object)


def frame(n: int = 300, missing: bool = True) -> tuple[list[np.ndarray], np.ndarray]:
    """Raw columns: two numbers (one far from 0), small whole numbers, jobs; and a target."""
    rng = np.random.default_rng(11)
    far, near = 1e6 + 3 * rng.normal(size=n), rng.normal(size=n)
    grade, job = rng.integers(0, 5, n).astype(np.float64), rng.choice(JOBS, n)
    y = far - 1e6 + near * 2 + grade + (job == "pilot") * 3
    if missing:
        far[rng.random(n) < 0.1] = np.nan
        near[rng.random(n) < 0.1] = np.nan
    return [far, near, grade, job], y


def rows_of(raw: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty((len(raw[0]), len(raw)), object)
    for i, column in enumerate(raw):
        out[:, i] = column
    return out


def standard(scaler: StandardScaler, i: int) -> tuple[Step, Step]:
    return Arithmetic("subtract", float(scaler.mean_[i])), Arithmetic("divide", float(scaler.scale_[i]))


def column(i: int, *steps: Step) -> Column:
    return Column(Raw(i), steps, allow_inf=False)


def one_hot(i: int, encoder: OneHotEncoder) -> list[Column]:
    values = tuple(encoder.categories_[0].tolist())
    encode = Encode(values, "code")
    return [column(i, encode, Equals((code,))) for code in range(len(values))]


def matrix(graph: Graph, raw: Sequence[np.ndarray]) -> np.ndarray:
    """The feeds' matrix, as the runtime makes it."""
    computed = Evaluator(raw)
    return np.stack([computed.column(feed.source, feed.steps) for feed in graph.feeds], axis=1)


def composed(raw: Sequence[np.ndarray], columns: Sequence[Column], model: Any) -> tuple[Graph, np.ndarray]:
    """The graph of a table and a model, and its scores of the rows."""
    graph = compose(InputSpec(len(raw)), Table(tuple(columns)), from_object(model), ())
    assert isinstance(graph.anchor, Linear)
    assert graph.anchor.n_features == len(graph.feeds)
    return graph, graph.anchor.reference(matrix(graph, raw))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_typical_pipeline() -> None:
    raw, y = frame()
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    pipeline = make_pipeline(
        ColumnTransformer(
            [("numbers", numbers, [0, 1, 2]), ("job", OneHotEncoder(handle_unknown="ignore"), [3])],
            sparse_threshold=0,
        ),
        LogisticRegression(max_iter=2000),
    )
    labels = np.digitize(y, [1, 4])
    pipeline.fit(rows_of(raw), labels)
    raw[3][:5] = "unheard of"
    imputer, scaler = (step for _, step in pipeline[0].named_transformers_["numbers"].steps)
    columns = [column(i, Fill(float(imputer.statistics_[i])), *standard(scaler, i)) for i in range(3)]
    indicators = imputer.indicator_.features_.tolist()
    assert indicators == [0, 1]
    columns += [column(i, IsMissing(), *standard(scaler, 3 + k)) for k, i in enumerate(indicators)]
    columns += one_hot(3, pipeline[0].named_transformers_["job"])
    table = Table(tuple(columns))
    np.testing.assert_allclose(evaluate(table, raw), pipeline[0].transform(rows_of(raw)).astype(float))
    graph, scores = composed(raw, columns, pipeline[-1])
    close(scores, pipeline.decision_function(rows_of(raw)))
    # Four columns are read, as numbers and codes; nothing is left to the host.
    assert [(feed.source, bool(feed.encoder), len(feed.steps)) for feed in graph.feeds] == [
        (Raw(0), False, 0),
        (Raw(1), False, 0),
        (Raw(2), False, 0),
        (Raw(3), True, 1),
    ]
    assert [feed.allow_nan for feed in graph.feeds[:3]] == [True, True, True]
    assert not any(feed.allow_inf for feed in graph.feeds[:3])
    assert graph.anchor.sums.sizes == (5,)  # type: ignore[union-attr]
    told = " ".join(graph.rewrites)
    assert "scalers and imputers of 5 columns" in told
    assert "4 encoded columns: sums of entries of 1 table" in told
    np.testing.assert_array_equal(graph.output.compute("label", scores), pipeline.predict(rows_of(raw)))


def test_chains_of_scalers_in_any_order() -> None:
    raw, y = frame(missing=False)
    X = np.stack(raw[:2], axis=1)
    first, second, third = MinMaxScaler((-1, 3)), StandardScaler(), StandardScaler()
    model = Ridge().fit(third.fit_transform(second.fit_transform(first.fit_transform(X))), y)
    expected = model.predict(third.transform(second.transform(first.transform(X))))
    columns = [
        column(
            i,
            Arithmetic("multiply", float(first.scale_[i])),
            Arithmetic("add", float(first.min_[i])),
            *standard(second, i),
            Cast("float64"),
            *standard(third, i),
        )
        for i in range(2)
    ]
    graph, scores = composed(raw, columns, model)
    close(scores[:, 0], expected)
    assert not any(feed.steps for feed in graph.feeds)


@pytest.mark.parametrize("order", ["fill first", "fill last"])
def test_what_is_missing_before_and_after_a_scaler(order: str) -> None:
    raw, y = frame()
    X = np.stack(raw[:2], axis=1)
    scaler = StandardScaler()
    imputer = SimpleImputer(strategy="constant", fill_value=7.5)
    steps = (imputer, scaler) if order == "fill first" else (scaler, imputer)
    pipeline = make_pipeline(*steps, Ridge()).fit(X, y)
    columns = []
    for i in range(2):
        parts = (Fill(7.5), *standard(scaler, i))
        columns.append(column(i, *(parts if order == "fill first" else (*parts[1:], parts[0]))))
    graph, scores = composed(raw, columns, pipeline[-1])
    close(scores[:, 0], pipeline.predict(X))
    assert all(feed.allow_nan and not feed.steps for feed in graph.feeds)


def test_a_column_that_is_read_with_and_without_an_imputer_refuses_nan() -> None:
    raw, y = frame(missing=False)
    X = np.stack([raw[1], raw[1]], axis=1) * [1, 2]
    model = Ridge().fit(X, y)
    columns = [column(1, Fill(0.0)), column(1, Arithmetic("multiply", 2.0))]
    graph, scores = composed(raw, columns, model)
    close(scores[:, 0], model.predict(X))
    assert [feed.allow_nan for feed in graph.feeds] == [False]


def test_numbers_of_codes_are_looked_up() -> None:
    raw, y = frame(missing=False)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    pipeline = make_pipeline(encoder, StandardScaler(), Ridge()).fit(rows_of(raw)[:, 3:], y)
    raw[3][:3] = "unheard of"
    encode, scaler = Encode(tuple(encoder.categories_[0].tolist()), "code"), pipeline[1]
    columns = [column(3, encode, Lookup(np.array([0.0, 1, 2, 3, -1])), *standard(scaler, 0))]
    graph, scores = composed(raw, columns, pipeline[-1])
    close(scores[:, 0], pipeline.predict(rows_of(raw)[:, 3:]))
    assert len(graph.anchor.sums.feature) == 0  # type: ignore[union-attr]


def test_a_code_without_a_number_is_left_to_the_host_which_refuses_it() -> None:
    raw, y = frame(missing=False)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    model = Ridge().fit(encoder.fit_transform(rows_of(raw)[:, 3:]), y)
    encode = Encode(tuple(encoder.categories_[0].tolist()), "code")
    lookup = Lookup(np.array([0.0, 1, 2, 3, np.nan]))
    graph, scores = composed(raw, [column(3, encode, lookup)], model)
    close(scores[:, 0], model.predict(encoder.transform(rows_of(raw)[:, 3:])))
    assert [(feed.allow_nan, len(feed.steps)) for feed in graph.feeds] == [(False, 2)]
    raw[3][0] = "unheard of"
    assert np.isnan(matrix(graph, raw)[0, 0])


def test_functions_are_computed_by_the_host() -> None:
    raw, y = frame(missing=False)
    pipeline = make_pipeline(FunctionTransformer(np.log1p), StandardScaler(), Ridge())
    X = raw[2][:, None]
    pipeline.fit(X, y)
    steps = (Function("log1p"), *standard(pipeline[1], 0))
    graph, scores = composed(raw, [Column(Raw(2), steps)], pipeline[-1])
    close(scores[:, 0], pipeline.predict(X))
    assert [feed.steps for feed in graph.feeds] == [steps]
    # log1p(-1) is what the model refuses.
    assert not graph.feeds[0].allow_inf
    assert "1 column computed by numpy" in graph.rewrites[0]


def test_columns_without_weight_are_not_read() -> None:
    raw, y = frame(missing=False)
    encoder = OneHotEncoder(sparse_output=False).fit(rows_of(raw)[:, 3:])
    X = np.column_stack([np.stack(raw[:3], axis=1), encoder.transform(rows_of(raw)[:, 3:])])
    model = Ridge().fit(X, y)
    model.coef_[[0, 2, 4, 6]] = 0.0
    columns = [*(column(i) for i in range(3)), *one_hot(3, encoder)]
    graph, scores = composed(raw, columns, model)
    close(scores[:, 0], model.predict(X))
    assert [feed.source for feed in graph.feeds] == [Raw(1), Raw(3)]
    assert "4 of 7 columns have no weight" in graph.rewrites[0]


@pytest.mark.parametrize("first", [0, 3])
def test_a_model_without_any_weight_reads_one_column(first: int) -> None:
    raw, _ = frame(missing=False)
    encoder = OneHotEncoder(sparse_output=False).fit(rows_of(raw)[:, 3:])
    columns = [column(0), *one_hot(3, encoder)]
    if first == 3:
        columns.reverse()
    model = Ridge().fit(np.zeros((4, 5)), np.full(4, 2.5))
    graph, scores = composed(raw, columns, model)
    np.testing.assert_array_equal(scores, np.full((300, 1), 2.5))
    assert [feed.source for feed in graph.feeds] == [Raw(first)]


def test_what_whole_rows_make_is_fed_as_numbers() -> None:
    class Norm(RowOperation):
        def __init__(self, inputs: Table) -> None:
            self.inputs, self.width = inputs, len(inputs)

        def reference(self, x: np.ndarray) -> np.ndarray:
            result: np.ndarray = x / np.abs(x).max(axis=1, keepdims=True)
            return result

    raw, y = frame(missing=False)
    norm = Norm(Table((column(1), column(2, Arithmetic("add", 1.0)))))
    made = Table(tuple(Column(Made(norm, i), (Arithmetic("multiply", 3.0),)) for i in range(2)))
    X = evaluate(made, raw)
    model = Ridge().fit(np.column_stack([X, raw[0]]), y)
    table = side_by_side([made, Table((column(0),))])
    graph, scores = composed(raw, table.columns, model)
    close(scores[:, 0], model.predict(np.column_stack([X, raw[0]])))
    assert [type(feed.source) for feed in graph.feeds] == [Made, Made, Raw]
    assert not any(feed.steps for feed in graph.feeds)
