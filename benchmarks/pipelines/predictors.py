"""Last steps with parameters drawn at random: predictors by themselves and ensembles of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.pipelines.operators import Last, Make, Random, maybe, pick

METRICS = ("euclidean", "manhattan", "chebyshev")

MOST = 20_000
"""Iterations of libsvm, which may never converge for columns of very different sizes."""


def lasts() -> list[Last]:
    """All of them; those that most pipelines have more than once."""
    plain = [*_linear() * 2, *_trees(), *_kernels(), *_others()]
    return [*plain, *plain, *_ensembles(), *_several(), *_unsupervised()]


def _classes(make: Make, needs: str = "") -> Last:
    return Last(make, "classes", needs)


def _numbers(make: Make, needs: str = "") -> Last:
    return Last(make, "numbers", needs)


def _linear() -> list[Last]:
    from sklearn import linear_model as m
    from sklearn import svm
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    losses = ["log_loss", "hinge", "modified_huber"]
    return [
        _classes(lambda r: m.LogisticRegression(max_iter=200, C=pick(r, [0.1, 1.0]))),
        _classes(lambda r: m.SGDClassifier(loss=pick(r, losses), random_state=0)),
        _classes(lambda r: m.RidgeClassifier()),
        _classes(lambda r: m.Perceptron(random_state=0)),
        _classes(lambda r: svm.LinearSVC()),
        _classes(lambda r: LinearDiscriminantAnalysis(), "dense"),
        _numbers(lambda r: m.Ridge()),
        _numbers(lambda r: m.Lasso(alpha=0.05)),
        _numbers(lambda r: m.ElasticNet(alpha=0.05)),
        _numbers(lambda r: m.BayesianRidge(), "dense"),
        _numbers(lambda r: svm.LinearSVR(max_iter=200)),
    ]


def _trees() -> list[Last]:
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn import ensemble as e
    from sklearn import tree
    from xgboost import XGBClassifier, XGBRegressor

    boosted: dict[str, Any] = {"n_estimators": 20, "n_jobs": 1}
    return [
        _classes(lambda r: tree.DecisionTreeClassifier(max_depth=6, random_state=0)),
        _classes(lambda r: e.RandomForestClassifier(20, random_state=0)),
        _classes(lambda r: e.ExtraTreesClassifier(20, random_state=0)),
        _classes(lambda r: e.GradientBoostingClassifier(n_estimators=20, random_state=0)),
        _classes(lambda r: e.HistGradientBoostingClassifier(max_iter=20, random_state=0), "dense"),
        _classes(lambda r: LGBMClassifier(**boosted, verbose=-1)),
        _classes(lambda r: XGBClassifier(**boosted)),
        _numbers(lambda r: e.RandomForestRegressor(20, random_state=0)),
        _numbers(lambda r: LGBMRegressor(**boosted, verbose=-1)),
        _numbers(lambda r: XGBRegressor(**boosted)),
    ]


def _kernels() -> list[Last]:
    from sklearn import neighbors as n
    from sklearn import svm
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as k

    kernels = ["rbf", "poly", "sigmoid", "linear"]
    near: dict[str, Callable[[Random], Any]] = {
        "n_neighbors": lambda r: int(r.integers(1, 8)),
        "weights": lambda r: pick(r, ["uniform", "distance"]),
        "metric": lambda r: pick(r, METRICS),
    }

    def drawn(r: Random) -> dict[str, Any]:
        return {name: draw(r) for name, draw in near.items()}

    def process(r: Random) -> dict[str, Any]:
        kernel = pick(r, [k.RBF(2.0), k.Matern(2.0, nu=1.5), k.RationalQuadratic() + k.DotProduct()])
        return {"kernel": kernel + k.WhiteKernel(0.1), "optimizer": None}

    return [
        _classes(lambda r: svm.SVC(kernel=pick(r, kernels), C=pick(r, [0.5, 2.0]), max_iter=MOST)),
        _classes(lambda r: svm.SVC(decision_function_shape="ovo", max_iter=MOST)),
        _classes(lambda r: svm.NuSVC(nu=0.2, kernel=pick(r, kernels), max_iter=MOST)),
        _classes(lambda r: n.KNeighborsClassifier(**drawn(r)), "dense"),
        _classes(lambda r: n.RadiusNeighborsClassifier(radius=3.0, outlier_label="most_frequent"), "dense"),
        _classes(lambda r: n.NearestCentroid(), "dense"),
        _numbers(lambda r: svm.SVR(kernel=pick(r, kernels), max_iter=MOST)),
        _numbers(lambda r: svm.NuSVR(kernel=pick(r, kernels), max_iter=MOST)),
        _numbers(lambda r: n.KNeighborsRegressor(**drawn(r)), "dense"),
        _classes(lambda r: GaussianProcessClassifier(**process(r)), "dense"),
        _numbers(lambda r: GaussianProcessRegressor(**process(r), normalize_y=maybe(r)), "dense"),
    ]


def _others() -> list[Last]:
    from sklearn import naive_bayes as b
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.dummy import DummyClassifier
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    def layers(r: Random) -> dict[str, Any]:
        activation = pick(r, ["relu", "tanh", "logistic", "identity"])
        sizes = pick(r, [(10,), (8, 6)])
        return {"hidden_layer_sizes": sizes, "activation": activation, "max_iter": 20, "random_state": 0}

    return [
        _classes(lambda r: b.GaussianNB(), "dense"),
        _classes(lambda r: b.BernoulliNB(alpha=pick(r, [0.5, 1.0]))),
        _classes(lambda r: b.MultinomialNB(), "positive"),
        _classes(lambda r: b.ComplementNB(norm=maybe(r)), "positive"),
        _classes(lambda r: b.CategoricalNB(min_categories=12), "bins"),
        _classes(lambda r: QuadraticDiscriminantAnalysis(reg_param=0.3), "dense"),
        _classes(lambda r: MLPClassifier(**layers(r))),
        _classes(lambda r: DummyClassifier(strategy="prior")),
        _numbers(lambda r: MLPRegressor(**layers(r))),
    ]


def _ensembles() -> list[Last]:
    from sklearn import ensemble as e
    from sklearn import multiclass as m
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import FixedThresholdClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC, LinearSVC
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    def tree(r: Random) -> Any:
        return DecisionTreeClassifier(max_depth=3, random_state=0)

    def several() -> list[tuple[str, Any]]:
        return [
            ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
            ("linear", LogisticRegression(max_iter=200)),
            ("bayes", GaussianNB()),
        ]

    def coupled() -> list[tuple[str, Any]]:
        return [("machine", SVC(probability=True, random_state=0, max_iter=MOST)), ("bayes", GaussianNB())]

    def regressors() -> list[tuple[str, Any]]:
        return [("tree", DecisionTreeRegressor(max_depth=3, random_state=0)), ("linear", Ridge())]

    def base(r: Random) -> Any:
        return pick(r, [LinearSVC(), LogisticRegression(max_iter=200), tree(r)])

    return [
        _classes(lambda r: e.VotingClassifier(several(), voting=pick(r, ["hard", "soft"])), "dense"),
        _classes(lambda r: e.VotingClassifier(coupled(), voting="soft"), "dense"),
        _classes(
            lambda r: e.StackingClassifier(several(), LogisticRegression(), cv=2, passthrough=maybe(r, 0.3)),
            "dense",
        ),
        _classes(lambda r: e.BaggingClassifier(base(r), 5, max_features=0.8, random_state=0)),
        _classes(lambda r: e.AdaBoostClassifier(tree(r), n_estimators=8, random_state=0)),
        _classes(
            lambda r: CalibratedClassifierCV(
                base(r), method=pick(r, ["sigmoid", "isotonic"]), cv=3, ensemble=maybe(r, 0.7)
            )
        ),
        _classes(lambda r: m.OneVsRestClassifier(base(r))),
        _classes(lambda r: m.OneVsOneClassifier(base(r))),
        Last(
            lambda r: FixedThresholdClassifier(LogisticRegression(max_iter=200), threshold=0.4), "two classes"
        ),
        _numbers(lambda r: e.VotingRegressor(regressors())),
        _numbers(lambda r: e.StackingRegressor(regressors(), Ridge(), cv=2)),
        _numbers(lambda r: e.BaggingRegressor(Ridge(), 5, max_samples=0.7, random_state=0)),
        _numbers(
            lambda r: e.AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=8, random_state=0)
        ),
    ]


def _several() -> list[Last]:
    from sklearn import multioutput as m
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.tree import DecisionTreeRegressor

    return [
        Last(
            lambda r: m.MultiOutputRegressor(pick(r, [Ridge(), DecisionTreeRegressor(max_depth=3)])),
            "several numbers",
        ),
        Last(lambda r: m.RegressorChain(Ridge(), order=pick(r, [None, [1, 0]])), "several numbers"),
        Last(lambda r: m.MultiOutputClassifier(LogisticRegression(max_iter=200)), "several classes"),
        Last(lambda r: m.ClassifierChain(LogisticRegression(max_iter=200)), "several classes"),
    ]


def _unsupervised() -> list[Last]:
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
    from sklearn.neighbors import LocalOutlierFactor
    from sklearn.svm import OneClassSVM

    def mixture(r: Random) -> dict[str, Any]:
        shape = pick(r, ["full", "tied", "diag", "spherical"])
        return {"covariance_type": shape, "reg_covar": 1e-2, "random_state": 0}

    return [
        Last(lambda r: KMeans(int(r.integers(2, 9)), n_init=1, random_state=0), "none", "dense"),
        Last(lambda r: MiniBatchKMeans(4, n_init=1, random_state=0), "none", "dense"),
        Last(lambda r: GaussianMixture(n_components=3, **mixture(r)), "none", "dense"),
        Last(lambda r: BayesianGaussianMixture(n_components=3, **mixture(r)), "none", "dense"),
        Last(lambda r: IsolationForest(n_estimators=20, random_state=0), "none"),
        Last(lambda r: OneClassSVM(nu=0.2), "none"),
        Last(lambda r: LocalOutlierFactor(10, novelty=True), "none", "dense"),
    ]
