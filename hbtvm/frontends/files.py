"""Finds the front end for a model object or a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.frontends import pickles, registry
from hbtvm.pipeline.pipeline import Pipeline

_PICKLES = (".pkl", ".pickle", ".joblib")
_SUFFIXES = (*_PICKLES, ".json", ".ubj", ".txt")


def load_model(source: Any, *, max_bytes: int | None = None) -> Pipeline:
    """Read a trained model.

    Parameters
    ----------
    source
        A model object of a supported library, or the path of a file: ``.pkl``, ``.pickle`` or
        ``.joblib`` (any supported object), ``.json`` or ``.ubj`` (XGBoost), ``.txt`` (LightGBM).
    max_bytes
        Bytes to which a compressed pickle may expand, 4 GiB if not given; a number given here is
        also how much memory a pickle's objects may take, where that is more than its size warrants.

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
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_file(Path(source), max_bytes)
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
    registry.require_supported(model)
    return registry.read(pickles.from_live(model))


def _load_file(path: Path, max_bytes: int | None) -> Pipeline:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ModelError(
            f"{path}: expected a file ending in {', '.join(_SUFFIXES)}; got {suffix or 'no ending'!r}."
        )
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ModelError(f"{path}: expected a model file, but {what}.")
    try:
        if suffix in _PICKLES:
            return registry.read(pickles.load(path, max_bytes))
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
        raise ModelError(f"{path}: the file can't be read ({error.strerror}).") from error
