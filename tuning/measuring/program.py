"""The interface of tensor programs that the tuner builds and measures.

Workers look a program up by its name, ``"package.module:attribute"``, and import nothing else. The attribute
is a factory that turns a task's payload into a `Program`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from typing import Any, Protocol, cast

from hbtvm.schedules.space import Choice, Config

OBJECT = ".o"  # suffix of a library's name for the object that it was linked from


class InvalidConfigError(ValueError):
    """The program cannot turn the configuration into code."""


class Runnable(Protocol):
    """A loaded candidate."""

    def check(self) -> str | None:
        """Compare the output with the reference; return None or a sentence on the difference."""
        ...

    def run(self, number: int) -> float:
        """Run `number` times in a row, and return the total seconds.

        The program chooses the clock, synchronisation and cache state; the tuner chooses `number`.
        """
        ...


class Program(Protocol):
    """A tensor program with knobs."""

    def build(self, config: Config, library_path: str) -> str | None:
        """Compile a candidate into a shared library; its object may stay at ``library_path + OBJECT``.

        Returns a fingerprint of everything that affects the run (see `fingerprint`): candidates of a task
        with equal fingerprints are measured once. None if unknown. Raises `InvalidConfigError` if the
        configuration is invalid; any other error is a failed build.
        """
        ...

    def load(self, config: Config, library_path: str) -> Runnable:
        """Load a built library, perhaps in another process."""
        ...


class Factory(Protocol):
    """Makes a program from a task's payload."""

    def __call__(self, payload: dict[str, Any]) -> Program: ...


def resolve(name: str) -> Factory:
    """Import the factory that ``"package.module:attribute"`` names.

    Raises `ValueError` if the name is not of that form. Raises `ImportError`, `AttributeError` if there is no
    such module or attribute.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"program {name!r} is not of the form 'package.module:attribute'")
    return cast(Factory, getattr(importlib.import_module(module), attribute))


def fingerprint(library_path: str, **runtime: Choice) -> str:
    """Return the digest of a library and of the knobs that act at run time, such as threads.

    TVM's libraries hold no time or path, so equal code has equal bytes.
    """
    digest = hashlib.sha256(json.dumps(runtime, sort_keys=True).encode())
    with open(library_path, "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()
