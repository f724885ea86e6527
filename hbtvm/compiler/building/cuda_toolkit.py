"""Paths of the programs of NVIDIA's CUDA toolkit on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hbtvm.errors import BuildError


def find(program: str) -> str | None:
    """Return the path of a program of the toolkit; None if there is none.

    Searches the ``PATH``, ``$CUDA_HOME``, ``$CUDA_PATH``, ``/usr/local/cuda``, and NVIDIA's Python packages,
    in this order.
    """
    return next(filter(None, (shutil.which(program, path=folder) for folder in _folders())), None)


def _folders() -> Iterator[str | None]:
    yield None  # the PATH
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    yield from (os.path.join(home, "bin") for home in homes if home)
    for place in sys.path:
        yield from map(str, sorted(Path(place, "nvidia").glob("cu*/bin"), reverse=True))


def nvcc() -> str:
    """Return the path of the CUDA compiler.

    Raises `BuildError` if there is none.
    """
    path = find("nvcc")
    if path is None:
        raise BuildError(
            "no CUDA compiler was found (looked for nvcc on the PATH, in $CUDA_HOME, in /usr/local/cuda and "
            "in Python packages); pip install 'hbtvm[nvcc]' brings one, as NVIDIA's CUDA toolkit does"
        )
    return path


def toolkit_version() -> str:
    """Return the CUDA compiler's version, such as ``"13.0"``; empty if it does not say.

    Raises `BuildError` if there is none.
    """
    done = subprocess.run([nvcc(), "--version"], capture_output=True, text=True)
    match = re.search(r"release ([0-9]+\.[0-9]+)", done.stdout)
    return match.group(1) if match else ""
