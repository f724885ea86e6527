"""Errors with one clear sentence each: what was found, and what would be right."""

from __future__ import annotations


class HbtvmError(Exception):
    """Base of every error that hbtvm raises on purpose; its text is meant for the user."""


class ModelError(HbtvmError):
    """The model, or the file that should hold it, can't be read."""


class UnsupportedModel(ModelError):
    """The model was understood, but is of a kind that hbtvm does not compile."""


class UntrustedPickle(ModelError):
    """A pickle file wants something that no supported model needs; loading it could run code."""


class InputError(HbtvmError):
    """The rows to predict, or the output asked for, don't fit the model."""


class PackageError(HbtvmError):
    """A compiled package is missing, damaged, or made for something else."""


class TargetError(HbtvmError):
    """The target machine is unknown or can't run what is asked."""


class DeviceError(HbtvmError):
    """The devices to measure on can't be had."""


class BuildError(HbtvmError):
    """Compiling the model failed."""


def shown(text: object, most: int = 80) -> str:
    """Text out of a file, fit for an error message or a terminal.

    Control characters, terminal escapes and half characters are written as Python writes them in a
    string (``\\x1b``), and what is longer than `most` characters is cut, its end marked with ``...``.

    Parameters
    ----------
    text
        A string; anything else is turned into one first, so only pass what is short.
    most
        Longest result in characters, at least 4.
    """
    words = str(text)
    # No more is looked at than can be shown: a name in a file may be a megabyte long.
    parts = []
    for letter in words[: most + 1]:
        parts.append(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii"))
    clean = "".join(parts)
    return clean if len(clean) <= most else clean[: most - 3] + "..."
