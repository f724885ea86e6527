"""Choose the front end for a model object or a model file."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path
from typing import Any, Literal

from hbtvm.errors import ModelError, model_file_error
from hbtvm.frontends import pickles, registry, skops, spark
from hbtvm.frontends.folders import kind_of_folder
from hbtvm.frontends.mlflow_folder import download, is_mlflow, model_file
from hbtvm.frontends.recognize import FileKind, kind_of
from hbtvm.frontends.treelite import model as treelite_model
from hbtvm.frontends.ydf import model as ydf_model
from hbtvm.graph.graph import Graph

_HEAD = 600  # bytes that identify a file's kind

Kind = FileKind | Literal["pt2", "torch", "skops", "ydf", "spark"]
"""`FileKind`, the archives of ``torch.export.save``, ``torch.save`` and skops, and folders of libraries."""

_BY_ENDING: dict[str, Kind] = {
    ".pkl": "pickle", ".pickle": "pickle", ".joblib": "pickle", ".json": "json", ".ubj": "ubjson",
    ".txt": "lightgbm", ".onnx": "onnx", ".rec": "rec", ".pt2": "pt2", ".skops": "skops",
    ".cbm": "catboost",
}  # fmt: skip
"""Kinds by ending for files of unknown bytes, which their readers refuse (but for the oldest pickles)."""

_UNKNOWN = (
    "expected a model file: a pickle (also of joblib), XGBoost's JSON or UBJSON, LightGBM's text, CatBoost's "
    ".cbm or JSON, ONNX, skops, treelite, a recursive model (.rec), or the module of a recursive model's "
    "cell (.pt2); its first bytes are of none of these."
)
_INSTEAD = {
    "xgboost-binary": (
        "this is XGBoost's old binary format, which XGBoost itself no longer reads; load it with the XGBoost "
        'that wrote it and save it again with save_model("model.json").'
    ),
    "package": "this is a package that hbtvm compiled, not a model; use hbtvm.load or hbtvm predict.",
    "rec": (
        "this is a recursive model, which has no rows but structures; hbtvm.tune and hbtvm.compile take it."
    ),
    "pt2": (
        "this is a module that torch exported, which can be the cell of a recursive model: "
        "hbtvm.recursive.Model(hbtvm.recursive.read_pt2(path, children=..., state=...)); in the shell: "
        "--children and --state."
    ),
    "torch": (
        "this is a pickle of torch.save, which holds weights and no computation; for the cell of a recursive "
        'model, export a node\'s module: torch.export.save(torch.export.export(...), "cell.pt2").'
    ),
}
"""Errors for files of known kinds that are not models of rows."""


def load_model(source: Any, *, max_bytes: int | None = None) -> Graph:
    """Read a trained model.

    `source`: a model object of a supported library, or the path of a file: a pickle, also of joblib, or a
        file of skops (any supported object), a file of ``save_model`` of XGBoost (JSON or UBJSON), LightGBM
        (a text) or CatBoost (``.cbm`` or JSON), ONNX, or a checkpoint of treelite. The file's bytes decide
        about its kind, whatever its ending. Also the path of a folder: of MLflow, which holds one of these,
        of YDF's ``model.save``, or of Spark ML.
    `max_bytes`: bound of a compressed file's expanded bytes, at most 4 GiB by default; also raises the bound
        of its objects' memory, which otherwise depends on its size.
    Raises `ModelError` if the file is missing, of an unknown kind or damaged. Raises `UnsupportedModel` if
    the model's kind is not supported.
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_file(Path(source), max_bytes)
    return from_object(source)


def from_object(model: Any) -> Graph:
    """Read a trained model object.

    `model`: a fitted estimator of a supported library, a booster, a ``treelite.Model``, or an
        ``onnx.ModelProto`` (also as the bytes of its ``SerializeToString``).
    Raises `ModelError` if the model is damaged. Raises `UnsupportedModel` if the model is not fitted or its
    kind is not supported.
    """
    if isinstance(model, (bytes, bytearray, memoryview)) and kind_of(bytes(model[:_HEAD])) == "onnx":
        from hbtvm.frontends import onnx

        return onnx.from_bytes(bytes(model))
    if registry.class_of(model) == ("treelite", "Model"):
        return treelite_model.from_bytes(model.serialize_bytes())
    if registry.class_of(model) == ("onnx", "ModelProto"):
        from hbtvm.frontends import onnx

        return onnx.from_proto(model)
    if registry.class_of(model)[0] == spark.LIBRARY:
        return spark.from_live(model, registry.ESTIMATORS)
    registry.require_supported(model)
    if registry.class_of(model)[0] == "ydf":
        return ydf_model.from_bytes(model.serialize())
    return registry.read(pickles.from_live(model))


def recursive_kind(path: str | os.PathLike[str]) -> Literal["rec", "pt2"] | None:
    """Return ``"rec"`` for a recursive model, ``"pt2"`` for a module that torch exported.

    Returns None for all others, including files that can't be read: `load_model` has the errors.
    """
    try:
        kind = kind_of_file(path)
    except OSError:
        return None
    return kind if kind == "rec" or kind == "pt2" else None


def located(path: str | os.PathLike[str]) -> Path:
    """Return the file that holds a model: the path itself, or a file of the MLflow folder at the path.

    Raises `ModelError` if the folder holds no model of a supported flavour.
    """
    return model_file(Path(path)) if is_mlflow(Path(path)) else Path(path)


def kind_of_file(path: str | os.PathLike[str]) -> Kind:
    """Return the kind of a model's file, by its bytes, or folder. Raises `OSError` if it can't be read."""
    path = Path(path)
    folder = kind_of_folder(path)
    if folder is not None and folder != "MLflow":
        return "ydf" if folder == "YDF" else "spark"
    with open(path, "rb") as file:
        kind: Kind = kind_of(file.read(_HEAD))
    if kind == "zip":
        kind = _kind_of_archive(path)
    # The reader that the ending names refuses a file of unknown bytes.
    return _BY_ENDING.get(path.suffix.lower(), kind) if kind in ("unknown", "zip") else kind


def _kind_of_archive(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return "zip"
    if "schema.json" in names:
        return "skops"
    inner = {name.partition("/")[2] for name in names} | {*names}
    return "pt2" if "models/model.json" in inner else "torch" if "data.pkl" in inner else "zip"


def _model_in(folder: Path) -> str:
    """Return which file or folder within a folder to pass; empty if there is none."""
    models = sorted(path for path in folder.glob("model.*") if path.suffix in (*_BY_ENDING, ".xgb", ".lgb"))
    # A run of MLflow has its models deeper in its folder.
    models += sorted(path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/MLmodel"))
    return f"; pass the model in it, {models[0]}" if models else ""


def _load_file(path: Path, max_bytes: int | None) -> Graph:
    path = located(path)
    if not path.is_file() and kind_of_folder(path) is None:
        problem, number = (
            (f"it is a folder{_model_in(path)}", errno.EISDIR)
            if path.is_dir()
            else (f"there is no such file{download(path)}", errno.ENOENT)
        )
        raise model_file_error(f"{path}: expected a model file, but {problem}.", number, path)
    try:
        kind = kind_of_file(path)
        if kind == "pickle":
            return registry.read(pickles.load(path, max_bytes))
        if kind == "spark":
            return spark.from_folder(path, registry.ESTIMATORS)
        if kind == "ydf":
            return ydf_model.from_folder(path)
        if kind == "skops":
            return registry.read(skops.load(path, max_bytes))
        if kind in _INSTEAD or kind in ("unknown", "zip"):
            raise ModelError(_INSTEAD.get(kind, _UNKNOWN))
        if kind == "lightgbm":
            from hbtvm.frontends.lightgbm import model as lightgbm_model

            return lightgbm_model.from_text(path.read_text(encoding="utf-8-sig"))
        if kind == "onnx":
            from hbtvm.frontends import onnx

            return onnx.from_bytes(path.read_bytes())
        if kind == "catboost":
            from hbtvm.frontends.catboost import model as catboost_model

            return catboost_model.from_bytes(path.read_bytes())
        if kind == "treelite":
            return treelite_model.from_bytes(path.read_bytes())
        from hbtvm.frontends.xgboost import model as xgboost_model

        read = xgboost_model.from_json if kind == "json" else xgboost_model.from_ubjson
        return read(path.read_bytes())
    except ModelError as error:
        if str(error).startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: expected a LightGBM model text, but it is not UTF-8 text.") from error
    except OSError as error:
        raise model_file_error(
            f"{path}: the file can't be read ({error.strerror}).", error.errno or 0, path
        ) from error
