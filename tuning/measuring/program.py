"""What the tuner asks of a tensor program.

A program is named by a string, ``"package.module:attribute"``, because it is looked up
inside worker processes: only that module decides what a worker imports. The attribute is
a factory that turns a task's payload into a `Program`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from typing import Any, Protocol, cast

from hbtvm.schedules.space import Choice, Config

OBJECT = ".o"
"""What is added to the name of a library for that of the object that it was linked from."""


class InvalidConfigError(ValueError):
    """Raised by a program for a configuration that it cannot turn into code."""


class Runnable(Protocol):
    """One compiled candidate, loaded and ready to be timed."""

    def check(self) -> str | None:
        """Compare its output with the reference.

        Returns
        -------
        None where it agrees, else one sentence that says how it differs.
        """
        ...

    def run(self, number: int) -> float:
        """Run `number` times in a row; return the seconds that all of them took together.

        The program decides how it is timed (clock, device synchronisation, cold or warm
        cache); the tuner decides how often.
        """
        ...


class Program(Protocol):
    """A tensor program that becomes code once its knobs are chosen."""

    def build(self, config: Config, library_path: str) -> str | None:
        """Compile a candidate and write it as a shared library.

        The object that it was linked from may stay beside it, at ``library_path + OBJECT``.

        Returns
        -------
        A fingerprint of everything that decides how the candidate runs (see `fingerprint`):
        candidates of one task that share it are measured once. None makes no such claim.

        Raises
        ------
        InvalidConfigError
            If the configuration makes no sense; any other error is a failed build.
        """
        ...

    def load(self, config: Config, library_path: str) -> Runnable:
        """Load what `build` wrote, perhaps in another process."""
        ...


class Factory(Protocol):
    """Makes the program that a task's payload describes."""

    def __call__(self, payload: dict[str, Any]) -> Program: ...


def resolve(name: str) -> Factory:
    """Import the factory that ``"package.module:attribute"`` names.

    Raises
    ------
    ValueError
        If the name is not of that form.
    ImportError, AttributeError
        If there is no such module or attribute.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"program {name!r} is not of the form 'package.module:attribute'")
    return cast(Factory, getattr(importlib.import_module(module), attribute))


def fingerprint(library_path: str, **runtime: Choice) -> str:
    """Digest of a library and of the knobs that act only when it runs (e.g. threads).

    Libraries that TVM exports hold no time or path, so equal code has equal bytes.
    """
    digest = hashlib.sha256(json.dumps(runtime, sort_keys=True).encode())
    with open(library_path, "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()
