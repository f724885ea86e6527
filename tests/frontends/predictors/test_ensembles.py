"""Ensembles over models: what they compute, by references, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.sparse import csr_matrix
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PowerTransformer, QuantileTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

import hbtvm
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.networks.network import Network
from hbtvm.graph.outputs.output import columns
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.staged import check, scores_of

pytestmark = pytest.mark.filterwarnings("ignore")

TWO = np.stack([NUMBERS, NUMBERS**2 / 100], axis=1)


def forest(n: int = 4, **options: Any) -> Any:
    return RandomForestClassifier(n, random_state=0, max_depth=5, **options)


VOTING = {
    "forest and linear": (
        [
            ("a", LogisticRegression()),
            ("b", forest()),
            ("c", "drop"),
            ("d", DecisionTreeClassifier(max_depth=3)),
        ],
        [1, 2, 7, 3],
    ),
    "boosters": (
        [("a", XGBClassifier(n_estimators=3)), ("b", LGBMClassifier(n_estimators=3, verbose=-1))],
        None,
    ),
    "pipelines": (
        [
            ("a", make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis(reg_param=0.1))),
            ("b", make_pipeline(PCA(2), forest())),
            ("c", GridSearchCV(KNeighborsClassifier(weights="distance"), {"n_neighbors": [3]}, cv=2)),
            ("d", RFE(LogisticRegression(), n_features_to_select=2)),
        ],
        None,
    ),
}


@pytest.mark.parametrize("voting", ["soft", "hard"])
@pytest.mark.parametrize("name", VOTING)
@pytest.mark.parametrize("target", ["strings", "binary"])
def test_voting_of_classifiers(name: str, voting: str, target: str) -> None:
    estimators, weights = VOTING[name]
    model = VotingClassifier(estimators, voting=voting, weights=weights).fit(X, TARGETS[target])
    check(model, ROWS, 1e-6 if name == "boosters" else 1e-9)


def test_equal_votes_are_for_the_first_label() -> None:
    y = TARGETS["several"]
    models = [(str(i), DecisionTreeClassifier(max_depth=2, max_features=1, random_state=i)) for i in range(4)]
    model = VotingClassifier(models).fit(X, y)
    votes = np.array([one.predict(ROWS) for one in model.estimators_])
    counts = np.array([(votes == label).sum(axis=0) for label in range(3)])
    assert ((counts == counts.max(axis=0)).sum(axis=0) > 1).any()
    check(model, ROWS)


def test_voting_of_regressors() -> None:
    estimators = [
        ("a", Ridge()),
        ("b", RandomForestRegressor(4, random_state=0)),
        ("c", KNeighborsRegressor(3)),
        ("d", TransformedTargetRegressor(Ridge(), transformer=MinMaxScaler())),
        ("e", make_pipeline(StandardScaler(), LGBMRegressor(n_estimators=3, verbose=-1))),
    ]
    check(VotingRegressor(estimators, weights=[1, 2, 3, 1, 1]).fit(X, NUMBERS), ROWS)
    check(VotingRegressor([("a", Ridge()), ("b", XGBRegressor(n_estimators=3))]).fit(X, NUMBERS), ROWS, 1e-5)


def test_means_of_forests_are_one_forest() -> None:
    forests = [("a", RandomForestRegressor(4, random_state=0)), ("b", ExtraTreesRegressor(4, random_state=0))]
    graph = check(VotingRegressor(forests).fit(X, NUMBERS), ROWS)
    assert isinstance(graph.stages[0].anchor if graph.stages else graph.anchor, TreeEnsemble)
    for model in (BaggingRegressor(n_estimators=4), BaggingRegressor(n_estimators=4, max_features=0.5)):
        graph = check(model.fit(X, TWO), ROWS)
        assert isinstance(graph.anchor, TreeEnsemble) and graph.anchor.n_trees == 4 and not graph.stages


@pytest.mark.parametrize("target", ["strings", "binary"])
@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize(
    "final",
    [
        None,
        DecisionTreeClassifier(max_depth=4),
        make_pipeline(StandardScaler(), SGDClassifier(random_state=0)),
    ],
)
def test_stacking_of_classifiers(target: str, passthrough: bool, final: Any) -> None:
    estimators = [
        ("a", make_pipeline(StandardScaler(), LogisticRegression())),
        ("b", forest()),
        ("c", LinearSVC(random_state=0)),
        ("d", "drop"),
    ]
    model = StackingClassifier(estimators, final, passthrough=passthrough, cv=2)
    graph = check(model.fit(X, TARGETS[target]), ROWS)
    assert sum(isinstance(stage.anchor, TreeEnsemble) for stage in graph.stages) == 1


def test_stacking_of_predictions() -> None:
    estimators = [("a", LogisticRegression()), ("c", make_pipeline(PCA(2), forest()))]
    model = StackingClassifier(estimators, DecisionTreeClassifier(), stack_method="predict", cv=2)
    check(model.fit(X, TARGETS["strings"]), ROWS)
    fitted = [("a", LogisticRegression().fit(X, TARGETS["several"]))]
    model = StackingClassifier(fitted, stack_method="predict", cv="prefit")
    check(model.fit(X, TARGETS["several"]), ROWS)


def test_stacking_of_regressors() -> None:
    estimators = [
        ("a", Ridge()),
        ("b", RandomForestRegressor(4, random_state=0)),
        ("c", make_pipeline(PCA(3), LinearRegression())),
    ]
    for final in (None, GradientBoostingRegressor(n_estimators=5)):
        check(StackingRegressor(estimators, final, cv=2).fit(X, NUMBERS), ROWS)


@pytest.mark.parametrize(
    "inner",
    [DecisionTreeClassifier(max_depth=3), LogisticRegression(), RidgeClassifier(), LinearSVC(random_state=0)],
)
@pytest.mark.parametrize("options", [{}, {"max_features": 0.5, "bootstrap_features": True, "max_samples": 7}])
@pytest.mark.parametrize("target", ["strings", "binary"])
def test_bagging_of_classifiers(inner: Any, options: dict[str, Any], target: str) -> None:
    # Of so few samples, some estimators see two of three classes. Then decision functions don't add up.
    if options and target == "strings" and not isinstance(inner, DecisionTreeClassifier):
        options = {**options, "max_samples": 40}
    model = BaggingClassifier(inner, n_estimators=4, random_state=3, **options).fit(X, TARGETS[target])
    graph = check(model, ROWS)
    if isinstance(inner, DecisionTreeClassifier):
        assert isinstance(graph.anchor, TreeEnsemble) and graph.anchor.n_outputs == len(model.classes_)


def test_bagging_of_linear_regressors_is_one_product() -> None:
    graph = check(BaggingRegressor(Ridge(), n_estimators=5, random_state=0).fit(X, NUMBERS), ROWS)
    assert isinstance(graph.anchor, Network)
    assert sum(node.kind in ("contract", "linear_sum") for node in graph.anchor.nodes) == 1


@pytest.mark.parametrize(
    "inner", [None, DecisionTreeClassifier(max_depth=2), LogisticRegression(), forest(3)]
)
@pytest.mark.parametrize("target", ["strings", "binary"])
def test_adaptive_boosting(inner: Any, target: str) -> None:
    model = AdaBoostClassifier(inner, n_estimators=5, random_state=0).fit(X, TARGETS[target])
    graph = check(model, ROWS)
    if inner is None or isinstance(inner, DecisionTreeClassifier):
        assert isinstance(graph.anchor, TreeEnsemble) and not graph.stages


@pytest.mark.parametrize("inner", [None, Ridge()])
def test_weighted_medians(inner: Any) -> None:
    model = AdaBoostRegressor(inner, n_estimators=7, random_state=0).fit(X, NUMBERS)
    check(model, ROWS)
    model.estimator_weights_ = np.ones(len(model.estimators_))
    model.estimators_ = model.estimators_[:4]
    check(model, ROWS)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
@pytest.mark.parametrize(
    "inner", [LinearSVC(random_state=0), forest(), make_pipeline(PCA(3), LogisticRegression())]
)
@pytest.mark.parametrize("target", ["strings", "two strings"])
def test_calibration(method: str, inner: Any, target: str) -> None:
    model = CalibratedClassifierCV(inner, method=method, cv=2).fit(X, TARGETS[target])
    check(model, ROWS)


def test_calibration_of_one_classifier() -> None:
    y = TARGETS["strings"]
    check(CalibratedClassifierCV(LogisticRegression(), cv=2, ensemble=False).fit(X, y), ROWS)
    check(CalibratedClassifierCV(FrozenEstimator(LinearSVC(random_state=0).fit(X, y))).fit(X, y), ROWS)


def test_ensembles_within_ensembles() -> None:
    stacked = StackingClassifier([("a", LogisticRegression()), ("b", forest(3))], cv=2)
    boosted = AdaBoostClassifier(n_estimators=3)
    model = VotingClassifier([("s", stacked), ("b", boosted)], voting="soft")
    graph = check(make_pipeline(StandardScaler(), model).fit(X, TARGETS["strings"]), ROWS)
    # Both forests read the same rows.
    assert [type(stage.anchor) for stage in graph.stages] == [TreeEnsemble]


def test_an_ensemble_behind_a_scaler_of_the_target() -> None:
    voting = VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3))])
    model = TransformedTargetRegressor(voting, transformer=StandardScaler())
    check(model.fit(X, NUMBERS), ROWS)
    check(VotingRegressor([("a", model), ("b", Ridge())]).fit(X, NUMBERS), ROWS)


CURVES: dict[str, Any] = {
    "uniform": QuantileTransformer(n_quantiles=20),
    "normal": QuantileTransformer(n_quantiles=20, output_distribution="normal"),
    "yeo-johnson": PowerTransformer(),
    "yeo-johnson alone": PowerTransformer(standardize=False),
    "box-cox": PowerTransformer("box-cox"),
    "pipeline": make_pipeline(StandardScaler(), "passthrough", PowerTransformer(standardize=False)),
}


@pytest.mark.parametrize("shape", ["one", "column", "two"])
@pytest.mark.parametrize("name", CURVES)
@pytest.mark.filterwarnings("ignore:Some values in column", "ignore:A column-vector y")
def test_curves_of_targets(name: str, shape: str) -> None:
    # Rounded, so that quantiles are tied; the second column has another exponent.
    y = np.round(NUMBERS - NUMBERS.min()) + 1
    y = {"one": y, "column": y[:, None], "two": np.stack([y, y**2], axis=1)}[shape]
    # Lines lead far beyond the numbers of training, where the library's powers are NaN.
    for regressor in (LinearRegression(), DecisionTreeRegressor(max_depth=4)):
        model = TransformedTargetRegressor(regressor, transformer=CURVES[name], check_inverse=False)
        model.fit(X, y)
        check(model, np.concatenate([ROWS, 30 * ROWS[:9]]), 1e-7)


def test_exponents_with_another_formula() -> None:
    for method, exponents in (("yeo-johnson", (0.0, 1.0, 2.0, -0.5)), ("box-cox", (0.0, 1.0, -2.0))):
        model = TransformedTargetRegressor(Ridge(), transformer=PowerTransformer(method)).fit(
            X, np.exp(NUMBERS / 9)
        )
        for exponent in exponents:
            model.transformer_.lambdas_ = np.array([exponent])
            check(model, ROWS, 1e-7)


def test_several_targets_are_not_stacked() -> None:
    y = np.stack([TARGETS["binary"], TARGETS["two strings"] == "yes"], axis=1).astype(int)
    model = StackingClassifier([("a", forest())], forest(), cv=2).fit(X, y)
    with pytest.raises(UnsupportedModel, match="StackingClassifier was trained on several targets"):
        from_object(model)


def test_an_unsupported_member_is_named() -> None:
    own = type("OwnRidge", (Ridge,), {"__module__": "own"})
    model = VotingRegressor([("a", own()), ("b", Ridge())]).fit(X, NUMBERS)
    with pytest.raises(UnsupportedModel, match=r"step '0' is an OwnRidge"):
        from_object(model)


MEMBERS = {
    "probabilities": [("a", LogisticRegression()), ("b", forest(2)), ("c", "drop")],
    "decisions": [("a", RidgeClassifier()), ("none", "drop"), ("b", LinearSVC())],
    "one": [("only", DecisionTreeClassifier(max_depth=3))],
}
REGRESSORS = {
    "float64": [("a", Ridge()), ("b", "drop"), ("c", XGBRegressor(n_estimators=3))],
    "float32": [("a", XGBRegressor(n_estimators=3)), ("b", XGBRegressor(n_estimators=2, max_depth=2))],
}


def transformed(model: Any, rows: np.ndarray, tolerance: float = 1e-9) -> None:
    """Compare ``transform`` with what is read of it beside what it predicts, values and type."""
    beside = from_object(model).transform
    assert beside is not None
    assert beside.anchor.n_outputs == model.transform(rows).shape[1]
    names = model.get_feature_names_out()
    assert beside.host is None and (len(names) == beside.anchor.n_outputs)
    spec = beside.output
    found = columns(spec.label_dtype, rows.dtype.name, spec.keeps_axis)(scores_of(beside, rows))
    same(found, model.transform(rows), tolerance, tolerance)
    assert found.dtype == model.transform(rows).dtype


@pytest.mark.parametrize("target", ["binary", "strings"])
@pytest.mark.parametrize("name", MEMBERS)
def test_what_classifiers_say(name: str, target: str) -> None:
    votings = ["hard"] if name == "decisions" else ["hard", "soft"]
    for voting in votings:
        transformed(VotingClassifier(MEMBERS[name], voting=voting).fit(X, TARGETS[target]), ROWS)
    for passthrough in (False, True):
        for method in ("auto", "predict"):
            if passthrough and method == "predict":
                continue  # numpy keeps float64 beside the rows' numbers
            model = StackingClassifier(
                MEMBERS[name], forest(2), cv=2, stack_method=method, passthrough=passthrough
            )
            transformed(model.fit(X, TARGETS[target]), ROWS)
    model = make_pipeline(StandardScaler(), VotingClassifier(MEMBERS[name]), LogisticRegression())
    check(model.fit(X, TARGETS[target]), ROWS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REGRESSORS)
def test_what_regressors_say(name: str, dtype: str) -> None:
    rows = ROWS.astype(dtype)
    for model in (
        VotingRegressor(REGRESSORS[name]),
        VotingRegressor(REGRESSORS[name], weights=[1, 2, 3][: len(REGRESSORS[name])]),
        StackingRegressor(REGRESSORS[name], cv=2),
        StackingRegressor(REGRESSORS[name], cv=2, passthrough=True),
    ):
        model.fit(X, NUMBERS)
        if not (name == "float32" and dtype == "float32" and getattr(model, "passthrough", False)):
            transformed(model, rows, 1e-5)
        if isinstance(model, VotingRegressor):
            graph = from_object(model)
            assert graph.output.compute(None, scores_of(graph, rows)).dtype == model.predict(rows).dtype


def test_three_dimensions_are_no_columns() -> None:
    model = VotingClassifier(MEMBERS["one"], voting="soft", flatten_transform=False)
    assert from_object(model.fit(X, TARGETS["binary"])).transform is None


def test_transform_beside_predict() -> None:
    model = VotingClassifier([("a", RidgeClassifier()), ("b", LinearSVC())]).fit(X, TARGETS["strings"])
    compiled = hbtvm.compile(model, batch_sizes=8, threads=1)
    for rows in (ROWS, ROWS[:1].astype(np.float32), ROWS.astype(np.int16), csr_matrix(ROWS)):
        same(compiled.transform(rows), model.transform(rows), 0, 0)
        same(compiled.predict(rows), model.predict(rows), 0, 0)
