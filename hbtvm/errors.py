"""Errors with one clear sentence each: what was found, and what would be right."""

from __future__ import annotations


class HbtvmError(Exception):
    """Base of every error that hbtvm raises on purpose; its text is meant for the user."""


class ModelError(HbtvmError):
    """The model, or the file that should hold it, can't be read."""


class UnsupportedModel(ModelError):
    """The model was understood, but is of a kind that hbtvm does not compile."""


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
