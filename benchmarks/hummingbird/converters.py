"""onnxmltools of today for tests of its earlier releases, which had one set of input types.

The tests describe inputs by the types of `onnxconverter_common`; each converter now takes those of its own
package.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

_OWN = {
    "convert_sklearn": "skl2onnx.common.data_types",
    "convert_lightgbm": "onnxmltools.convert.common.data_types",
    "convert_xgboost": "onnxmltools.convert.common.data_types",
}
"""Functions of onnxmltools, and the module of the types that they take."""


def accept_types() -> None:
    """Let the converters take the types of any of these packages; nothing where they are not installed."""
    try:
        homes = [importlib.import_module(f"onnxmltools{part}") for part in ("", ".convert", ".convert.main")]
        types = {name: importlib.import_module(module) for name, module in _OWN.items()}
    except ImportError:
        return
    for name, own in types.items():
        made = _translating(getattr(homes[0], name), own)
        for home in homes:
            setattr(home, name, made)


def _translating(convert: Callable[..., Any], own: Any) -> Callable[..., Any]:
    @functools.wraps(convert)
    def call(model: Any, name: Any = None, initial_types: Any = None, *rest: Any, **options: Any) -> Any:
        if initial_types is not None:
            initial_types = [
                (column, getattr(own, type(kind).__name__)(kind.shape)) for column, kind in initial_types
            ]
        return convert(model, name, initial_types, *rest, **options)

    return call
