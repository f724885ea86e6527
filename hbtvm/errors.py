"""Errors, each with a sentence that states the problem and valid values.

All are importable from `hbtvm`. Each is both an `HbtvmError` and an error of Python, so that code that does
not know hbtvm handles it like other libraries' errors:

=======================  ==============================================================
`InputError`             `ValueError`; `InputTypeError` is also a `TypeError`, `NoMethodError`
                         an `AttributeError`
`ModelError`             `ValueError`; `UnsupportedModel` is also a `TypeError`
`PackageError`           `ValueError`
`TargetError`            `ValueError`
`DeviceError`            `RuntimeError`
`BuildError`             `RuntimeError`
`MissingPackageError`    `ImportError`, with ``name``
`FileError`              `OSError`, with ``errno`` and ``filename``
`ModelFileError`         `ModelError` and `FileError`
`ModelNotFoundError`     `ModelFileError` and `FileNotFoundError`
`PackageFileError`       `PackageError` and `FileError`
`PackageNotFoundError`   `PackageFileError` and `FileNotFoundError`
=======================  ==============================================================
"""

from __future__ import annotations

import errno
import re
from typing import Any


class HbtvmError(Exception):
    """Base of every error that hbtvm raises on purpose; its text is meant for the user."""


class FileError(HbtvmError, OSError):
    """A file can't be read or written.

    Parameters
    ----------
    text
        The sentence, which ``str`` of the error returns.
    number
        The operating system's error number; None if unknown.
    filename
        The file.
    """

    def __init__(self, text: str, number: int | None = None, filename: str | None = None) -> None:
        super().__init__(text)
        self.errno = number
        self.filename = filename

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.errno, self.filename)


class ModelError(HbtvmError, ValueError):
    """The model, or the file that should hold it, can't be read."""


class ModelFileError(FileError, ModelError):
    """The operating system does not let hbtvm read the model's file."""


class ModelNotFoundError(ModelFileError, FileNotFoundError):
    """There is no such model file."""


class UnsupportedModel(ModelError, TypeError):
    """hbtvm does not compile this kind of model."""


ROW = "\0"  # stands for the number of the row in the text of an `InputError`


class InputError(HbtvmError, ValueError):
    """The rows, the requested output or an option don't fit the model.

    `row`: position of the row that does not fit, counted from 0; None if the error is not about a row.
    """

    def __init__(self, text: str = "", row: int | None = None) -> None:
        super().__init__(*((text,) if row is None else (text, row)))
        self.row = row

    def __str__(self) -> str:
        return str(self.args[0]).replace(ROW, str(self.row))

    def counted(self, before: int) -> str:
        """Return the text with rows and columns counted from 1, as users of files do.

        `before`: number of the file's rows before those of the call.
        """
        text = re.sub(r"^column (\d+)\b", lambda match: f"column {int(match[1]) + 1}", str(self.args[0]))
        return text if self.row is None else text.replace(ROW, str(before + self.row + 1))


class InputTypeError(InputError, TypeError):
    """An argument has the wrong type."""


class NoMethodError(InputError, AttributeError):
    """The model lacks a method, such as `predict_proba` of a regressor; `hasattr` is false."""


class PackageError(HbtvmError, ValueError):
    """A compiled package is missing, damaged, or for another machine or release."""


class PackageFileError(FileError, PackageError):
    """The operating system does not let hbtvm read or write the package's file."""


class PackageNotFoundError(PackageFileError, FileNotFoundError):
    """There is no such package file."""


class TargetError(HbtvmError, ValueError):
    """The target machine is unknown or can't run the code."""


class DeviceError(HbtvmError, RuntimeError):
    """The devices to measure or predict on are not available."""


class BuildError(HbtvmError, RuntimeError):
    """Compiling the model failed."""


class MissingPackageError(HbtvmError, ImportError):
    """A library that a part of hbtvm needs is not installed; prediction on a CPU needs only numpy."""


def package_file_error(text: str, error: OSError, path: object) -> PackageFileError:
    """Return the `PackageFileError` for the operating system's error on a path."""
    kind = PackageNotFoundError if error.errno == errno.ENOENT else PackageFileError
    return kind(text, error.errno, str(path))


def model_file_error(text: str, number: int, path: object) -> ModelFileError:
    """Return the `ModelFileError` for the operating system's error number on a path."""
    kind = ModelNotFoundError if number == errno.ENOENT else ModelFileError
    return kind(text, number, str(path))


_TUNE = frozenset(("filelock", "rich", "scipy", "threadpoolctl", "tvm", "xgboost"))
"""Top-level modules of the extra ``tune``."""

_SERVE = frozenset(("httptools", "orjson", "prometheus_client", "uvloop"))
"""Top-level modules of the extra ``serve``."""


def missing_package(needs: str, module: str | None, install: str) -> MissingPackageError:
    """Return the error that a module is not installed.

    `needs`: the feature, with a verb, such as ``"serving needs"``.
    `install`: the requirement for pip, such as ``"hbtvm[serve]"``.
    """
    quoted = f"'{install}'" if "[" in install else install
    return MissingPackageError(f"{needs} {module}, which is not installed: pip install {quoted}", name=module)


def explained(error: ModuleNotFoundError) -> MissingPackageError | None:
    """Return the error that names the extra with a missing module; None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    if module in _TUNE:
        purpose, extra = "tuning and compiling need", "tune"
    elif module == "pyarrow":
        purpose, extra = "batches of Arrow need", "parquet"
    elif module == "mlflow":
        purpose, extra = "its flavour of MLflow needs", "mlflow"
    elif module in _SERVE:
        purpose, extra = "serving needs", "serve"
    else:
        return None
    return missing_package(purpose, module, f"hbtvm[{extra}]")
