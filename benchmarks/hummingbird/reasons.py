"""Why some of Hummingbird's tests say nothing of hbtvm."""

from __future__ import annotations

import fnmatch

_NO_SAMPLE = "Hummingbird needs a sample of the input for some back ends; hbtvm needs none"
_ARCHIVE = "looks into Hummingbird's archive"
_MORE = "expects a refusal of what hbtvm supports"
_CHANGED = "scikit-learn has changed: liblinear takes two classes"
_NAMES = "names of Hummingbird's back ends"

REASONS = {
    "test_backends.py::*::test_torchscript_test_data": _NO_SAMPLE,
    "test_backends.py::*::test_tvm_test_data": _NO_SAMPLE,
    "test_backends.py::*::test_onnx": _NO_SAMPLE,
    "test_backends.py::*::test_onnx_no_test_data_string": _NO_SAMPLE,
    "test_backends.py::*::test_*_versions": _ARCHIVE,
    "test_backends.py::*::test_load_fails_*": _ARCHIVE,
    "test_backends.py::*::test_unsupported_backend": _NAMES,
    "test_backends.py::*::test_backends": _NAMES,
    "test_backends.py::*::test_forgotten_backend_string": _NAMES,
    "test_backends.py::*::test_udf_torch_jit_*": "about pickles and files of TorchScript",
    "test_onnxml_binarizer_converter.py::*::*_raises_rt*": "expects a refusal of a threshold that is missing",
    "test_onnxml_one_hot_encoder_converter.py::*::test_ohe_string_raises_type_error_onnx": _MORE,
    "test_onnxml_label_encoder_converter.py::*::test_le_string_raises_rt_onnx": _MORE,
    "test_onnxml_scaler_converter.py::*::test_standard_scaler_onnx_ff": _MORE,
    "test_sklearn_*.py::*::*_raises_wrong_extra_config": "names of Hummingbird's implementations of trees",
    "test_sklearn_decision_tree_converter.py::*::*_raises_wrong_type": _MORE,
    "test_sklearn_gbdt_converter.py::*::*_raises_wrong_type": _MORE,
    "test_sklearn_histgbdt_converters.py::*::*_raises_wrong_type": _MORE,
    "test_sklearn_linear_converter.py::*::*_raises_wrong_type": _MORE,
    "test_sklearn_linear_converter.py::*::test_logistic_regression_ts": _CHANGED,
    "test_sklearn_pipeline.py::*::test_stacking_classifier_decision_function": _MORE,
    "test_extra_conf.py::*::test_torch_deafault_n_threads": "torch's number of threads",
    "test_extra_conf.py::*::test_torch_one_thread": "torch's number of threads",
    "test_extra_conf.py::*::test_tvm_no_padding": "expects a refusal of other batch sizes",
    "test_no_extra_install.py::*": "about packages that are not installed",
}
"""By a pattern of file and test."""


def reason(test: str) -> str | None:
    """Why a test does not apply; None where it does.

    Parameters
    ----------
    test
        File and test as pytest names them, such as ``test_backends.py::TestBackends::test_backends``.
    """
    name = test.rpartition("/")[2]
    return next((text for pattern, text in REASONS.items() if fnmatch.fnmatch(name, pattern)), None)
