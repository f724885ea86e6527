"""Load the libraries of kernels and return their functions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tvm_ffi

from hbtvm.errors import PackageError
from hbtvm.runtime.cpu import LEVELS, host_features, missing_features


def check_cpu(features: Iterable[str]) -> None:
    """Check that this machine's CPU has the instruction sets that code was compiled for.

    Raises
    ------
    PackageError
        Names those that it lacks.
    """
    lacking = missing_features(list(features))
    if lacking:
        have = host_features() or frozenset()
        level = next(name for name, needs in LEVELS.items() if have.issuperset(needs))
        raise PackageError(
            f"the model was compiled for a CPU with {', '.join(lacking)}, which this machine lacks; "
            f'compile it again on this machine, or with --target \'{{"kind": "llvm", "mcpu": "{level}"}}\'.'
        )


def load_functions(libraries: Iterable[bytes]) -> list[tuple[Any, Any]]:
    """Load shared libraries and return the function ``main`` of each, twice.

    The first releases the interpreter's lock during a call, the second holds it: a thread that releases the
    lock may wait 5 ms until a busy thread hands it back, too long for a call of microseconds. The libraries
    stay in memory as long as their functions.

    Raises
    ------
    PackageError
        If one can't be loaded.
    """
    functions: list[tuple[Any, Any]] = []
    # Only this user can read or change what is in this folder. The dynamic loader identifies libraries by
    # their paths, so no path may be used twice, which rules out those below /proc/self/fd.
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        loaded: dict[bytes, tuple[Any, Any]] = {}
        for library in libraries:
            if library not in loaded:
                path = Path(folder, f"kernel{len(loaded)}.so")
                try:
                    path.write_bytes(library)
                    module = tvm_ffi.load_module(str(path), keep_module_alive=False)
                    loaded[library] = module.get_function("main"), module.get_function("main")
                except (OSError, RuntimeError, AttributeError) as error:
                    reason = str(error).strip().splitlines()[0].replace(str(path), "it")
                    raise PackageError(
                        f"a kernel's library can't be loaded from {folder}: {reason}."
                    ) from None
                # Explicitly, because an environment variable can change the default.
                for function, releases in zip(loaded[library], (True, False), strict=True):
                    function.release_gil = releases
            functions.append(loaded[library])
    return functions
