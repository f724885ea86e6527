"""What to install where a library is missing that only a part of hbtvm needs."""

from __future__ import annotations

from hbtvm.errors import MissingPackageError

_TUNE = frozenset(("filelock", "rich", "scipy", "threadpoolctl", "tvm", "xgboost"))
"""Top-level modules of the extra ``tune``."""


def explained(error: ModuleNotFoundError) -> MissingPackageError | None:
    """The error that says which extra brings a module; None for a module of no extra.

    Parameters
    ----------
    error
        As Python raised it.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _TUNE:
        return None
    return MissingPackageError(
        f"tuning and compiling need {module}, which is not installed: pip install 'hbtvm[tune]'", name=module
    )
