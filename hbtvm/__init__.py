"""Compile trained tree ensembles into fast, exact, self-contained packages.

`tune` and `compile` take a trained scikit-learn, XGBoost or LightGBM model, as an object
or a file, and return a model that predicts the same; `load` takes a package that such a
model was saved to, and `export` makes a library for C of one. What they raise on purpose is an `HbtvmError`,
or a `LogError` where a tuning log can't be read or written; `hbtvm.errors` lists them. Importing `hbtvm`
imports neither the compiler nor a training library.

Examples
--------
>>> import hbtvm
>>> tuned = hbtvm.tune("model.pkl")  # doctest: +SKIP
>>> tuned.save("model.tar")  # doctest: +SKIP
>>> hbtvm.load("model.tar", threads=1).predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hbtvm.version import __version__

if TYPE_CHECKING:
    from hbtvm.api import compile, search, tune
    from hbtvm.compiler.exporting.export import export
    from hbtvm.errors import (
        BuildError,
        DeviceError,
        FileError,
        HbtvmError,
        InputError,
        InputTypeError,
        MissingPackageError,
        ModelError,
        ModelFileError,
        ModelNotFoundError,
        PackageError,
        PackageFileError,
        PackageNotFoundError,
        TargetError,
        UnsupportedModel,
    )
    from hbtvm.logs.store import LogError
    from hbtvm.runtime.model import Model, load

__all__ = [
    "BuildError",
    "DeviceError",
    "FileError",
    "HbtvmError",
    "InputError",
    "InputTypeError",
    "LogError",
    "MissingPackageError",
    "Model",
    "ModelError",
    "ModelFileError",
    "ModelNotFoundError",
    "PackageError",
    "PackageFileError",
    "PackageNotFoundError",
    "TargetError",
    "UnsupportedModel",
    "__version__",
    "compile",
    "export",
    "load",
    "search",
    "tune",
]

_HOMES = {
    "compile": "hbtvm.api",
    "export": "hbtvm.compiler.exporting.export",
    "search": "hbtvm.api",
    "tune": "hbtvm.api",
    "Model": "hbtvm.runtime.model",
    "load": "hbtvm.runtime.model",
    "LogError": "hbtvm.logs.store",
}
"""Where public names are defined; errors, where not listed, in `hbtvm.errors`."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: loading a package must not cost a compiler."""
    if name not in __all__:
        raise AttributeError(f"module 'hbtvm' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES.get(name, "hbtvm.errors")), name)
    except ModuleNotFoundError as error:
        from hbtvm.errors import explained  # only where something is missing

        raise (explained(error) or error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
