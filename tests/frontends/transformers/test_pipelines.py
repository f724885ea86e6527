"""Whole pipelines to one graph; the last steps here are linear models, whose folding is proven elsewhere."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.cluster import DBSCAN
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

from hbtvm import codec
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import load_model, registry
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Table
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import Network
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from tests.frontends.transformers.oracle import raw_of, record_of
from tests.frontends.transformers.test_containers import DENSE, NUMBERS, frame_of


class Seen:
    """Stands in for `compose`: keeps what it is given, and returns the last step's graph."""

    def __init__(self) -> None:
        self.inputs: InputSpec | None = None
        self.table: Table | None = None

    def __call__(self, inputs: InputSpec, table: Table, last: Graph, steps: Any) -> Graph:
        self.inputs, self.table = inputs, table
        return last


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    monkeypatch.setattr("hbtvm.frontends.pipelines.compose", found)
    return found


def predict(graph: Graph, table: Table | None, rows: Any) -> np.ndarray:
    matrix = np.column_stack(raw_of(rows)) if table is None else evaluate(table, raw_of(rows))
    assert isinstance(graph.anchor, TreeEnsemble)
    result: np.ndarray = graph.output.compute(None, margins(graph.anchor, matrix))
    return result


def target_of(frame: pd.DataFrame) -> np.ndarray:
    result: np.ndarray = (frame["age"] > 50).to_numpy() ^ (frame["job"] == "tech").to_numpy()
    return result


def preparing() -> ColumnTransformer:
    return ColumnTransformer([("n", NUMBERS, ["age", "income"]), ("w", DENSE, ["job", "plan"])])


FOREST = RandomForestClassifier(8, max_depth=5, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        Pipeline([("prep", preparing()), ("model", FOREST)]),
        Pipeline([("prep", Pipeline([("in", preparing())])), ("all", Pipeline([("model", FOREST)]))]),
        Pipeline(
            [("prep", preparing()), ("pass", "passthrough"), ("scale", StandardScaler()), ("model", FOREST)]
        ),
        Pipeline([("prep", FeatureUnion([("a", preparing()), ("b", preparing())])), ("model", FOREST)]),
        Pipeline([("prep", preparing()), ("rfe", RFE(DecisionTreeClassifier(random_state=0)))]),
        Pipeline([("prep", preparing()), ("few", SelectFromModel(FOREST)), ("model", FOREST)]),
        GridSearchCV(
            Pipeline([("prep", preparing()), ("model", FOREST)]), {"model__max_depth": [2, 4]}, cv=2
        ),
        Pipeline(
            [("prep", preparing()), ("s", RandomizedSearchCV(FOREST, {"max_depth": [2, 4]}, n_iter=2, cv=2))]
        ),
    ],
)
def test_pipelines(seen: Seen, model: Any) -> None:
    frame = frame_of(0)
    model.fit(frame, target_of(frame))
    graph = registry.read(record_of(model))
    assert seen.inputs is not None and seen.table is not None
    assert seen.inputs.feature_names == tuple(frame.columns)
    assert seen.inputs.by_name
    np.testing.assert_array_equal(predict(graph, seen.table, frame_of(2)), model.predict(frame_of(2)))


def test_steps_are_told_by_name_and_class(seen: Seen) -> None:
    frame = frame_of(0)
    model = Pipeline([("prep", preparing()), ("m", FOREST)]).fit(frame, target_of(frame))
    for one in (model, FrozenEstimator(model)):
        graph = registry.read(record_of(one))
        assert graph.steps == (("prep", "ColumnTransformer"), ("m", "RandomForestClassifier"))
        assert graph.model == "RandomForestClassifier"


def test_names_are_in_order_where_the_library_wants_them_so(seen: Seen) -> None:
    frame = frame_of(0)[["age", "score"]]
    y = (frame["age"] > 50).to_numpy()
    registry.read(record_of(make_pipeline(StandardScaler(), FOREST).fit(frame, y)))
    assert seen.inputs == InputSpec(2, ("age", "score"))
    both = FeatureUnion(
        [("c", make_column_transformer((StandardScaler(), ["age"]))), ("s", StandardScaler())]
    )
    registry.read(record_of(make_pipeline(both, FOREST).fit(frame, y)))
    assert seen.inputs == InputSpec(2, ("age", "score"))
    registry.read(record_of(make_pipeline(StandardScaler(), FOREST).fit(frame.to_numpy(), y)))
    assert seen.inputs == InputSpec(2)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(3, random_state=0),
        xgboost.XGBClassifier(n_estimators=3),
        lightgbm.LGBMClassifier(n_estimators=3, verbose=-1),
    ],
)
def test_a_pipeline_that_does_nothing_to_rows_is_the_bare_model(model: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    y = (rows[:, 0] > 0).astype(int)
    chain = Pipeline([("none", "passthrough"), ("m", model)]).fit(rows, y)
    graph, bare = registry.read(record_of(chain)), registry.read(record_of(chain[-1]))
    assert graph.input == bare.input
    assert not graph.feeds
    np.testing.assert_array_equal(predict(graph, None, rows), predict(bare, None, rows))


def test_a_chain_with_a_boosted_model(seen: Seen) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    y = (rows[:, 0] > 0).astype(int)
    for model in (xgboost.XGBClassifier(n_estimators=3), lightgbm.LGBMClassifier(n_estimators=3, verbose=-1)):
        chain = make_pipeline(StandardScaler(), model).fit(rows, y)
        graph = registry.read(record_of(chain))
        np.testing.assert_array_equal(predict(graph, seen.table, rows), chain.predict(rows))


def squares(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    return x, np.exp(x[:, 0]) + 0.5


@pytest.mark.parametrize(
    "how",
    [
        {"func": np.log1p, "inverse_func": np.expm1},
        {"func": np.log, "inverse_func": np.exp},
        {"func": np.sqrt, "inverse_func": np.square},
        {"transformer": StandardScaler()},
        {"transformer": StandardScaler(with_mean=False)},
        {"transformer": StandardScaler(with_std=False)},
        {"transformer": MinMaxScaler((1, 3))},
        {"transformer": MaxAbsScaler()},
        {"transformer": RobustScaler()},
        {"transformer": FunctionTransformer(np.log1p, inverse_func=np.expm1)},
        {},
    ],
)
@pytest.mark.parametrize("shape", ["one", "column", "two"])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_transformed_targets(how: dict[str, Any], shape: str) -> None:
    x, y = squares()
    y = {"one": y, "column": y[:, None], "two": np.column_stack([y, y + 1])}[shape]
    forest = RandomForestRegressor(5, random_state=0)
    model = TransformedTargetRegressor(forest, check_inverse=False, **how).fit(x, y)
    graph = registry.read(record_of(model))
    expected = model.predict(x)
    for rows, wanted in ((x, expected), (x[:1], expected[:1])):
        found = predict(graph, None, rows)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert codec.write(codec.read(OutputSpec, codec.write(graph.output))) == codec.write(graph.output)


def test_a_transformed_target_of_a_pipeline(seen: Seen) -> None:
    x, y = squares()
    inner = make_pipeline(StandardScaler(), RandomForestRegressor(5, random_state=0))
    model = TransformedTargetRegressor(inner, func=np.log1p, inverse_func=np.expm1).fit(x, y)
    outer = make_pipeline(MinMaxScaler(), model).fit(x, y)
    graph = registry.read(record_of(outer))
    np.testing.assert_allclose(predict(graph, seen.table, x), outer.predict(x), rtol=1e-12)
    assert graph.output.outputs == ()


def test_last_steps_that_transform() -> None:
    frame = frame_of(0)
    chain = Pipeline([("prep", preparing()), ("scale", StandardScaler())]).fit(frame)
    graph = registry.read(record_of(chain))
    assert isinstance(graph.anchor, Network)
    assert isinstance(graph.host, Columns)
    assert graph.output.kind == "transformer"
    assert graph.host.table.names == tuple(chain.get_feature_names_out())
    np.testing.assert_array_equal(
        evaluate(graph.host.table, raw_of(frame_of(1))), chain.transform(frame_of(1))
    )
    rows = np.random.default_rng(0).normal(size=(20, 3))
    scaler = registry.read(record_of(StandardScaler().fit(rows)))
    assert isinstance(scaler.anchor, Network)
    np.testing.assert_array_equal(scaler.anchor.reference(rows), StandardScaler().fit_transform(rows))
    dense = InputSpec(3, sparse_refused="the StandardScaler cannot centre sparse rows in scikit-learn")
    assert (scaler.model, scaler.steps, scaler.input) == ("StandardScaler", (), dense)
    assert registry.read(record_of(LabelEncoder().fit(["a", "b"]))).input.n_features == 1


def test_files_and_objects_in_memory(tmp_path: Path) -> None:
    frame = frame_of(0)
    chain = Pipeline([("prep", preparing()), ("scale", StandardScaler())]).fit(frame)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"{protocol}.pkl"
        path.write_bytes(pickle.dumps(chain, protocol))
        for model in (chain, path):
            graph = load_model(model)
            assert isinstance(graph.host, Columns)
            found = evaluate(graph.host.table, raw_of(frame_of(1)))
            np.testing.assert_array_equal(found, chain.transform(frame_of(1)))


def own(x: np.ndarray) -> np.ndarray:
    return x + 1


def refused() -> dict[str, tuple[Any, str]]:
    x, y = squares()
    labels = y > 1.5
    forest = RandomForestRegressor(2, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FOREST), {"standardscaler__copy": [True]}, refit=False, cv=2
    )
    return {
        "predictor": (
            Pipeline([("s", StandardScaler()), ("near", DBSCAN())]).fit(x, labels),
            r"step 'near' is a DBSCAN \(sklearn\), which is not supported: it predicts .*model\[:1\]",
        ),
        "search": (
            search.fit(x, labels),
            "GridSearchCV was made with refit=False, so it has no best_estimator_",
        ),
        "function": (
            Pipeline([("own", FunctionTransformer(own)), ("m", FOREST)]).fit(x, labels),
            r"step 'own' \(FunctionTransformer\) has the function tests.*\.own, which is not supported",
        ),
        "not fitted": (Pipeline([("s", StandardScaler()), ("m", FOREST)]), "is not fitted"),
        "target": (
            TransformedTargetRegressor(forest, transformer=PCA(), check_inverse=False).fit(x, y),
            "the TransformedTargetRegressor transforms its target by a PCA, which is not",
        ),
        "target's function": (
            TransformedTargetRegressor(forest, func=own, inverse_func=own, check_inverse=False).fit(x, y),
            r"has the function tests.*\.own",
        ),
        "nothing": (
            ColumnTransformer([("d", "drop", [0, 1, 2])]).fit(x),
            "the ColumnTransformer keeps no column",
        ),
    }


@pytest.mark.parametrize("name", refused())
def test_refusals_name_the_step(name: str) -> None:
    model, said = refused()[name]
    with pytest.raises(UnsupportedModel, match=said):
        registry.read(record_of(model))


def test_lambdas_in_memory_are_refused_by_name() -> None:
    x, y = squares()
    chain = Pipeline([("own", FunctionTransformer(lambda rows: np.sort(rows))), ("m", FOREST)])
    chain.fit(x, y > 1.5)
    with pytest.raises(UnsupportedModel, match=r"step 'own' .*<lambda>, which is not supported"):
        load_model(chain)


@pytest.mark.parametrize("damage", ["width", "itself", "steps", "columns"])
def test_damage(damage: str) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    record = record_of(Pipeline([("a", MinMaxScaler()), ("b", StandardScaler())]).fit(rows))
    steps: Sequence[Any] = record.attributes["steps"]
    if damage == "width":
        steps[1][1].attributes["n_features_in_"] = 4
    elif damage == "itself":
        record.attributes["steps"] = [("a", record)]
    elif damage == "steps":
        record.attributes["steps"] = [("a",)]
    else:
        steps[0][1].attributes["n_features_in_"] = 1 << 23
    with pytest.raises(ModelError):
        registry.read(record)
