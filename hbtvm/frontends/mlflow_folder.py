"""MLflow's model folders: which file of a folder holds the model, by the folder's ``MLmodel``.

``MLmodel`` is YAML that MLflow writes in block style. Only its ``flavors`` are read, two levels of keys with
plain values, so that a default installation needs no YAML library.
"""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

from hbtvm.errors import ModelError, model_file_error
from hbtvm.words.printable import shown

DESCRIPTION = "MLmodel"
_MOST_BYTES = 16 << 20  # signatures of wide models take some MB

_LONGEST = 255  # characters of a value, as of a file's name

_FILES = {
    "sklearn": ("pickled_model",),
    "xgboost": ("data",),
    "lightgbm": ("data",),
    "catboost": ("data",),
    "onnx": ("data",),
}
"""Keys of the model's file by flavour, in order of preference."""

_LINE = re.compile(r"( *)([A-Za-z_][\w.]*):(?: (.*))?")


def download(path: object) -> str:
    """Return how to download the model of an MLflow URI, for an error; empty for other paths."""
    if not re.match(r"(models|runs|mlflow-artifacts):/", str(path)):
        return ""
    return f"; download it first, to compile its folder: mlflow artifacts download -u {path} -d FOLDER"


def is_mlflow(path: Path) -> bool:
    """Return whether a path is the folder of an MLflow model."""
    return path.is_dir() and (path / DESCRIPTION).is_file()


def model_file(folder: Path) -> Path:
    """Return the file of an MLflow model's folder that holds the model.

    Raises `ModelError` if the folder holds no model of a supported flavour, or its ``MLmodel`` is damaged.
    """
    description = folder / DESCRIPTION
    try:
        content = description.read_bytes()[: _MOST_BYTES + 1]
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{description}: expected MLflow's description of a model in UTF-8.") from error
    except OSError as error:
        number, reason = error.errno or 0, error.strerror
        raise model_file_error(
            f"{description}: the file can't be read ({reason}).", number, description
        ) from error
    if len(content) > _MOST_BYTES:
        raise ModelError(
            f"{description}: MLflow's description of a model has more than {_MOST_BYTES >> 20} MB."
        )
    flavors = _flavors(text)
    for flavor, keys in _FILES.items():
        for name in filter(None, (flavors.get(flavor, {}).get(key) for key in keys)):
            return _within(folder, flavor, name)
    raise ModelError(f"{folder}: {_refusal(folder, flavors)}")


def _within(folder: Path, flavor: str, name: str) -> Path:
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelError(f"{folder}: its MLmodel is damaged: {shown(name, 80)!r} is outside of the folder.")
    if not path.exists():
        raise model_file_error(
            f"{folder}: its MLmodel names {shown(name, 80)!r} for the flavour {flavor}, and there is no such "
            "file; download the whole folder.",
            errno.ENOENT,
            path,
        )
    return path


def _refusal(folder: Path, flavors: dict[str, dict[str, str]]) -> str:
    """Return why a folder holds no supported model, and the next step."""
    package = flavors.get("hbtvm", {}).get("data")
    if package:
        return f"it holds a package that hbtvm compiled, not a model; pass the package, {folder / package}."
    if not flavors:
        return "its MLmodel lists no flavours; expected a folder that mlflow.<flavour>.save_model wrote."
    held = ", ".join(shown(name, 40) for name in list(flavors)[:8])
    return (
        f"it holds an MLflow model of the flavour {held}; supported are {', '.join(_FILES)}: save the model "
        "within it by one of these, such as mlflow.sklearn.save_model(model, folder)."
    )


def _flavors(text: str) -> dict[str, dict[str, str]]:
    """Return the texts of the flavours' plain values, by flavour and key."""
    flavors: dict[str, dict[str, str]] = {}
    inside, outer, inner = False, 0, 0
    values: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        indent, key, value = len(match[1]), match[2], match[3] or ""
        if not indent:
            inside, outer, inner = key == "flavors", 0, 0
        elif inside:
            outer = outer or indent
            if indent == outer:
                values, inner = flavors.setdefault(key, {}), 0
            else:
                inner = inner or indent
                plain = _plain(value)
                if indent == inner and plain.isprintable() and 0 < len(plain) <= _LONGEST:
                    values.setdefault(key, plain)
    return flavors


def _plain(value: str) -> str:
    """Return the text of a value in one line; empty for others."""
    value = value.strip()
    if value[:1] == '"':
        try:
            text = json.loads(value)
        except ValueError:
            return ""
        return text if isinstance(text, str) else ""
    if value[:1] == "'":
        return value[1:-1].replace("''", "'") if len(value) > 1 and value[-1] == "'" else ""
    return "" if value in ("null", "~", "{}", "[]") else value
