"""Modules named as Hummingbird's, whose `convert` compiles with hbtvm.

Hummingbird's test files import `hummingbird.ml` and call `convert(model, backend, test_input, ...)`. With
`install` those imports find this module's functions in place of the library: every back end means hbtvm,
and a converted model answers by hbtvm's. What only Hummingbird has (its graphs, sessions, operator lists)
raises `NotApplicable`, which a report tells apart from failures.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

BACKENDS = {
    "torch": "torch",
    "pytorch": "torch",
    "torch.jit": "torch.jit",
    "torchscript": "torch.jit",
    "onnx": "onnx",
    "tvm": "tvm",
}
"""Names of back ends, all of which are hbtvm here."""

CONSTANTS = (
    "BATCH_SIZE",
    "CONTAINER",
    "INPUT_NAMES",
    "MAX_STRING_LENGTH",
    "N_FEATURES",
    "N_INPUTS",
    "N_THREADS",
    "ONNX_OUTPUT_MODEL_NAME",
    "OUTPUT_NAMES",
    "REMAINDER_SIZE",
    "SAVE_LOAD_MODEL_CONFIGURATION_PATH",
    "TEST_INPUT",
    "TREE_IMPLEMENTATION",
    "TREE_OP_PRECISION_DTYPE",
    "TVM_MAX_FUSE_DEPTH",
    "TVM_PAD_INPUT",
)
"""Keys of `extra_config` that the tests use."""

STRATEGIES = {"gemm": "gemm", "tree_trav": "tree_traversal", "perf_tree_trav": "perfect_tree_traversal"}
"""hbtvm's strategies by Hummingbird's names of tree implementations."""

_IMPLEMENTATIONS = {
    "gemm": "GEMM",
    "tree_traversal": "TreeTraversal",
    "perfect_tree_traversal": "PerfectTreeTraversal",
}


class NotApplicable(Exception):
    """A test looks at what only Hummingbird has; the text says at what."""


class MissingConverter(RuntimeError):
    """A model is not supported."""


class MissingBackend(RuntimeError):
    """There is no such back end."""


class NoStrategy(Exception):
    """The strategy that a test names does not hold the model."""


class Container:
    """A compiled model with the methods of Hummingbird's containers.

    Parameters
    ----------
    model
        What `hbtvm.compile` returned.
    original
        The class name of the model that was compiled; empty if not with the strategy that was asked for.
        ``ModelProto`` of ONNX models.
    raw
        Whether raw scores are asked for in place of probabilities.
    """

    def __init__(self, model: Any, original: str = "", raw: bool = False) -> None:
        self._compiled = model
        self._original = original
        self._raw = raw

    def predict(self, *inputs: Any) -> np.ndarray:
        found = self._answer("predict", inputs)
        # ONNX models give one column, Hummingbird of them, too, an array of one dimension.
        return found.ravel() if found.ndim == 2 and found.shape[1] == 1 else found

    def predict_proba(self, *inputs: Any) -> np.ndarray:
        if self._raw:
            found: np.ndarray = self._compiled.predict(_rows(inputs), output="raw")
            return found
        return self._answer("predict_proba", inputs)

    def decision_function(self, *inputs: Any) -> np.ndarray:
        return self._answer("decision_function", inputs)

    def score_samples(self, *inputs: Any) -> np.ndarray:
        return self._answer("score_samples", inputs)

    def transform(self, *inputs: Any) -> np.ndarray:
        return self._answer("transform", inputs)

    def save(self, location: str) -> str:
        """Write the package; returns its digest."""
        path = _archive(location)
        self._compiled.save(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    @classmethod
    def load(
        cls, location: str, digest: str | None = None, override_flag: bool = False, **more: Any
    ) -> Container:
        """Read what `save` wrote, as Hummingbird demands it: with a digest, or told to do without."""
        if more:
            raise NotApplicable(f"Hummingbird's option {next(iter(more))} of load")
        path = _archive(location)
        assert path.exists(), f"{path} does not exist"
        if digest is None and not override_flag:
            raise RuntimeError("no digest given")
        if digest is not None and digest != hashlib.sha256(path.read_bytes()).hexdigest():
            raise RuntimeError("another digest")
        import hbtvm

        return cls(hbtvm.load(str(path)))

    @property
    def model(self) -> Any:
        """The strategy of the kernels, under the name of Hummingbird's class for it."""
        return _Internals(self._original, self._compiled.package.kernels)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotApplicable(f"Hummingbird's {name} of a container")

    def _answer(self, method: str, inputs: tuple[Any, ...]) -> np.ndarray:
        import hbtvm

        rows = _rows(inputs)
        try:
            answer = getattr(self._compiled, method)(rows)
        except hbtvm.InputError as error:
            raise AssertionError(str(error)) from error
        return answer.toarray() if hasattr(answer, "toarray") else answer


class _Internals:
    """What tests ask of Hummingbird's own model: the class of its first operator."""

    def __init__(self, original: str, kernels: Any) -> None:
        self._original, self._kernels = original, kernels

    @property
    def _operators(self) -> list[Any]:
        if not self._original:
            raise NotApplicable("an implementation of trees that hbtvm has not for this model")
        return [_implementation(self._original, kernel.strategy)() for kernel in self._kernels]

    def __getattr__(self, name: str) -> Any:
        raise NotApplicable(f"Hummingbird's {name} of a converted model")


def _implementation(original: str, strategy: str) -> type:
    """A class named as Hummingbird's implementation of a strategy for a kind of trees."""
    package = "hummingbird.ml.operator_converters"
    if original.startswith(("XGB", "LGBM", "GradientBoosting", "HistGradientBoosting")):
        kind, module = "GBDT", f"{package}._tree_implementations"
    elif original == "IsolationForest":
        kind, module = "IsolationForest", f"{package}.sklearn.iforest"
    else:
        kind, module = "DecisionTree", f"{package}._tree_implementations"
    return type(f"{_IMPLEMENTATIONS.get(strategy, strategy)}{kind}Impl", (), {"__module__": module})


def _rows(inputs: tuple[Any, ...]) -> Any:
    """One table of what may be several arrays of columns, or tensors, or lists."""
    if len(inputs) == 1 and isinstance(inputs[0], tuple):
        inputs = inputs[0]
    parts = [_array(one) for one in inputs]
    return parts[0] if len(parts) == 1 else np.hstack([part.reshape(len(part), -1) for part in parts])


def _array(rows: Any) -> Any:
    if hasattr(rows, "detach"):
        return rows.detach().cpu().numpy()
    return np.array(rows) if isinstance(rows, list) else rows


def _archive(location: str) -> Path:
    return Path(location if location.endswith("zip") else f"{location}.zip")


_COMPILED: dict[tuple[str, str | None], Any] = {}


def convert(
    model: Any, backend: str, test_input: Any = None, device: Any = "cpu", extra_config: Any = None
) -> Container:
    """Compile a model, with Hummingbird's names for what goes wrong.

    Raises
    ------
    MissingBackend
        If the back end is unknown.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    MissingConverter
        If hbtvm does not support it.
    """
    if not isinstance(backend, str):
        raise ValueError(f"no back end: {backend}")
    if backend.lower() not in BACKENDS:
        raise MissingBackend(backend)
    if isinstance(device, str) and device != "cpu":
        raise NotApplicable("GPUs")
    extra_config = extra_config or {}
    strategy = STRATEGIES.get(extra_config.get("tree_implementation"))
    try:
        compiled = _compile(model, strategy)
    except NoStrategy:
        # hbtvm's perfect trees have fewer levels than Hummingbird's; what is compared then is its own choice.
        return Container(_compile(model, None), "")
    raw = extra_config.get("post_transform", "") is None
    return Container(compiled, type(model).__name__, raw)


def convert_batch(
    model: Any,
    backend: str,
    test_input: Any,
    remainder_size: int = 0,
    device: str = "cpu",
    extra_config: Any = None,
) -> Container:
    """As `convert`: hbtvm's models take any number of rows."""
    return convert(model, backend, test_input, device, extra_config)


def _compile(model: Any, strategy: str | None) -> Any:
    """Compile a model, once for all back ends; sums are float64, as the tests ask for 1e-6."""
    from sklearn.exceptions import NotFittedError

    import hbtvm

    content = _bytes_of(model)
    key = None if content is None else (hashlib.sha256(content).hexdigest(), strategy)
    if key is not None and key in _COMPILED:
        return _COMPILED[key]
    options: dict[str, Any] = {"batch_sizes": 100, "threads": 1, "dtype": "float64", "strategies": strategy}
    try:
        compiled = hbtvm.compile(model, **options)
    except hbtvm.UnsupportedModel as error:
        kind = NotFittedError if "not fitted" in str(error) else MissingConverter
        raise kind(str(error)) from error
    except hbtvm.ModelError as error:
        raise RuntimeError(str(error)) from error
    except hbtvm.InputError as error:
        if strategy is None:
            raise
        raise NoStrategy(str(error)) from error
    if key is not None:
        _COMPILED[key] = compiled
    return compiled


def _bytes_of(model: Any) -> bytes | None:
    """What tells models apart; None of one that holds functions of a test, which cannot be pickled."""
    if type(model).__name__ == "ModelProto":
        return bytes(model.SerializeToString())
    try:
        return pickle.dumps(model)
    except (AttributeError, TypeError, pickle.PicklingError):
        return None


def install() -> None:
    """Put the modules where imports find them."""
    constants = types.SimpleNamespace(**{name: name.lower() for name in CONSTANTS})
    installed = {
        f"{name}_installed": lambda modules=modules: all(map(_is_there, modules))
        for name, modules in {
            "lightgbm": ["lightgbm"],
            "onnx_ml_tools": ["onnxmltools", "skl2onnx"],
            "onnx_runtime": ["onnx", "onnxruntime"],
            "pandas": ["pandas"],
            "prophet": ["prophet"],
            "sklearn": ["sklearn"],
            "sparkml": ["pyspark"],
            "torch": ["torch"],
            "tvm": ["tvm"],
            "xgboost": ["xgboost"],
        }.items()
    }
    ml = {
        "convert": convert,
        "convert_batch": convert_batch,
        "load": Container.load,
        "backends": dict(BACKENDS),
        "constants": constants,
        "TorchContainer": Container,
        "TVMContainer": Container,
        "ONNXContainer": Container,
    }
    modules: dict[str, dict[str, Any]] = {
        "hummingbird": {},
        "hummingbird.ml": ml,
        "hummingbird.ml._utils": {**installed, "is_on_github_actions": lambda: False},
        "hummingbird.ml.exceptions": {"MissingConverter": MissingConverter, "MissingBackend": MissingBackend},
        "hummingbird.ml.operator_converters": {"constants": constants},
    }
    for name, held in modules.items():
        module = types.ModuleType(name, "A stand-in by hbtvm.")
        module.__path__ = []
        module.__dict__.update(held)
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
