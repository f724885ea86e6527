"""Folders that are trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hbtvm.frontends.mlflow_folder import is_mlflow
from hbtvm.frontends.spark import is_saved
from hbtvm.frontends.ydf.files import is_folder as is_ydf

FolderKind = Literal["MLflow", "YDF", "Spark"]


def kind_of_folder(path: Path) -> FolderKind | None:
    """Return the library that wrote a model's folder; None for other folders, and for files."""
    if not path.is_dir():
        return None
    if is_mlflow(path):
        return "MLflow"
    if is_ydf(path):
        return "YDF"
    if is_saved(path):
        return "Spark"
    return None
