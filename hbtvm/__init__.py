"""Compile trained tree ensembles into fast, exact, self-contained packages.

`tune` and `compile` take a trained scikit-learn, XGBoost or LightGBM model, as an object
or a file, and return a model that predicts the same; `load` reads a saved model's package, and `export`
writes it as a library for C. Errors are `HbtvmError`, or `LogError` if a tuning log can't be read or written;
`hbtvm.errors` lists them. Importing `hbtvm` imports neither the compiler nor a training library.

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
    from hbtvm.api import compile, search
    from hbtvm.cli.interactive import tune
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
        NoMethodError,
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
    "NoMethodError",
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
    "tune": "hbtvm.cli.interactive",
    "Model": "hbtvm.runtime.model",
    "load": "hbtvm.runtime.model",
    "LogError": "hbtvm.logs.store",
}
"""Modules of public names; unlisted errors are in `hbtvm.errors`."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that loading a package does not import the compiler."""
    if name not in __all__:
        raise AttributeError(f"module 'hbtvm' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES.get(name, "hbtvm.errors")), name)
    except ModuleNotFoundError as error:
        from hbtvm.errors import explained  # only if a package is missing

        raise (explained(error) or error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
