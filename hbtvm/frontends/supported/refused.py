"""Classes that hbtvm refuses for good, and what to use instead.

docs/reference/unsupported.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

_KEPT = "python_steps='keep' keeps it in a pipeline in memory"
_SEARCHES, _ITERATES = "it searches all training rows for each row", "it iterates for each row"
_BEFORE = "apply it before, and leave it out of the pipeline"
_DROPS_ROWS = f"it drops rows; {_BEFORE}"
_OTHER_ROWS = f"a row's columns depend on other rows; {_BEFORE}"
_TEXTS = "it reads texts; apply it in Spark, and compile the stages behind, or use TfidfVectorizer"
_COMMON = "IForest, HBOS, KNN, LOF, OCSVM, GMM, PCA and MCD compile"
_REGRESSIONS = "CoxPHFitter, WeibullAFTFitter, LogNormalAFTFitter and LogLogisticAFTFitter compile"
_COMBINES = "it combines models; compile each, and combine what they return"

GROUPS: Mapping[str, Mapping[str, str]] = {
    "sklearn": {
        "Isomap LocallyLinearEmbedding KNeighborsTransformer RadiusNeighborsTransformer": (
            f"{_SEARCHES}; {_KEPT}, and KernelPCA and Nystroem compile"
        ),
        "KernelDensity": f"{_SEARCHES}; GaussianMixture compiles",
        "NearestNeighbors": "it returns neighbours; KNeighborsClassifier and KNeighborsRegressor compile",
        "LatentDirichletAllocation NMF MiniBatchNMF DictionaryLearning MiniBatchDictionaryLearning "
        "SparseCoder": f"{_ITERATES}; {_KEPT}, and TruncatedSVD and PCA compile",
        "PatchExtractor": f"it takes images; {_KEPT}",
        "MultiLabelBinarizer": "it takes sets of labels, which are targets; call it outside of the model",
        "AgglomerativeClustering DBSCAN HDBSCAN OPTICS SpectralClustering SpectralBiclustering "
        "SpectralCoclustering": "it predicts no new rows; KMeans and Birch compile",
        "ClassicalMDS MDS SpectralEmbedding TSNE": (
            "it transforms no new rows; KernelPCA and Nystroem compile"
        ),
        "EmpiricalCovariance GraphicalLasso GraphicalLassoCV LedoitWolf MinCovDet OAS ShrunkCovariance": (
            "it predicts nothing; EllipticEnvelope compiles"
        ),
    },
    "xgboost": {
        "DaskXGBClassifier DaskXGBRegressor DaskXGBRanker DaskXGBRFClassifier DaskXGBRFRegressor "
        "SparkXGBClassifierModel SparkXGBRegressorModel SparkXGBRankerModel": "compile its get_booster()",
    },
    "lightgbm": {"DaskLGBMClassifier DaskLGBMRegressor DaskLGBMRanker": "compile its to_local()"},
    "category_encoders": {
        "CountTargetEncoder": "TargetEncoder and WOEEncoder compile",
        "MultiHotEncoder": "it splits texts; scikit-learn's CountVectorizer with a token_pattern compiles",
        "PolynomialWrapper": "it encodes once for each class; scikit-learn's TargetEncoder compiles",
    },
    "feature_engine": {
        "RandomSampleImputer": "it draws random values; use an imputer that has one value",
        "DropMissingData OutlierTrimmer": _DROPS_ROWS,
        "LagFeatures WindowFeatures ExpandingWindowFeatures": _OTHER_ROWS,
        "MatchCategories MatchVariables": "it prepares frames; leave it out, as models find columns by name",
        "DatetimeOrdinal DatetimeSubtraction": f"DatetimeFeatures compiles; else {_BEFORE}",
        "GeoDistanceFeatures": "use scikit-learn's FunctionTransformer of a function of numpy's functions",
        "DecisionTreeFeatures": "DecisionTreeEncoder and scikit-learn's StackingClassifier compile",
        "StringSimilarityEncoder": "it compares texts; use an encoder with a table",
        "TextFeatures": f"it counts letters; scikit-learn's CountVectorizer compiles; else {_BEFORE}",
    },
    "skrub": {
        "StringEncoder GapEncoder MinHashEncoder TextEncoder LLMEncoder SimilarityEncoder": (
            'it embeds texts; fit TableVectorizer with another encoder as high_cardinality, or "drop"'
        ),
        "CatEncoder": "fit TableVectorizer with scikit-learn's OneHotEncoder or OrdinalEncoder",
        "Joiner AggJoiner MultiAggJoiner InterpolationJoiner AggTarget": f"it joins other rows; {_BEFORE}",
        "SessionEncoder": _OTHER_ROWS,
        "SquashingScaler": "scikit-learn's RobustScaler and QuantileTransformer compile",
        "DropSimilar": "use DropCols with the columns that it drops",
        "ToCategorical": "scikit-learn's OrdinalEncoder compiles",
        "DurationToFloat": f"it reads durations; {_BEFORE}",
    },
    "interpret": {
        "DecisionListClassifier": "its rules are Python code; ExplainableBoostingClassifier compiles",
    },
    "ngboost": {"NGBoost": "fit NGBRegressor or NGBClassifier"},
    "sksurv": {
        "FastKernelSurvivalSVM HingeLossSurvivalSVM MinlipSurvivalAnalysis": (
            f"{_SEARCHES}; FastSurvivalSVM behind Nystroem compiles"
        ),
        "Stacking EnsembleAverage EnsembleSelection EnsembleSelectionRegressor MeanEstimator "
        "MeanRankEstimator": _COMBINES,
        "ClinicalKernelTransform": f"{_SEARCHES}; scikit-learn's encoders compile",
        "OneHotEncoder": "scikit-learn's OneHotEncoder compiles",
    },
    "lifelines": {
        "AalenAdditiveFitter CoxTimeVaryingFitter CRCSplineFitter GeneralizedGammaRegressionFitter "
        "PiecewiseExponentialRegressionFitter": _REGRESSIONS,
        "AalenJohansenFitter BreslowFlemingHarringtonFitter ExponentialFitter GeneralizedGammaFitter "
        "KaplanMeierFitter LogLogisticFitter LogNormalFitter MixtureCureFitter NelsonAalenFitter "
        "PiecewiseExponentialFitter SplineFitter WeibullFitter": (
            f"it has one curve for all rows; {_REGRESSIONS}"
        ),
    },
    "pyod": {
        "ECOD COPOD": f"a row's score depends on the other rows of a call; {_COMMON}",
        "AE1SVM ALAD AnoGAN AutoEncoder DIF DeepSVDD DevNet LUNAR MO_GAAL SO_GAAL VAE": (
            f"it is a network of PyTorch; {_COMMON}"
        ),
        "ABOD CBLOF CD COF FeatureBagging HDBSCAN INNE KDE KPCA LMDD LOCI LODA LSCP MAD QMCD RGraph ROD SOD "
        "SOS SUOD Sampling XGBOD": _COMMON,
    },
    "pyspark": {
        "Tokenizer RegexTokenizer NGram StopWordsRemover CountVectorizerModel HashingTF IDFModel "
        "Word2VecModel": _TEXTS,
        "FeatureHasher": "it hashes any text; StringIndexer and OneHotEncoder compile",
        "TargetEncoderModel": "StringIndexer and OneHotEncoder compile",
        "Interaction": "PolynomialExpansion compiles",
        "SQLTransformer": "it runs SQL; apply it in Spark, and compile the stages behind",
        "ALSModel": "its scores are products of its factors; compute them from userFactors and itemFactors",
        "LocalLDAModel DistributedLDAModel": f"{_ITERATES}; KMeans and GaussianMixture compile",
        "FPGrowthModel": "it joins a table of rules; apply it in Spark",
        "BucketedRandomProjectionLSHModel MinHashLSHModel": "it returns neighbours; KMeans compiles",
    },
}
"""What ends an error's sentence, by library and classes."""

REFUSED: Mapping[str, Mapping[str, str]] = {
    library: {name: reason for names, reason in groups.items() for name in names.split()}
    for library, groups in GROUPS.items()
}
"""The same by library and class."""

ELSEWHERE: Mapping[str, str] = {
    "cuml": "compile the treelite model of its forests (as_treelite)",
    "daal4py": "fit it with scikit-learn alone (unpatch_sklearn)",
    "flaml": "compile its model.estimator",
    "h2o": "convert it to an ONNX file with onnxmltools, and compile that",
    "keras": "use its compiler, or ONNX Runtime; scikit-learn's MLPClassifier and MLPRegressor compile",
    "mlxtend": "scikit-learn's StackingClassifier, VotingClassifier and SequentialFeatureSelector compile",
    "pygam": "InterpretML's ExplainableBoosting models compile",
    "sklearn_pandas": (
        "replace its DataFrameMapper, which fails to import with scikit-learn 1.7, by scikit-learn's "
        "ColumnTransformer, and fit again"
    ),
    "sklearnex": "fit it with scikit-learn alone (unpatch_sklearn)",
    "statsmodels": "scikit-learn's LinearRegression, LogisticRegression and TweedieRegressor compile",
    "tensorflow": "use its compiler, or ONNX Runtime; scikit-learn's MLPClassifier and MLPRegressor compile",
    "tpot": "compile its fitted_pipeline_",
}
"""What compiles in place of a library's objects."""
