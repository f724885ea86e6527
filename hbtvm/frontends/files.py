"""Finds the front end for a model object or a model file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel, model_file_error
from hbtvm.frontends.recognize import FileKind, kind_of
from hbtvm.frontends.supported import refusal
from hbtvm.pipeline.pipeline import Pipeline

_HEAD = 600
"""Bytes by which a file's kind is told."""

_BY_ENDING: dict[str, FileKind] = {
    ".pkl": "pickle", ".pickle": "pickle", ".joblib": "pickle", ".json": "json", ".ubj": "ubjson",
    ".txt": "lightgbm",
}  # fmt: skip
"""Whose sentence refuses a file whose bytes are of no known kind (or reads it: the oldest pickles)."""

_UNKNOWN = (
    "expected a model file: a pickle (also of joblib), XGBoost's JSON or UBJSON, or LightGBM's text; "
    "its first bytes are of none of these."
)
_INSTEAD = {
    "xgboost-binary": (
        "this is XGBoost's old binary format, which XGBoost itself reads no more; load it with the XGBoost "
        'that wrote it and save it again with save_model("model.json").'
    ),
    "package": "this is a package that hbtvm compiled, no model to compile; use hbtvm.load or hbtvm predict.",
}
"""What is said of files that are understood, but are no model to read."""


def load_model(source: Any, *, trust: bool = False) -> Pipeline:
    """Read a trained model.

    Parameters
    ----------
    source
        A model object of a supported library, or the path of a file: a pickle, also of joblib (any
        supported object), what XGBoost's ``save_model`` writes (JSON or UBJSON), or LightGBM's (a
        text). The kind is told by the file's bytes, whatever its ending.
    trust
        Load pickles without checking what they call. A pickle can run any program, so only do
        this with files of your own.

    Returns
    -------
    Pipeline
        Everything that predicts as the library does.

    Raises
    ------
    ModelError
        If the file is missing, of an unknown kind or damaged.
    UnsupportedModel
        If the model is of a kind that is not supported.
    UntrustedPickle
        If a pickle needs anything that supported models don't.
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_file(Path(source), trust=trust)
    return from_object(source)


def from_object(model: Any) -> Pipeline:
    """Read a trained model object.

    Parameters
    ----------
    model
        A fitted estimator of scikit-learn, XGBoost or LightGBM, or a booster.

    Returns
    -------
    Pipeline
        Everything that predicts as the library does.

    Raises
    ------
    ModelError
        If the model is damaged.
    UnsupportedModel
        If the model is not fitted or of a kind that is not supported.
    """
    # The front ends, and with them the libraries, are imported only when a model needs them.
    if isinstance(model, type):
        raise UnsupportedModel(f"expected a trained model, got the class {model.__name__}.")
    kind = type(model)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if library == "lightgbm":
        from hbtvm.frontends import lightgbm_model

        if name in ("Booster", *lightgbm_model.ESTIMATORS):
            return lightgbm_model.from_object(model)
    elif library == "xgboost":
        from hbtvm.frontends import xgboost_model

        if name in ("Booster", *xgboost_model.ESTIMATORS):
            return xgboost_model.from_object(model)
    elif library == "sklearn":
        from hbtvm.frontends import sklearn_models

        if name in sklearn_models.ESTIMATORS:
            return sklearn_models.from_object(model)
    raise UnsupportedModel(refusal(library, name))


def _load_file(path: Path, *, trust: bool) -> Pipeline:
    if not path.is_file():
        what, number = (
            ("it is a folder", errno.EISDIR) if path.is_dir() else ("there is no such file", errno.ENOENT)
        )
        raise model_file_error(f"{path}: expected a model file, but {what}.", number, path)
    try:
        with open(path, "rb") as file:
            kind = kind_of(file.read(_HEAD))
        # A file that looks like nothing known is refused by the reader that its ending names.
        kind = _BY_ENDING.get(path.suffix.lower(), kind) if kind == "unknown" else kind
        if kind == "pickle":
            from hbtvm.frontends import safe_pickle

            return from_object(safe_pickle.load(path, trust=trust))
        if kind in _INSTEAD or kind == "unknown":
            raise ModelError(_INSTEAD.get(kind, _UNKNOWN))
        if kind == "lightgbm":
            from hbtvm.frontends import lightgbm_model

            return lightgbm_model.from_text(path.read_text(encoding="utf-8-sig"))
        from hbtvm.frontends import xgboost_model

        read = xgboost_model.from_json if kind == "json" else xgboost_model.from_ubjson
        return read(path.read_bytes())
    except ModelError as error:
        if str(error).startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: expected a LightGBM model text, but it is no text in UTF-8.") from error
    except OSError as error:
        raise model_file_error(
            f"{path}: the file can't be read ({error.strerror}).", error.errno or 0, path
        ) from error
