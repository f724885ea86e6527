"""A library's model, called and timed as its users call it."""

from __future__ import annotations

import contextlib
import importlib
import json
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from hbtvm.comparison import spark
from hbtvm.comparison.renamed import Call, renamed_calls
from hbtvm.comparison.threads import limited
from hbtvm.errors import InputError, missing_package
from hbtvm.frontends.files import load_model
from hbtvm.words.printable import shown

METHODS = {"proba": "predict_proba", "decision": "decision_function", "score": "score_samples"}
"""Methods of scikit-learn's models by names of hbtvm's outputs."""

_MARGINS: Mapping[str, Mapping[str, Any]] = {
    "lightgbm": {"raw_score": True},
    "xgboost": {"output_margin": True},
    "catboost": {"prediction_type": "RawFormulaVal"},
}
"""Options of ``predict`` that return raw scores."""

_CALLS, _SECONDS = 5, 1.0
"""Most calls, and seconds, by whose median a number of threads is chosen."""

_NAMES = {"sklearn": "scikit-learn", "imblearn": "imbalanced-learn", "pyspark": "Spark"}
_DTYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
}  # fmt: skip


class Library(Protocol):
    """A library's model, here or in another process.

    `title`: library, version and class.
    `outputs`: the outputs that can be compared.
    """

    title: str
    outputs: tuple[str, ...]

    def take(self, X: Any) -> None:
        """Set the rows of later calls."""

    def result(self, output: str) -> Any:
        """Return an output for all rows."""

    def prepare(self, output: str, rows: int) -> float:
        """Choose the faster number of threads for the first `rows` rows; return seconds of a call."""

    def seconds(self, output: str, rows: int, calls: int) -> float:
        """Return the mean time of `calls` calls."""

    def close(self) -> None:
        """Release the model."""


class Live:
    """A model object in this process; see `Library`.

    `model`: a fitted estimator, a booster, or an ONNX model as its proto or bytes.
    `wanted`: the package's outputs, in order.
    `threads`: most threads of a call.
    Raises `InputError` if it has no output in common.
    """

    def __init__(self, model: Any, wanted: Sequence[str], threads: int) -> None:
        calls, self.title = _calls(model, wanted, threads)
        self._calls = {name: calls[name] for name in wanted if name in calls}
        if not self._calls:
            raise InputError(f"{self.title} has none of the package's outputs: {', '.join(wanted)}")
        self.outputs = tuple(self._calls)
        self._model, self._threads = model, threads
        self._limit = contextlib.ExitStack()
        self._use(threads)

    def take(self, X: Any) -> None:
        """See `Library`."""
        self._rows = X

    def result(self, output: str) -> Any:
        """See `Library`; raises `InputError` with the library's message if it refuses the rows."""
        try:
            return self._called(output, self._rows)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "") or "no message"
            raise InputError(
                f"{self.title} refuses the rows in {output}: {type(error).__name__}: {shown(reason, 300)}"
            ) from error

    def prepare(self, output: str, rows: int) -> float:
        """See `Library`."""
        times = {}
        for threads in sorted({1, self._threads}):
            self._use(threads)
            calls = [self.seconds(output, rows, 1)]
            while len(calls) < _CALLS and sum(calls) < _SECONDS:
                calls.append(self.seconds(output, rows, 1))
            times[threads] = statistics.median(calls)
        best = min(times, key=lambda threads: times[threads])
        self._use(best)
        return times[best]

    def seconds(self, output: str, rows: int, calls: int) -> float:
        """See `Library`."""
        call, part = self._calls[output], self._rows[:rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            for _ in range(calls):
                call(part)
            return (time.perf_counter() - start) / calls

    def close(self) -> None:
        """See `Library`; restores the model's number of threads."""
        self._limit.close()

    def _called(self, output: str, rows: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._calls[output](rows)

    def _use(self, threads: int) -> None:
        self._limit.close()
        self._limit.enter_context(limited(self._model, threads))


def _calls(model: Any, wanted: Sequence[str], threads: int) -> tuple[Mapping[str, Call], str]:
    """Return a model's outputs by name, and its title."""
    kind = type(model)
    library = kind.__module__.partition(".")[0]
    if isinstance(model, bytes) or library == "onnx":
        return _onnx(model if isinstance(model, bytes) else model.SerializeToString(), wanted, threads)
    title = f"{_NAMES.get(library, library)} {_version(library)}{kind.__name__}"
    if library == "pyspark":
        return spark.calls(model), title
    if library == "treelite":
        return {"predict": partial(_gtil, model), "raw": partial(_gtil, model, pred_margin=True)}, title
    if renamed := renamed_calls(model, library, wanted, threads):
        return renamed, title
    if kind.__name__ == "Booster" and library == "xgboost":
        predict = _booster_call(model)
    elif kind.__name__ == "Booster" and library == "lightgbm":
        predict = model.predict
    else:
        calls = {
            name: getattr(model, name)
            for name in ("predict", *METHODS.values(), "transform")
            if hasattr(model, name)
        }
        # The ``predict`` of pipelines and rankers has no such option.
        has_option = library in _MARGINS and not hasattr(model, "steps") and kind.__name__ != "CatBoostRanker"
        if "predict" in calls and has_option:
            calls["raw"] = partial(model.predict, **_MARGINS[library])
        return calls, title
    return {"predict": predict, "raw": partial(predict, **_MARGINS[library])}, title


def _version(library: str) -> str:
    version = getattr(importlib.import_module(library), "__version__", "")
    return f"{version} " if version else ""


def _gtil(model: Any, X: Any, **options: bool) -> np.ndarray:
    """Return a prediction of treelite's interpreter, as a vector or a matrix."""
    from treelite import gtil

    result = np.asarray(gtil.predict(model, np.ascontiguousarray(X, model.input_type), **options))
    flat = result.reshape(len(result), -1)
    return flat[:, 0] if flat.shape[1] == 1 else flat


def _booster_call(booster: Any) -> Call:
    """Return the prediction of an XGBoost booster, with the codes of categories in arrays."""
    import xgboost

    types = booster.feature_types
    names = booster.feature_names

    def predict(X: Any, output_margin: bool = False) -> Any:
        if hasattr(X, "columns"):
            rows = xgboost.DMatrix(X, enable_categorical=True)
        else:
            rows = xgboost.DMatrix(X, feature_names=names, feature_types=types, enable_categorical=True)
        return booster.predict(rows, output_margin=output_margin)

    def in_place(X: Any, output_margin: bool = False) -> Any:
        return booster.inplace_predict(X, predict_type="margin" if output_margin else "value")

    # The faster way does not know which columns of an array hold categories, nor linear boosters.
    linear = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"] == "gblinear"
    return predict if linear or "c" in (types or ()) else in_place


def from_file(path: str, kind: str) -> Any:
    """Load a model file with its library; a pickle runs any program that it contains.

    `kind`: see `hbtvm.frontends.files.Kind`.
    """
    if kind == "spark":
        return spark.load(path)
    if kind == "ydf":
        return importlib.import_module("ydf").load_model(path)
    if kind == "onnx":
        with open(path, "rb") as file:
            return file.read()
    if kind == "lightgbm":
        import lightgbm

        return lightgbm.Booster(model_file=path)
    if kind in ("json", "ubjson"):
        return _xgboost_file(path)
    if kind == "catboost":
        return _catboost_file(path)
    if kind == "treelite":
        import treelite

        return treelite.Model.deserialize(path)
    if kind == "skops":
        import skops.io

        return skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    try:
        import joblib
    except ImportError:
        import pickle

        with open(path, "rb") as file:
            return pickle.load(file)
    return joblib.load(path)


def _catboost_file(path: str) -> Any:
    """Load CatBoost's file as the estimator that its loss is for."""
    catboost = importlib.import_module("catboost")
    estimator = getattr(catboost, load_model(path).model)()
    with open(path, "rb") as file:
        is_binary = file.read(4) == b"CBM1"
    return estimator.load_model(path, format="cbm" if is_binary else "json")


def _xgboost_file(path: str) -> Any:
    """Load XGBoost's file as the estimator that saved it, else as a booster."""
    import xgboost

    booster = xgboost.Booster(model_file=path)
    saved = json.loads(booster.attr("scikit_learn") or "{}")
    kinds = {"classifier": "XGBClassifier", "regressor": "XGBRegressor", "ranker": "XGBRanker"}
    name = kinds.get(saved.get("_estimator_type", ""))
    if name is None:
        return booster
    estimator = getattr(xgboost, name)()
    estimator.load_model(path)
    return estimator


def _onnx(content: bytes, wanted: Sequence[str], threads: int) -> tuple[Mapping[str, Call], str]:
    """Return an ONNX model's outputs, computed by ONNX Runtime: the file's outputs in the package's order."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_package("comparing an ONNX model needs", "onnxruntime", "onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs, names = session.get_inputs(), [port.name for port in session.get_outputs()]

    def run(X: Any, outputs: Sequence[str] | None) -> list[Any]:
        if len(inputs) == 1:
            return list(session.run(outputs, {inputs[0].name: _typed(_array(X, inputs[0]), inputs[0].type)}))
        return list(session.run(outputs, {port.name: _typed(_column(X, port), port.type) for port in inputs}))

    def label(X: Any) -> Any:
        return run(X, names[:1])[0]

    def rest(X: Any, at: int) -> Any:
        outputs = [_by_class(value) for value in run(X, None)]
        if at == 1 and len(outputs) > 2 and all(value.ndim == 1 for value in outputs[1:]):
            return np.column_stack(outputs[1:])  # an output for each class
        return list(outputs[at]) if outputs[at].ndim == 3 else outputs[at]  # a matrix for each target

    others = [name for name in METHODS.values() if name in wanted]
    calls: dict[str, Call] = {"predict": label}
    if len(names) > 1:
        calls |= {name: partial(rest, at=at) for at, name in enumerate(others[: len(names) - 1], 1)}
    return calls, f"ONNX Runtime {onnxruntime.__version__}"


def _array(X: Any, port: Any) -> np.ndarray:
    values = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    return values if len(port.shape) == 2 or values.ndim == 1 else values[:, 0]


def _column(X: Any, port: Any) -> np.ndarray:
    """Return an input's columns of a frame, which are named as the input, or as its name with ``_0`` etc."""
    if port.name in X.columns:
        values = np.asarray(X[port.name])
        return values[:, None] if len(port.shape) == 2 else values
    names = [name for name in X.columns if name.rpartition("_")[0] == port.name]
    return np.asarray(X[names])


def _typed(values: np.ndarray, kind: str) -> np.ndarray:
    return np.ascontiguousarray(values.astype(_DTYPES.get(kind, object)))


def _by_class(value: Any) -> np.ndarray:
    """Return probabilities by class as a matrix."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value])
    return np.asarray(value)
