"""Finds the front end for a model object or a model file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel, model_file_error
from hbtvm.frontends.supported import refusal
from hbtvm.pipeline.pipeline import Pipeline

_PICKLES = (".pkl", ".pickle", ".joblib")
_SUFFIXES = (*_PICKLES, ".json", ".ubj", ".txt")


def load_model(source: Any, *, trust: bool = False) -> Pipeline:
    """Read a trained model.

    Parameters
    ----------
    source
        A model object of a supported library, or the path of a file: ``.pkl``, ``.pickle`` or
        ``.joblib`` (any supported object), ``.json`` or ``.ubj`` (XGBoost), ``.txt`` (LightGBM).
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
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ModelError(
            f"{path}: expected a file ending in {', '.join(_SUFFIXES)}; got {suffix or 'no ending'!r}."
        )
    if not path.is_file():
        what, number = (
            ("it is a folder", errno.EISDIR) if path.is_dir() else ("there is no such file", errno.ENOENT)
        )
        raise model_file_error(f"{path}: expected a model file, but {what}.", number, path)
    try:
        if suffix in _PICKLES:
            from hbtvm.frontends import safe_pickle

            return from_object(safe_pickle.load(path, trust=trust))
        if suffix == ".txt":
            from hbtvm.frontends import lightgbm_model

            return lightgbm_model.from_text(path.read_text(encoding="utf-8"))
        from hbtvm.frontends import xgboost_model

        if suffix == ".json":
            return xgboost_model.from_json(path.read_bytes())
        return xgboost_model.from_ubjson(path.read_bytes())
    except ModelError as error:
        if str(error).startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: expected a LightGBM model text, but it is no text.") from error
    except OSError as error:
        raise model_file_error(
            f"{path}: the file can't be read ({error.strerror}).", error.errno or 0, path
        ) from error
