"""Saved models of Spark ML, against Spark itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hbtvm
from hbtvm.comparison.spark import calls, load
from hbtvm.errors import InputError
from hbtvm.frontends import load_model
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.registry import ESTIMATORS
from hbtvm.frontends.spark import pipeline
from hbtvm.frontends.spark.saved import Folders
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.by_reference import leaf_numbers
from tests.frontends.spark.oracle import (
    answer,
    applied,
    array_of,
    edge_rows,
    frame_of,
    matrix_of,
    tested_rows,
    training_rows,
)

pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java; on Debian: apt-get install default-jre-headless", allow_module_level=True)

from pyspark.ml import Pipeline, PipelineModel, classification, clustering, feature, regression, tuning
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.default.parallelism", "1")
    # Plans are small, and compiling their Java takes longer than running them.
    for name, value in {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


train = pytest.fixture(scope="module")(training_rows)
rows = pytest.fixture(scope="module")(tested_rows)


def steps() -> list[Any]:
    """Return preparing stages of all kinds; they need a session."""
    return [
        feature.StringIndexer(inputCol="c", outputCol="c1", handleInvalid="keep"),
        feature.StringIndexer(inputCols=["i", "c"], outputCols=["i1", "c2"], handleInvalid="keep"),
        feature.OneHotEncoder(
            inputCols=["c1", "i1", "i"], outputCols=["co", "io", "iio"], handleInvalid="keep"
        ),
        feature.OneHotEncoder(inputCol="c2", outputCol="c3", dropLast=False),
        feature.Imputer(inputCols=["a", "b"], outputCols=["a1", "b1"], strategy="median"),
        feature.Bucketizer(inputCol="a", outputCol="a2", splits=[-INF, 0.5, INF], handleInvalid="keep"),
        feature.Bucketizer(
            inputCols=["a1", "b1"],
            outputCols=["a3", "b3"],
            splitsArray=[[-INF, -0.5, 0.0, 0.5, INF], [-INF, 1.0, INF]],
        ),
        feature.QuantileDiscretizer(inputCol="b1", outputCol="b4", numBuckets=3),
        feature.Binarizer(inputCol="a", outputCol="a4", threshold=0.5),
        feature.VectorAssembler(
            inputCols=["a1", "b1", "co", "a2", "b4", "io", "c3", "iio", "i", "a3", "a4"],
            outputCol="v",
            handleInvalid="keep",
        ),
        feature.StandardScaler(inputCol="v", outputCol="v1", withMean=True),
        feature.StandardScaler(inputCol="v", outputCol="v2"),
        feature.MinMaxScaler(inputCol="v", outputCol="v3", min=0.0, max=2.0),
        feature.MaxAbsScaler(inputCol="v1", outputCol="v4"),
        feature.RobustScaler(inputCol="v4", outputCol="v5", withCentering=True),
        *(feature.Normalizer(inputCol="v5", outputCol=f"n{at}", p=p) for at, p in enumerate((2.0, 3.0))),
        feature.PCA(inputCol="v5", outputCol="pca", k=3),
        feature.VectorSlicer(inputCol="v5", outputCol="sliced", indices=[3, 1]),
        feature.UnivariateFeatureSelector(featuresCol="v5", labelCol="three", outputCol="chosen1")
        .setFeatureType("continuous")
        .setLabelType("categorical")
        .setSelectionThreshold(2),
        feature.Binarizer(inputCol="v5", outputCol="bits", threshold=0.1),
        feature.ElementwiseProduct(
            inputCol="sliced", outputCol="times", scalingVec=Vectors.sparse(2, [1], [-0.3])
        ),
        feature.VectorSizeHint(inputCol="sliced", size=2),
        feature.PolynomialExpansion(inputCol="pca", outputCol="products", degree=4),
        feature.DCT(inputCol="pca", outputCol="cosines"),
        feature.DCT(inputCol="pca", outputCol="sums", inverse=True),
        feature.VectorIndexer(inputCol="v", outputCol="positions", maxCategories=5, handleInvalid="keep"),
    ]


@dataclass
class Prepared:
    """Fitted `steps`, the folder of their pipeline, and what Spark makes of rows."""

    models: list[Any]
    record: Record
    training: DataFrame
    answers: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def prepared(
    session: SparkSession, train: pd.DataFrame, rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    data, tested, models = frame_of(session, train), frame_of(session, rows), []
    for step in steps():
        models.append(step.fit(data) if hasattr(step, "fit") else step)
        data, tested = (applied(models[-1], frame) for frame in (data, tested))
    folder = tmp_path_factory.mktemp("prepared") / "model"
    PipelineModel(models).write().save(str(folder))
    results = tested.collect()
    names = [name for name in tested.columns if name != "c"]
    answers = {name: np.array([array_of(row[name]) for row in results]) for name in names}
    return Prepared(models, Folders().read(folder), data, answers)


def test_preparing_stages(prepared: Prepared, rows: pd.DataFrame) -> None:
    """The columns that each stage writes, to the bit but for products."""
    stages = prepared.record.attributes["stages"]
    compared = set()
    for at, stage in enumerate(stages):
        several = stage.get("inputCols", None) is not None and stage.kind != "VectorAssembler"
        for name in stage.get("outputCols") if several else [stage.get("outputCol", "sliced")]:
            # An assembler returns what it reads.
            last = Record(next(stage for stage in stages if stage.kind == "VectorAssembler").cls)
            last.state = {"inputCols": [name], "outputCol": "result", "handleInvalid": "keep"}
            record = Record(prepared.record.cls)
            record.state = {"stages": [*stages[: at + 1], last]}
            found = answer(pipeline.read(record, ESTIMATORS), rows)
            if stage.kind in ("PCAModel", "PolynomialExpansion", "DCT"):
                np.testing.assert_allclose(found, prepared.answers[name], rtol=1e-12, atol=1e-15)
            else:
                np.testing.assert_array_equal(found, prepared.answers[name], name)
            compared.add(stage.kind)
    assert len(compared) == 19


_TREES = [
    (classification.DecisionTreeClassifier, {"featuresCol": "v", "labelCol": "three"}),
    (
        classification.DecisionTreeClassifier,
        {"featuresCol": "v", "labelCol": "three", "maxDepth": 2, "thresholds": [0.2, 0.7, 0.0]},
    ),
    (
        classification.RandomForestClassifier,
        {"featuresCol": "v", "labelCol": "three", "numTrees": 4, "seed": 1},
    ),
    (classification.GBTClassifier, {"featuresCol": "v", "labelCol": "two", "maxIter": 3, "seed": 1}),
    (regression.RandomForestRegressor, {"featuresCol": "v", "labelCol": "y", "numTrees": 4, "seed": 1}),
    (regression.GBTRegressor, {"featuresCol": "v", "labelCol": "y", "maxIter": 3, "seed": 1}),
]
_LOGISTIC = {"featuresCol": "v", "labelCol": "two", "maxIter": 5}
_SPARSE = {"elasticNetParam": 1.0, "regParam": 0.05, "labelCol": "three", "thresholds": [0.1, 0.6, 0.3]}
_GENERAL = {"featuresCol": "sliced", "labelCol": "y", "maxIter": 2}
_FAMILIES = [
    ("binomial", "probit", "two"),
    ("poisson", "sqrt", "y"),
]
_LINEAR = [
    (classification.LogisticRegression, {**_LOGISTIC, "threshold": 0.4}),
    (classification.LogisticRegression, {**_LOGISTIC, **_SPARSE}),
    (classification.LinearSVC, {"featuresCol": "v", "labelCol": "two", "maxIter": 3, "threshold": 0.01}),
    (regression.LinearRegression, {"featuresCol": "v", "labelCol": "y"}),
    *(
        (
            regression.GeneralizedLinearRegression,
            {**_GENERAL, "labelCol": label, "family": family, "link": link},
        )
        for family, link, label in _FAMILIES
    ),
    *(
        (regression.GeneralizedLinearRegression, {**_GENERAL, "family": "tweedie", "variancePower": variance})
        for variance in (1.3,)
    ),
]
_BAYES = {"featuresCol": "v3", "labelCol": "three"}
_CLUSTERS = {"featuresCol": "v5", "k": 3, "seed": 1, "maxIter": 3}
_MACHINE = {"featuresCol": "pca", "factorSize": 2, "maxIter": 3, "seed": 1}
_OTHERS = [
    (classification.NaiveBayes, {**_BAYES, "modelType": "complement"}),
    (classification.NaiveBayes, {**_BAYES, "featuresCol": "bits", "modelType": "bernoulli"}),
    (classification.NaiveBayes, {"featuresCol": "sliced", "labelCol": "two", "modelType": "gaussian"}),
    (clustering.KMeans, {**_CLUSTERS, "distanceMeasure": "cosine"}),
    (clustering.BisectingKMeans, {**_CLUSTERS, "k": 5}),
    (clustering.BisectingKMeans, {**_CLUSTERS, "distanceMeasure": "cosine"}),
    (clustering.GaussianMixture, {"featuresCol": "pca", "k": 3, "seed": 1}),
    (regression.AFTSurvivalRegression, {"featuresCol": "sliced", "labelCol": "y", "censorCol": "two"}),
    (regression.FMRegressor, {**_MACHINE, "labelCol": "y"}),
    (classification.FMClassifier, {**_MACHINE, "labelCol": "two"}),
    (
        classification.MultilayerPerceptronClassifier,
        {"featuresCol": "pca", "labelCol": "three", "layers": [3, 5, 4, 3], "seed": 1, "maxIter": 5},
    ),
]


@pytest.mark.parametrize(("kind", "parameters"), [*_TREES, *_LINEAR, *_OTHERS])
def test_models_by_themselves(
    kind: Any, parameters: dict[str, Any], prepared: Prepared, session: SparkSession, tmp_path: Path
) -> None:
    estimator = kind(**{name: value for name, value in parameters.items() if name != "thresholds"})
    if "thresholds" in parameters:
        estimator = estimator.setThresholds(parameters["thresholds"])
    model = estimator.fit(prepared.training)
    model.write().save(str(tmp_path / "model"))
    graph = pipeline.read(Folders().read(tmp_path / "model"), ESTIMATORS)
    column = model.getFeaturesCol()
    X = prepared.answers[column]
    if isinstance(graph.anchor, TreeEnsemble):
        X = edge_rows(graph, X)
        model.setLeafCol("leaf")
    X = np.abs(X) if column == "v3" else X
    vectors = session.createDataFrame([(Vectors.dense(row),) for row in X.tolist()], [column])
    results = model.transform(vectors).collect()
    if isinstance(graph.anchor, TreeEnsemble):
        leaves = leaf_numbers(graph.anchor, matrix_of(graph, X))
        np.testing.assert_array_equal(leaves, np.array([array_of(row["leaf"]) for row in results]))
        np.testing.assert_array_equal(graph.anchor.cover, covers(model))
    for output, name in ((None, "prediction"), ("proba", "probability"), ("decision", "rawPrediction")):
        if name in results[0].asDict():
            expected = np.array([array_of(row[name]) for row in results])
            found = np.asarray(answer(graph, X, output), np.float64).reshape(expected.shape)
            exact = output is None and hasattr(model, "numClasses")
            if exact or (output is None and isinstance(graph.anchor, TreeEnsemble)):
                np.testing.assert_array_equal(found, expected)
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-300)


def covers(model: Any) -> list[float]:
    """Return the weights of the rows at all nodes of Spark's trees, parents and left children first."""
    found, trees = [], getattr(model, "trees", [model])
    nodes = [tree._java_obj.rootNode() for tree in reversed(trees)]
    while nodes:
        node = nodes.pop()
        found.append(node.impurityStats().count())
        if node.subtreeDepth():
            nodes += [node.rightChild(), node.leftChild()]
    return found


@dataclass
class Whole:
    """A pipeline from texts and numbers to texts, in a folder, and what Spark makes of rows."""

    model: Any
    folder: Path
    texts: list[str]
    probabilities: np.ndarray


@pytest.fixture(scope="module")
def whole(
    session: SparkSession, prepared: Prepared, rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> Whole:
    forest = {"featuresCol": "all", "labelCol": "label", "numTrees": 3, "maxDepth": 4, "seed": 2}
    more = [
        feature.StringIndexer(inputCol="three", outputCol="label"),
        clustering.KMeans(featuresCol="v2", predictionCol="near", k=3, seed=1, maxIter=2),
        feature.VectorAssembler(inputCols=["v2", "near"], outputCol="all"),
        classification.RandomForestClassifier(**forest),
        feature.IndexToString(inputCol="prediction", outputCol="text", labels=["low", "middle", "high"]),
    ]
    data, models = prepared.training, prepared.models[:12]
    for step in more:
        models.append(step.fit(data) if hasattr(step, "fit") else step)
        data = applied(models[-1], data)
    model = PipelineModel(models)
    folder = tmp_path_factory.mktemp("whole") / "spark_model"
    model.write().save(str(folder))
    tested = frame_of(session, rows)
    for stage in models:
        tested = applied(stage, tested)
    results = tested.collect()
    probabilities = np.array([row["probability"].toArray() for row in results])
    return Whole(model, folder, [row["text"] for row in results], probabilities)


def test_commands_on_a_pipeline(whole: Whole, rows: pd.DataFrame, tmp_path: Path) -> None:
    frame = rows[["i", "c", "b", "a"]]
    frame.to_parquet(tmp_path / "rows.parquet")

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "hbtvm", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250)
        assert not done.returncode, done.stderr
        return done.stdout

    run("compile", whole.folder, "--dtype", "float64", "--batch-size", 100, "-o", "m.tar")
    run("predict", "m.tar", "rows.parquet", "-o", "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").iloc[:, 0].tolist() == whole.texts
    model = hbtvm.load(tmp_path / "m.tar")
    np.testing.assert_array_equal(model.predict_proba(frame), whole.probabilities)
    assert {*calls(whole.model)} == {"predict", "predict_proba", "decision_function"}


def test_rows_that_spark_refuses(session: SparkSession, train: pd.DataFrame, tmp_path: Path) -> None:
    stages = [
        feature.StringIndexer(inputCol="c", outputCol="c1"),
        feature.Bucketizer(inputCol="b", outputCol="b1", splits=[-10.0, 0.0, 10.0]),
        feature.VectorAssembler(inputCols=["a", "b1", "c1"], outputCol="v"),
        regression.LinearRegression(featuresCol="v", labelCol="y"),
    ]
    model = Pipeline(stages=stages).fit(frame_of(session, train))
    model.write().save(str(tmp_path / "model"))
    compiled = hbtvm.compile(tmp_path / "model", batch_sizes=100, dtype="float64")
    good = train.head(5)
    expected = [row["prediction"] for row in model.transform(frame_of(session, good)).collect()]
    np.testing.assert_allclose(compiled.predict(good), expected, rtol=1e-12)
    # Live models are saved to be read, and `hbtvm check` loads folders.
    np.testing.assert_allclose(answer(load_model(model), good), expected, rtol=1e-12)
    np.testing.assert_array_equal(calls(load(str(tmp_path / "model")))["predict"](good), expected)
    for name, value, told in (("a", NAN, "'a'"), ("b", 11.0, "'b'"), ("c", "unknown", "'c'")):
        bad = good.copy()
        bad.loc[2, name] = value
        with pytest.raises(Exception, match=r"FAILED_EXECUTE_UDF|StringIndexer|NaN"):
            model.transform(frame_of(session, bad)).collect()
        with pytest.raises(InputError, match=told):
            compiled.predict(bad)


def test_models_of_other_models(session: SparkSession, prepared: Prepared, tmp_path: Path) -> None:
    """A classifier for each class, by trees that split on categories; the best model of a search."""
    forest = classification.RandomForestClassifier(numTrees=2, maxDepth=3, seed=1)
    several = classification.OneVsRest(featuresCol="positions", labelCol="three", classifier=forest)
    several = several.fit(prepared.training)
    (tmp_path / "search").mkdir()
    for name in ("several", "search/bestModel"):
        several.write().save(str(tmp_path / name))
    X = prepared.answers["positions"]
    vectors = session.createDataFrame([(Vectors.dense(row),) for row in X.tolist()], ["positions"])
    results = tuning.TrainValidationSplitModel(several).transform(vectors).collect()
    for name in ("several", "search"):
        graph = pipeline.read(Folders().read(tmp_path / name), ESTIMATORS)
        assert answer(graph, X).tolist() == [row["prediction"] for row in results]
        raw = [row["rawPrediction"].toArray() for row in results]
        np.testing.assert_allclose(answer(graph, X, "decision"), raw, rtol=1e-12)


def test_isotonic_regression(session: SparkSession, train: pd.DataFrame, tmp_path: Path) -> None:
    stages = [
        feature.VectorAssembler(inputCols=["b", "a"], outputCol="v"),
        regression.IsotonicRegression(featuresCol="v", featureIndex=1, labelCol="y"),
    ]
    frame = frame_of(session, train)
    assembled = Pipeline(stages=stages).fit(frame)
    alone = regression.IsotonicRegression(featuresCol="a", labelCol="y", isotonic=False).fit(frame)
    for at, model in enumerate((assembled, alone)):
        model.write().save(str(tmp_path / str(at)))
        graph = load_model(tmp_path / str(at))
        expected = [row["prediction"] for row in model.transform(frame).collect()]
        np.testing.assert_allclose(answer(graph, train), expected, rtol=1e-12)


def test_formulas(session: SparkSession, train: pd.DataFrame, tmp_path: Path) -> None:
    stages = [
        feature.RFormula(formula="y ~ a + c", featuresCol="v", labelCol="l"),
        regression.LinearRegression(featuresCol="v", labelCol="l"),
    ]
    frame = frame_of(session, train)
    model = Pipeline(stages=stages).fit(frame)
    model.write().save(str(tmp_path / "model"))
    expected = [row["prediction"] for row in model.transform(frame).collect()]
    np.testing.assert_allclose(answer(load_model(tmp_path / "model"), train), expected, rtol=1e-12)


def test_numbers_that_a_vector_indexer_refuses(session: SparkSession, prepared: Prepared) -> None:
    indexer = feature.VectorIndexer(inputCol="sliced", outputCol="o", maxCategories=40)
    graph = load_model(indexer.fit(prepared.training))
    with pytest.raises(InputError, match="was not in the training data"):
        answer(graph, prepared.answers["sliced"][:3] + 100.0)
