"""Start TVM without torch in workers and commands.

TVM's foreign function interface imports torch if it is installed, for tensor conversions that neither uses;
the import takes longer than the rest of the start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Hidden(MetaPathFinder):
    """Hides torch from TVM's import; later imports find it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if fullname == "torch" and any(map(_is_starting, ("tvm_ffi", "tvm"))):
            raise ModuleNotFoundError("torch is hidden while TVM starts", name="torch")


def _is_starting(name: str) -> bool:
    """Return whether the import system is still executing a module."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def start_without_torch() -> None:
    """Keep TVM from importing torch in this process, unless it was imported before."""
    if not any(isinstance(finder, _Hidden) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hidden())
