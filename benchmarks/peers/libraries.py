"""How each library takes a trained model and predicts with it.

Imported in a worker process, in that library's own environment: nothing but the standard
library, numpy and that one library (and the one that trained the model, where it needs it)
may be imported, and only inside the functions.
"""

from __future__ import annotations

import copy
import importlib.metadata
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.cells import GRID, MODELS
from benchmarks.peers.cells import LIBRARIES as TRAINED_BY
from benchmarks.peers.restrict import restrict_onedal

Call = Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Job:
    """One model for one peer.

    Attributes
    ----------
    peer, model
        Names.
    path
        The trained model's file.
    task
        ``"binary"``, ``"regression"`` or ``"classes"``.
    features
        Columns.
    artifact
        Where the peer may keep what it makes of the model.
    threads
        Threads that one call may use.
    batches
        Rows per call that will be measured.
    search
        Whether hbtvm is to search.
    time_budget
        Seconds that it may search; None for its default.
    dtype
        Type of the rows; with ``"float64"``, sums in float64 too, where a peer has the choice.
    mcpu
        CPU that hbtvm compiles for and oneDAL is restricted to, such as ``"x86-64-v3"``; None for this one.
    """

    peer: str
    model: str
    path: str
    task: str
    features: int
    artifact: str
    threads: int
    batches: tuple[int, ...]
    search: bool = True
    time_budget: float | None = None
    dtype: str = "float32"
    mcpu: str | None = None


@dataclass(frozen=True)
class Library:
    """A peer.

    Attributes
    ----------
    load
        Makes the ways to predict, by name; where there are several, the fastest is measured.
    packages
        Packages whose versions are to be reported; all must be installed.
    models
        Kinds of models that it takes.
    convert
        Compiles or converts to `Job.artifact`; None where that is part of `load`.
    for_threads
        Whether the artifact depends on the number of threads.
    dtypes
        Types of rows that it takes without casting them.
    rows
        Makes the function from a batch of rows to what calls take; it is called before times are taken.
        None where calls take the array.
    """

    load: Callable[[Job], dict[str, Call]]
    packages: tuple[str, ...]
    models: tuple[str, ...] = GRID
    convert: Callable[[Job], None] | None = None
    for_threads: bool = False
    dtypes: tuple[str, ...] = ("float32", "float64")
    rows: Callable[[Job], Callable[[np.ndarray], Any]] | None = None


def versions(name: str) -> dict[str, str] | None:
    """Versions of a peer's packages; None where one is not installed."""
    try:
        return {package: importlib.metadata.version(package) for package in LIBRARIES[name].packages}
    except importlib.metadata.PackageNotFoundError:
        return None


def _original(job: Job) -> Any:
    """The model as its library loads it."""
    if job.model == "lightgbm":
        import lightgbm

        return lightgbm.Booster(model_file=job.path)
    if job.model == "xgboost":
        import xgboost

        return xgboost.Booster({"nthread": job.threads}, model_file=job.path)
    if TRAINED_BY[job.model] == "catboost":
        import catboost

        return catboost.CatBoostClassifier().load_model(job.path)
    if TRAINED_BY[job.model] == "ydf":
        import ydf

        return ydf.load_model(job.path)
    return pickle.loads(Path(job.path).read_bytes())


def _method(model: Any, job: Job) -> Call:
    """Probabilities of a classifier, predictions of a regressor."""
    method: Call = model.predict if job.task == "regression" else model.predict_proba
    return method


def _each(name: str, job: Job, with_threads: Callable[[int], Call]) -> dict[str, Call]:
    """With one thread and with all, where the caller chooses per call: small batches can be faster on one."""
    return {f"{name}, {n} threads": with_threads(n) for n in sorted({1, job.threads})}


def _native(job: Job) -> dict[str, Call]:
    model = _original(job)
    if job.model == "lightgbm":
        return _each("Booster.predict", job, lambda n: lambda X: model.predict(X, num_threads=n))
    if job.model == "xgboost":
        import xgboost

        return {
            "inplace_predict": model.inplace_predict,
            "predict(DMatrix)": lambda X: model.predict(xgboost.DMatrix(X, nthread=job.threads)),
        }
    if TRAINED_BY[job.model] == "catboost":
        return _each(
            "predict_proba", job, lambda n: lambda X: model.predict_proba(X, thread_count=n, verbose=False)
        )
    if TRAINED_BY[job.model] == "ydf":
        return _each("predict", job, lambda n: lambda X: model.predict({"x": X}, num_threads=n))
    name = "predict" if job.task == "regression" else "predict_proba"
    if job.model == "hist":
        return {name: _method(model, job)}

    def with_threads(n: int) -> Call:
        same = copy.copy(model)
        same.n_jobs = n
        return _method(same, job)

    return _each(name, job, with_threads)


def _engine(job: Job) -> dict[str, Call]:
    model = _original(job)
    if TRAINED_BY[job.model] == "catboost":
        return _each(
            "predict_proba(Pool)", job, lambda n: lambda pool: model.predict_proba(pool, thread_count=n)
        )
    return _each("predict(VerticalDataset)", job, lambda n: lambda rows: model.predict(rows, num_threads=n))


def _engine_rows(job: Job) -> Callable[[np.ndarray], Any]:
    if TRAINED_BY[job.model] == "catboost":
        import catboost

        return catboost.Pool  # type: ignore[no-any-return]
    import ydf

    spec = ydf.load_model(job.path).data_spec()

    def dataset(X: np.ndarray) -> Any:
        # The model's columns include the label.
        return ydf.create_vertical_dataset({"x": X, "y": np.zeros(len(X), np.int32)}, data_spec=spec)

    return dataset


def _hbtvm_convert(job: Job) -> None:
    import hbtvm

    options: dict[str, Any] = {"batch_sizes": job.batches, "threads": job.threads, "dtype": job.dtype}
    if job.mcpu is not None:
        options["target"] = {"kind": "llvm", "mcpu": job.mcpu}
    if not job.search:
        model = hbtvm.compile(job.path, **options)
    elif job.time_budget is None:
        model = hbtvm.tune(job.path, log=None, **options)
    else:
        model = hbtvm.tune(job.path, time_budget=job.time_budget, log=None, **options)
    model.save(job.artifact)


def _hbtvm(job: Job) -> dict[str, Call]:
    import hbtvm

    model = hbtvm.load(job.artifact, threads=job.threads)
    # Boosters predict probabilities; scikit-learn's predict would be labels.
    labels = job.model not in ("lightgbm", "xgboost") and job.task != "regression"
    return {"predict_proba": model.predict_proba} if labels else {"predict": model.predict}


def _lleaves_convert(job: Job) -> None:
    import lleaves

    lleaves.Model(model_file=job.path).compile(cache=job.artifact)


def _lleaves(job: Job) -> dict[str, Call]:
    import lleaves

    model = lleaves.Model(model_file=job.path)
    model.compile(cache=job.artifact)
    return _each("predict", job, lambda n: lambda X: model.predict(X, n_jobs=n))


def _treelite(job: Job) -> Any:
    import treelite

    if job.model == "lightgbm":
        return treelite.frontend.load_lightgbm_model(job.path)
    if job.model == "xgboost":
        return treelite.frontend.load_xgboost_model(job.path)
    import treelite.sklearn

    return treelite.sklearn.import_model(_original(job))


def _onedal(job: Job) -> dict[str, Call]:
    import daal4py

    restrict_onedal(job.mcpu)
    daal4py.daalinit(job.threads)
    boosted = job.model in ("lightgbm", "xgboost")
    model = daal4py.mb.convert_model(_original(job) if boosted else _treelite(job))
    # A model imported through treelite may be a regressor whose output is a probability.
    if job.task == "regression" or model.is_regressor_:
        return {"predict": model.predict}
    return {"predict_proba": model.predict_proba}


def _onnx_convert(job: Job) -> None:
    model = _original(job)
    if job.model in ("lightgbm", "xgboost"):
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("X", FloatTensorType([None, job.features]))]
        if job.model == "lightgbm":
            converted = onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False)
        else:
            # The converter takes the number of features from the booster's names of them.
            model.feature_names = None
            converted = onnxmltools.convert_xgboost(model, initial_types=types)
    else:
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType as FloatRows

        options = {} if job.task == "regression" else {id(model): {"zipmap": False}}
        converted = skl2onnx.convert_sklearn(
            model, initial_types=[("X", FloatRows([None, job.features]))], options=options
        )
    Path(job.artifact).write_bytes(converted.SerializeToString())


def _onnx(job: Job) -> dict[str, Call]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    session = onnxruntime.InferenceSession(job.artifact, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    # Classifiers have labels first, probabilities last; regressors have one output.
    wanted = [session.get_outputs()[-1].name]
    return {"InferenceSession.run": lambda X: session.run(wanted, {name: X})[0]}


def _tl2cgen_convert(job: Job) -> None:
    import tl2cgen

    # One C file per core: one file of all trees would take the compiler many times as long.
    parts = {"parallel_comp": os.cpu_count() or 1}
    tl2cgen.export_lib(_treelite(job), toolchain="gcc", libpath=job.artifact, params=parts)


def _tl2cgen(job: Job) -> dict[str, Call]:
    import tl2cgen

    def with_threads(n: int) -> Call:
        model = tl2cgen.Predictor(job.artifact, nthread=n)
        return lambda X: model.predict(tl2cgen.DMatrix(X))

    return _each("predict(DMatrix)", job, with_threads)


def _as_estimator(job: Job) -> Any:
    """Wrap a booster's file in a scikit-learn estimator."""
    original = _original(job)
    kind = "Regressor" if job.task == "regression" else "Classifier"
    if job.model == "xgboost":
        import xgboost

        model = getattr(xgboost, f"XGB{kind}")()
        model.load_model(job.path)
        return model
    if job.model == "lightgbm":
        import lightgbm

        model = getattr(lightgbm, f"LGBM{kind}")()
        classes = max(2, original.num_model_per_iteration())
        model._Booster, model.fitted_, model._n_features = original, True, job.features
        model._objective = {"binary": "binary", "regression": "regression", "classes": "multiclass"}[job.task]
        if job.task != "regression":
            model._n_classes, model._classes = classes, np.arange(classes)
        return model
    return original


def _hummingbird(job: Job) -> dict[str, Call]:
    import hummingbird.ml
    import torch

    torch.set_num_threads(job.threads)
    example = np.zeros((max(job.batches), job.features), np.float32)
    model = hummingbird.ml.convert(_as_estimator(job), "torch.jit", example)
    return {"predict" if job.task == "regression" else "predict_proba": _method(model, job)}


LIBRARIES = {
    "hbtvm": Library(_hbtvm, ("hbtvm",), tuple(MODELS), _hbtvm_convert, for_threads=True),
    "native": Library(_native, (), tuple(MODELS)),
    "lleaves": Library(_lleaves, ("lleaves",), ("lightgbm",), _lleaves_convert),
    "onedal": Library(_onedal, ("scikit-learn-intelex", "treelite")),
    "onnx": Library(
        _onnx, ("onnxruntime", "onnxmltools", "skl2onnx"), convert=_onnx_convert, dtypes=("float32",)
    ),
    "tl2cgen": Library(_tl2cgen, ("tl2cgen", "treelite"), convert=_tl2cgen_convert),
    "hummingbird": Library(_hummingbird, ("hummingbird-ml", "torch"), dtypes=("float32",)),
    "engine": Library(
        _engine, (), ("catboost-6", "catboost-8", "ydf", "ydf-forest"), dtypes=("float32",), rows=_engine_rows
    ),
}
"""Peers by name. "native" is the library that trained the model; "engine" is that library too, on rows that
were converted to its own form beforehand."""
