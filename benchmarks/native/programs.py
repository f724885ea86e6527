"""Programs in C that time one library each."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.peers.processes import PeerError, Process

_FOLDER = Path(__file__).parent


def compiled(source: str | None, to: Path, *more: str, limit: float = 600.0) -> Path:
    """Compile the program of a library.

    Parameters
    ----------
    source
        The file in this folder that adapts it, without its ending; None if that is in `more`.
    to
        The program.
    more
        Further arguments of the compiler: objects and libraries to link, definitions.
    limit
        Most seconds that it may take.

    Raises
    ------
    PeerError
        If the compiler is missing or refuses.
    """
    sources = [str(_FOLDER / f"{name}.c") for name in ("driver", source) if name is not None]
    command = [
        "gcc",
        "-std=c11",
        "-O2",
        "-fopenmp",
        "-o",
        str(to),
        *sources,
        *more,
        "-ldl",
        "-lm",
        "-lpthread",
    ]
    _compile(command, limit)
    return to


def _compile(command: list[str], limit: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"compile: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise PeerError(f"compile: {next((line for line in lines if 'error' in line), lines[-1])}")


def compiled_cpp(source: str, to: Path, *more: str, limit: float = 600.0) -> Path:
    """Compile the program of a library in C++ for this CPU; otherwise as `compiled`."""
    made = to.with_suffix(".o")
    command = [
        "g++",
        "-std=c++17",
        "-O3",
        "-march=native",
        "-fopenmp",
        "-c",
        str(_FOLDER / f"{source}.cpp"),
        "-o",
    ]
    _compile([*command, str(made), *more], limit)
    return compiled(None, to, str(made), "-lstdc++", limit=limit)


class Program(Process):
    """A program that was `compiled`, in a process of its own; what it is asked is told in driver.c.

    Parameters
    ----------
    program
        Its file.
    arguments
        By name, as the source that adapts the library reads them.
    threads
        Threads that it may use.
    log
        Gets what the library prints.
    """

    def __init__(self, program: Path, arguments: dict[str, Any], threads: int, log: TextIO) -> None:
        command = [str(program), *(f"{name}={value}" for name, value in arguments.items())]
        self._start(command, threads, log)

    def _line(self, do: str, request: dict[str, Any]) -> str:
        return " ".join([do, *map(str, request.values())])

    def ask(self, do: str, limit: float = 120.0, **request: Any) -> Any:
        """Ask, and wait for the answer; as `Process.ask`, to which outputs are left as numpy saves them."""
        answer = super().ask(do, limit, **request)
        if do == "outputs":
            values = np.fromfile(request["to"], np.float64).reshape(answer)
            np.save(request["to"], values)
        return answer


def package_folder(python: str, package: str) -> Path:
    """Where a package is installed.

    Parameters
    ----------
    python
        The interpreter of its environment.

    Raises
    ------
    PeerError
        If it is not installed.
    """
    code = f"import importlib.util as u; s = u.find_spec({package!r}); print(s.submodule_search_locations[0])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise PeerError(f"{package} is not installed")
    return Path(done.stdout.strip())


def shared_library(folder: Path, pattern: str) -> Path:
    """The shared library in a folder of a package.

    Raises
    ------
    PeerError
        If there is none.
    """
    found: Sequence[Path] = sorted(folder.glob(pattern))
    if not found:
        raise PeerError(f"there is no {pattern} in {folder.name}")
    return found[0]
