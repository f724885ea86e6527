"""The estimator classes that are swept: how each is made, what it is fitted on, and its options."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from sklearn import linear_model, svm, tree
from sklearn import preprocessing as prep
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.utils import all_estimators

from benchmarks.sweep.compare import METHODS

TREE = tree.DecisionTreeClassifier(max_depth=4, random_state=0)
TREE_NUMBERS = tree.DecisionTreeRegressor(max_depth=4, random_state=0)
LOGISTIC = linear_model.LogisticRegression()
RIDGE = linear_model.Ridge()
CLASSIFIERS = (make_pipeline(prep.StandardScaler(), TREE), LOGISTIC, TREE, GaussianNB())
REGRESSORS = (make_pipeline(prep.StandardScaler(), TREE_NUMBERS), RIDGE, TREE_NUMBERS, svm.SVR())

_GRID: dict[str, list[Any]] = {"max_depth": [2, 3]}
_COLUMNS = [("scaled", prep.StandardScaler(), [0, 2]), ("bins", prep.KBinsDiscretizer(3), [1])]
_MEMBERS = [("scaled", CLASSIFIERS[0]), ("logistic", LOGISTIC), ("bayes", GaussianNB())]
_MEMBERS_NUMBERS = [("scaled", REGRESSORS[0]), ("ridge", RIDGE), ("svr", svm.SVR())]

_REQUIRED: dict[str, dict[str, Any]] = {
    "ColumnTransformer": {"transformers": _COLUMNS, "remainder": "passthrough"},
    "FeatureUnion": {"transformer_list": [("scaled", prep.StandardScaler()), ("max", prep.MaxAbsScaler())]},
    "Pipeline": {"steps": [("scaled", prep.StandardScaler()), ("tree", TREE)]},
    "GridSearchCV": {"estimator": TREE, "param_grid": _GRID, "cv": 2},
    "HalvingGridSearchCV": {"estimator": TREE, "param_grid": _GRID, "cv": 2},
    "RandomizedSearchCV": {"estimator": TREE, "param_distributions": _GRID, "n_iter": 2, "cv": 2},
    "HalvingRandomSearchCV": {"estimator": TREE, "param_distributions": _GRID, "cv": 2},
    "SparseCoder": {"dictionary": np.random.default_rng(0).normal(size=(3, 4))},
    "StackingClassifier": {"estimators": _MEMBERS, "cv": 2},
    "VotingClassifier": {"estimators": _MEMBERS, "voting": "soft"},
    "StackingRegressor": {"estimators": _MEMBERS_NUMBERS, "cv": 2},
    "VotingRegressor": {"estimators": _MEMBERS_NUMBERS},
    "RFE": {"estimator": TREE, "n_features_to_select": 2},
    "RFECV": {"estimator": TREE, "cv": 2},
    "SequentialFeatureSelector": {"estimator": TREE, "cv": 2},
    "SelectFromModel": {"estimator": TREE},
    "RegressorChain": {"estimator": REGRESSORS[0]},
    "ClassifierChain": {"estimator": CLASSIFIERS[0]},
    "MultiOutputRegressor": {"estimator": REGRESSORS[0]},
    "MultiOutputClassifier": {"estimator": CLASSIFIERS[0]},
    "OneVsRestClassifier": {"estimator": CLASSIFIERS[0]},
    "OneVsOneClassifier": {"estimator": CLASSIFIERS[0]},
    "OutputCodeClassifier": {"estimator": CLASSIFIERS[0]},
    "FixedThresholdClassifier": {"estimator": LOGISTIC},
    "TunedThresholdClassifierCV": {"estimator": LOGISTIC, "cv": 2},
    "SelfTrainingClassifier": {"estimator": LOGISTIC},
    "TransformedTargetRegressor": {"regressor": RIDGE, "func": np.log1p, "inverse_func": np.expm1},
    "LocalOutlierFactor": {"novelty": True},
    "IterativeImputer": {"max_iter": 3},
    "PolynomialFeatures": {"degree": 2},
    "KBinsDiscretizer": {"n_bins": 4},
    "QuantileTransformer": {"n_quantiles": 20},
    "FunctionTransformer": {"func": np.log1p},
    "TargetEncoder": {"target_type": "continuous", "cv": 2},
    "FeatureHasher": {"n_features": 16},
    "HashingVectorizer": {"n_features": 32},
    "NeighborhoodComponentsAnalysis": {"n_components": 2},
    "SimpleImputer": {"add_indicator": True},
    "GaussianRandomProjection": {"n_components": 3},
    "SparseRandomProjection": {"n_components": 3},
    "RadiusNeighborsClassifier": {"radius": 30.0},
    "RadiusNeighborsRegressor": {"radius": 30.0},
    "RadiusNeighborsTransformer": {"radius": 5.0},
    "Birch": {"n_clusters": 3},
    "SelectKBest": {"k": 2},
    "GenericUnivariateSelect": {"mode": "k_best", "param": 2},
    "SelectFpr": {"alpha": 0.5},
    "SelectFdr": {"alpha": 0.5},
    "SelectFwe": {"alpha": 0.5},
}
_SMALL: dict[str, Any] = {
    "n_estimators": 5,
    "max_iter": 60,
    "n_components": 2,
    "n_clusters": 3,
    "random_state": 0,
}
"""Values that make classes quick to fit, for those that have the parameter."""

_NOT_SMALL = frozenset({"max_iter", "n_components"})
_KEEP_DEFAULT = {
    "max_iter": ("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR", "HuberRegressor")
}

_VALUES: dict[str, tuple[Any, ...]] = {
    "metric": ("euclidean", "manhattan", "chebyshev", "cosine"),
    "stop_words": ("english", ["the", "a"]),
    "ngram_range": ((1, 2), (2, 3)),
    "min_df": (3,),
    "threshold": (0.3, 1.0, -0.7),
    "binarize": (0.3, -1.1, None),
    "degree": (3,),
    "n_bins": (7,),
    "n_knots": (7,),
    "p": (1, 3),
    "feature_range": ((-3, 7),),
    "clip": (True,),
    "quantile_range": ((10, 80),),
    "func": (np.sqrt, np.reciprocal, np.abs, np.expm1, None),
    "missing_values": (0, -1),
    "fill_value": (7,),
    "max_features": (2,),
    "max_leaf_nodes": (6,),
    "max_depth": (2,),
    "link": ("log", "identity"),
    "power": (1.5,),
    "hidden_layer_sizes": ((5, 4),),
    "activation": ("logistic", "relu", "identity", "tanh"),
    "max_categories": (2,),
    "min_frequency": (25,),
    "drop": ("first", "if_binary"),
    "alpha": (0.3,),
    "transform_alpha": (0.2,),
    "priors": ([0.2, 0.5, 0.3],),
    "neg_label": (-1,),
    "n_neighbors": (3,),
    "cv": (),
    "algorithm": (),
    "reg_param": (0.1,),
    "smooth": (3.0,),
    "sublinear_tf": (True,),
}
"""Values of parameters that are not told by the class's own list of choices."""

_NO_OPTIONS = frozenset(
    [
        "n_jobs",
        "verbose",
        "warm_start",
        "copy",
        "copy_X",
        "copy_x",
        "copy_X_train",
        "random_state",
        "solver",
        "algorithm",
        "precompute",
        "cv",
        "compute_score",
        "selection",
        "init_params",
        "svd_method",
        "iterated_power",
        "power_iteration_normalizer",
        "eigen_solver",
        "neighbors_algorithm",
        "path_method",
        "compute_full_tree",
        "compute_distances",
        "compute_labels",
        "store_covariance",
        "store_precision",
        "store_cv_results",
        "return_train_score",
        "error_score",
        "scoring",
        "refit",
        "max_resources",
        "min_resources",
        "aggressive_elimination",
        "n_candidates",
        "oob_score",
        "gcv_mode",
        "alpha_per_target",
        "n_init",
        "check_inverse",
        "feature_names_out",
        "verbose_feature_names_out",
        "decode_error",
        "input",
        "shrinking",
        "dual",
        "shuffle",
        "early_stopping",
        "learning_rate",
        "max_samples",
        "breadth_first",
        "validate",
        "warm",
        "accept_sparse",
        "optimizer",
        "fit_path",
        "whiten_solver",
        "fit_inverse_transform",
        "remove_zero_eig",
        "feature_name_combiner",
        "splitter",
        "compute_inverse_components",
        "initial_strategy",
        "imputation_order",
        "fit_algorithm",
        "learning_method",
        "weight_concentration_prior_type",
        "max_iter",
        "tol",
        "use_legacy_attributes",
        "prefit",
        "quantile_method",
    ]
)
"""Parameters that change only how a model is fitted."""

_TEXT = ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer")
_KINDS = {
    **dict.fromkeys(_TEXT, "texts"),
    **dict.fromkeys(("DictVectorizer", "FeatureHasher"), "dicts"),
    **dict.fromkeys(("LabelEncoder", "LabelBinarizer"), "labels"),
    "MultiLabelBinarizer": "sets",
    "IsotonicRegression": "column",
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder", "TargetEncoder"), "categories"),
    **dict.fromkeys(("CategoricalNB", "ComplementNB", "MultinomialNB", "NMF", "MiniBatchNMF"), "positive"),
    **dict.fromkeys(("LatentDirichletAllocation", "AdditiveChi2Sampler", "SkewedChi2Sampler"), "positive"),
    **dict.fromkeys(("TfidfTransformer", "BernoulliRBM"), "positive"),
}
_TARGETS = {
    **dict.fromkeys(("GammaRegressor", "PoissonRegressor", "TweedieRegressor"), "positive"),
    **dict.fromkeys(("CCA", "PLSCanonical", "PLSRegression", "PLSSVD"), "numbers"),
    **dict.fromkeys(("MultiOutputRegressor", "RegressorChain"), "numbers"),
    **dict.fromkeys(("FixedThresholdClassifier", "TunedThresholdClassifierCV"), "binary"),
    "TransformedTargetRegressor": "positive",
    "ClassifierChain": "multilabel",
    "MultiOutputClassifier": "multiclass",
    "TargetEncoder": "number",
    "PatchExtractor": "",
}


@functools.cache
def classes() -> dict[str, type]:
    """Return the classes that predict or transform rows they were not fitted on, by name."""
    return {name: kind for name, kind in all_estimators() if any(hasattr(kind, one) for one in METHODS)}


def instance(kind: type, **options: Any) -> Any:
    """Return an unfitted estimator, quick to fit, with some options."""
    known = getattr(kind, "_parameter_constraints", {})
    chosen = dict(_REQUIRED.get(kind.__name__, {}))
    for name, value in _SMALL.items():
        if name in known and name not in chosen and kind.__name__ not in _KEEP_DEFAULT.get(name, ()):
            chosen[name] = value
    if _KINDS.get(kind.__name__) == "positive" and kind.__name__ == "CategoricalNB":
        chosen.setdefault("min_categories", 12)
    made = kind(**chosen)
    return made.set_params(**options)


def kind_of(name: str) -> str:
    """Return the kind of rows that a class is fitted on; see `benchmarks.sweep.training.Training`."""
    return _KINDS.get(name, "numbers")


def target_of(name: str, estimator: Any, turn: int) -> str:
    """Return the target that a class is fitted on; see `benchmarks.sweep.training`."""
    if name in _TARGETS:
        return _TARGETS[name]
    if name.startswith("MultiTask"):
        return "numbers"
    role = getattr(estimator, "_estimator_type", None) or estimator.__sklearn_tags__().estimator_type
    if role == "classifier":
        return ("classes", "binary")[turn % 2]
    if role == "regressor":
        return "number"
    if role in ("clusterer", "outlier_detector", "density_estimator"):
        return ""
    needs = estimator.__sklearn_tags__().target_tags.required or name.startswith(("Select", "RFE", "Generic"))
    return ("classes", "binary")[turn % 2] if needs or hasattr(estimator, "estimator") else ""


def options(kind: type, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return single options that change what a model computes, in random order."""
    defaults = instance(kind).get_params(deep=False)
    found: list[dict[str, Any]] = []
    for name, constraints in getattr(kind, "_parameter_constraints", {}).items():
        if name in _NO_OPTIONS or name not in defaults or constraints == "no_validation":
            continue
        values: list[Any] = []
        for one in constraints:
            if one == "boolean":
                values += [True, False]
            elif hasattr(one, "options") and name not in _VALUES:
                values += sorted(one.options, key=str)
        values += _VALUES.get(name, ())
        default = defaults[name]
        found += [
            {name: value} for value in values if not (type(value) is type(default) and value == default)
        ]
    if "base" not in defaults and "estimator" in defaults:
        role = target_of(kind.__name__, instance(kind), 0)
        bases = REGRESSORS if role in ("number", "numbers", "positive") else CLASSIFIERS
        found += [{"estimator": base} for base in bases]
    return [found[at] for at in rng.permutation(len(found))]


def role_of(estimator: Any) -> str:
    """Return what an estimator is: the library's word for it, ``"transformer"`` where it has none."""
    role = getattr(estimator, "_estimator_type", None) or estimator.__sklearn_tags__().estimator_type
    return str(role or ("transformer" if hasattr(estimator, "transform") else ""))
