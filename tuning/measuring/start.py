"""Processes of this project's own start TVM without torch.

TVM's foreign function interface imports torch wherever it is installed, which takes longer than all the rest
of a start, to convert tensors faster that searches and commands do not use.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Hidden(MetaPathFinder):
    """Finds no torch for TVM, which goes on without; later imports find it as ever."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """See `importlib.abc.MetaPathFinder`; always None."""
        if fullname == "torch" and any(map(_is_starting, ("tvm_ffi", "tvm"))):
            raise ModuleNotFoundError("torch is hidden while TVM starts", name="torch")


def _is_starting(name: str) -> bool:
    """Return whether a module is still being executed, which the import system marks so."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def start_without_torch() -> None:
    """Keep TVM from importing torch in this process, where it was not imported before."""
    if not any(isinstance(one, _Hidden) for one in sys.meta_path):
        sys.meta_path.insert(0, _Hidden())
