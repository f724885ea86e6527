"""Check the files that commands read and write, before any work is done."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hbtvm import atomic
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.show import print_line
from hbtvm.errors import HbtvmError, PackageError
from hbtvm.words.names import MODEL_ENDINGS

if TYPE_CHECKING:
    from hbtvm.logs.store import ReadResult
    from hbtvm.runtime.model import Model


def existing(path: str, what: str) -> Path:
    """Return the path of a readable file, else raise a `UsageError` that names the expected `what`."""
    file = Path(path)
    with _reachable(path):
        if file.is_dir() and _holds_model(file, what):
            return file
        if file.is_dir():
            raise UsageError(f"{path}: this is a folder, expected {what}")
        if not file.exists():
            raise UsageError(f"{path}: there is no such file, expected {what}{_download(path, what)}")
        if not os.access(file, os.R_OK):
            raise UsageError(f"{path}: no permission to read {what}")
    _check_kind(file, what)
    return file


def _download(path: str, what: str) -> str:
    """Return how to download the model of an MLflow URI; empty for other paths."""
    if ":/" not in path or "a trained model" not in what:
        return ""
    from hbtvm.frontends.mlflow_folder import download

    return download(path)


def _holds_model(folder: Path, what: str) -> bool:
    """Return whether a folder is a trained model, and a model is expected.

    Raises `UsageError` if a package is expected. Raises `ModelError` if an MLflow folder holds no supported
    model.
    """
    from hbtvm.frontends.folders import kind_of_folder
    from hbtvm.frontends.mlflow_folder import model_file

    kind = kind_of_folder(folder) if what.startswith(("a package", "a trained model")) else None
    if kind is None:
        return False
    if kind == "MLflow":
        model_file(folder)
    if "a trained model" not in what:
        raise UsageError(
            f"{folder}: this is a model of {kind}, expected {what}; compile it first: hbtvm compile {folder}"
        )
    return True


def _check_kind(path: Path, what: str) -> None:
    """Refuse another kind of file, and name the command for it."""
    # Logs and data may have any name, and reading a pipe would consume it.
    if not what.startswith(("a package", "a trained model")) or not path.is_file():
        return
    kind = _kind(path)
    uses = {
        "a package": f"predict with it: hbtvm predict {path} DATA.csv",
        "a tuning log": f"look into it: hbtvm log best {path}",
        "a trained model": f"compile it first: hbtvm compile {path}",
    }
    if kind and kind not in what:
        raise UsageError(f"{path}: this seems to be {kind}, expected {what}; {uses[kind]}")


def _kind(path: Path) -> str:
    """Return the kind of a file, by its first bytes or its name; empty if unknown."""
    with _reachable(path), open(path, "rb") as file:
        start = file.read(262)
    if start[257:] == b"ustar":
        return "a package"
    suffix = path.suffix.lower()
    if suffix in MODEL_ENDINGS:
        return "a trained model"
    return "a tuning log" if suffix == ".jsonl" else ""


def writable(path: str | Path) -> Path:
    """Return a path that can be written, else raise a `UsageError`; creates an unnamed file beside it."""
    out = Path(path)
    with _reachable(path):
        if out.is_dir():
            raise UsageError(f"{path}: this is a folder, expected the name of a file to write")
        if out.exists() and not out.is_file():
            raise UsageError(f"{path}: this is not a regular file, so it can't be replaced")
        if not out.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {out.parent}")
    try:
        with tempfile.TemporaryFile(dir=out.parent):  # without a name, so that a killed process leaves none
            pass
    except OSError as error:
        raise UsageError(f"{path}: nothing can be written in {out.parent} ({error.strerror})") from error
    return out


@contextlib.contextmanager
def _reachable(path: str | Path) -> Iterator[None]:
    """Turn the operating system's errors about a path into usage errors."""
    try:
        yield
    except OSError as error:  # a locked folder, a name that is too long, ...
        raise UsageError(f"{path}: {error.strerror}") from error


def package_path(out: str | None, model: str) -> Path:
    """Return the path of a model's package, checked like `writable`; it must end in ``.tar``.

    `given`: the user's path; None for the model's name in the current folder.
    `model`: the model file.
    """
    if out is None:
        named = Path(model)
        return writable(Path((named.resolve().name if named.is_dir() else named.stem) + ".tar"))
    # A mistake such as "-o other_model.pkl" must not overwrite that model.
    if Path(out).suffix != ".tar":
        raise UsageError(f"{out}: the name of a package must end in .tar")
    return writable(out)


def tuning_log(path: str, *, noted: bool = True) -> Path:
    """Return the path of a tuning log to append to or create, else raise a `UsageError`.

    `noted`: whether to note skipped lines, as `read_log` does.
    """
    log = Path(path)
    with _reachable(path):
        if log.is_char_device():  # such as /dev/null
            return log
        if not log.exists():
            return writable(log)
    existing(path, "a tuning log")
    if not os.access(log, os.W_OK):
        raise UsageError(f"{path}: no permission to write this tuning log")
    read_log(path, noted=noted)
    return log


def readable_log(path: str) -> Path:
    """Return the path of a readable tuning log, checked by its first bytes, else raise a `UsageError`."""
    log = existing(path, "a tuning log")
    if not log.is_file():  # a pipe can be read only once
        return log
    with _reachable(path), open(log, "rb") as file:
        start = file.read(4096)
    if start.startswith(b"\x80") or b"\0" in start:
        what = "a pickle" if start.startswith(b"\x80") else "a binary file"
        raise UsageError(f"{path}: this is {what}, expected a tuning log (lines of JSON)")
    return log


def read_log(path: str, *, noted: bool = True) -> ReadResult:
    """Read a tuning log, and note skipped lines on standard error.

    Raises `UsageError` as `readable_log`; or if the log has lines, but none is a record.
    """
    from hbtvm.logs.store import Log

    read = Log(readable_log(path)).read()
    if read.skipped and not read.records:
        raise UsageError(f"{path}: this is not a tuning log, or has another version: no line can be read")
    if noted:
        print_notes(read.note(path))
    return read


def print_notes(*notes: str) -> None:
    """Print notes that are not empty to standard error."""
    for note in filter(None, notes):
        print_line(f"hbtvm: {note}", sys.stderr)


def save(model: Model, out: Path, consolation: str = "") -> None:
    """Write a package to a checked path; raises an `HbtvmError` that ends in `consolation`."""
    try:
        model.save(out)
    except (OSError, PackageError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        where = "" if str(out) in reason else f"{out} could not be written: "
        raise HbtvmError(f"{where}{reason}" + (f"; {consolation}" if consolation else "")) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replace a file as `atomic.replacing` does, and remove leftovers of killed runs."""
    path = Path(os.path.realpath(path))  # replace a link's target
    atomic.clear(path.parent, path.name)
    with atomic.replacing(path) as temporary:
        yield temporary
