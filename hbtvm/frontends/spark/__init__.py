"""Spark ML's saved models, read without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.spark import pipeline
from hbtvm.frontends.spark.saved import LIBRARY, Folders, is_saved
from hbtvm.frontends.transformers.where import Estimator
from hbtvm.graph.graph import Graph
from hbtvm.words.printable import shown

__all__ = ["LIBRARY", "from_folder", "from_live", "is_saved"]

Estimators = Mapping[tuple[str, str], Estimator]


def from_folder(folder: Path, estimators: Estimators) -> Graph:
    """Read a saved model.

    `estimators`: the supported stages, by library and class.
    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if a stage is not supported. Raises
    `MissingPackageError` if pyarrow is not installed.
    """
    return pipeline.read(Folders().read(folder), estimators)


def from_live(model: Any, estimators: Estimators) -> Graph:
    """Read a model in memory: Spark saves it in a temporary folder, which only a local session can share.

    Raises `UnsupportedModel` if it can't be saved. Other errors as for `from_folder`.
    """
    kind = type(model).__name__
    save = 'save it first, model.write().overwrite().save("model"), and compile the folder'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        try:
            model.write().save(path.as_uri())
        except Exception as error:
            # Spark's code may raise anything.
            reason = shown(next(iter(str(error).splitlines()), ""), 160)
            raise UnsupportedModel(f"Spark does not save the {kind} here ({reason}); {save}.") from error
        if not is_saved(path):
            raise UnsupportedModel(f"Spark saved the {kind} on another machine; {save}.")
        try:
            return from_folder(path, estimators)
        except ModelError as error:
            raise type(error)(str(error).replace(str(path), "the model")) from error
