"""What to install where a library is missing that only a part of hbtvm needs."""

from __future__ import annotations

from hbtvm.errors import MissingPackageError

_TUNE = frozenset(("filelock", "rich", "scipy", "threadpoolctl", "tvm", "xgboost"))
"""Top-level modules of the extra ``tune``."""

_SERVE = frozenset(("httptools", "orjson", "prometheus_client", "uvloop"))
"""Top-level modules of the extra ``serve``."""


def explained(error: ModuleNotFoundError) -> MissingPackageError | None:
    """The error that says which extra brings a module; None for a module of no extra.

    Parameters
    ----------
    error
        As Python raised it.
    """
    module = (error.name or "").partition(".")[0]
    if module in _TUNE:
        what, extra = "tuning and compiling need", "tune"
    elif module == "pyarrow":
        what, extra = "batches of Arrow need", "parquet"
    elif module == "mlflow":
        what, extra = "its flavour of MLflow needs", "mlflow"
    elif module in _SERVE:
        what, extra = "serving needs", "serve"
    else:
        return None
    return MissingPackageError(
        f"{what} {module}, which is not installed: pip install 'hbtvm[{extra}]'", name=module
    )
