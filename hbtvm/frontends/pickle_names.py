"""The exact names that pickles of supported models may ask for."""

from __future__ import annotations

_TREES = ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")
_FORESTS = (
    "RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor",
)  # fmt: skip
_LOSSES = (
    "AbsoluteError", "ExponentialLoss", "HalfBinomialLoss", "HalfGammaLoss", "HalfMultinomialLoss",
    "HalfPoissonLoss", "HalfSquaredError", "HalfTweedieLoss", "HalfTweedieLossIdentity", "HuberLoss",
    "PinballLoss",
)  # fmt: skip
_HIST = "sklearn.ensemble._hist_gradient_boosting"

CLASSES: dict[str, tuple[str, ...]] = {
    "sklearn.tree._classes": _TREES,
    "sklearn.ensemble._forest": _FORESTS,
    "sklearn.ensemble._gb": ("GradientBoostingClassifier", "GradientBoostingRegressor"),
    "sklearn.ensemble._iforest": ("IsolationForest",),
    f"{_HIST}.gradient_boosting": ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
    f"{_HIST}.binning": ("_BinMapper",),
    f"{_HIST}.predictor": ("TreePredictor",),
    "sklearn._loss.loss": _LOSSES,
    "sklearn._loss.link": (
        "HalfLogitLink", "IdentityLink", "Interval", "LogitLink", "LogLink", "MultinomialLogit",
    ),
    "sklearn.compose._column_transformer": ("ColumnTransformer",),
    "sklearn.dummy": ("DummyClassifier", "DummyRegressor"),
    "sklearn.preprocessing._encoders": ("OrdinalEncoder",),
    "sklearn.preprocessing._label": ("LabelEncoder",),
    "lightgbm.basic": ("Booster",),
    "lightgbm.sklearn": ("LGBMClassifier", "LGBMModel", "LGBMRanker", "LGBMRegressor"),
    "xgboost.core": ("Booster",),
    "xgboost.sklearn": (
        "XGBClassifier", "XGBModel", "XGBRanker", "XGBRegressor", "XGBRFClassifier", "XGBRFRegressor",
    ),
    "numpy": (
        "ndarray", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "str_", "object_",
    ),
}  # fmt: skip
"""Classes whose objects are made empty and then given their state; calling them is refused."""

CALLS: dict[str, tuple[str, ...]] = {
    "builtins": ("bytearray", "bytes", "complex", "frozenset", "set", "slice"),
    "collections": ("OrderedDict", "defaultdict"),
    "numpy": ("dtype",),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
}
"""Functions, and classes that take arguments, to which a pickle may give any arguments."""

UNUSED: dict[str, tuple[str, ...]] = {
    "sklearn._loss._loss": (
        *(f"Cy{name}" for name in _LOSSES),
        *(f"__pyx_unpickle_Cy{name}" for name in _LOSSES),
    ),
    "functools": ("partial",),
    "numpy.random._mt19937": ("MT19937",),
    "numpy.random._pcg64": ("PCG64", "PCG64DXSM"),
    "numpy.random._philox": ("Philox",),
    "numpy.random._sfc64": ("SFC64",),
    "numpy.random._pickle": ("__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"),
    "numpy.random.bit_generator": ("SeedSequence", "__pyx_unpickle_SeedSequence"),
    "sklearn.preprocessing._function_transformer": ("FunctionTransformer",),
    "sklearn.utils._metadata_requests": ("MetadataRequest", "MethodMetadataRequest"),
    "sklearn.utils.validation": ("check_array",),
    "xgboost.callback": ("EarlyStopping", "EvaluationMonitor", "LearningRateScheduler"),
}
"""What models hold but no prediction needs."""

RENAMED = {
    "__builtin__": "builtins",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
}
"""Modules' names in old pickles."""
