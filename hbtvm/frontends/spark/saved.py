"""Saved models of Spark ML: folders of metadata (JSON), data (Parquet) and the stages of pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.spark import parquet
from hbtvm.words.printable import shown

LIBRARY = "pyspark"
"""The library of Spark's classes in the registry."""

PIPELINE = "PipelineModel"
MOST_STAGES = 1000  # bound of all stages, as a folder may hold itself by a link
_DEEPEST = 8  # nesting depth of pipelines
_MOST_TEXT = 1 << 26  # bytes of the metadata; labels of IndexToString are part of it

_WITHIN = ("bestModel", "pipelineModel")
"""Folders of the models of searches and of formulas, in this order."""

_PACKAGES = ("org.apache.spark.ml.", "pyspark.ml.")

_NODES = ("id", "prediction", "leftChild", "rightChild", "split.featureIndex",
          "split.leftCategoriesOrThreshold", "split.numCategories")  # fmt: skip


def is_saved(path: Path) -> bool:
    """Return whether a path is the folder of a saved model of Spark."""
    return path.is_dir() and any((path / "metadata").glob("part-*"))


class Folders:
    """Reads a folder and the stages within."""

    def __init__(self) -> None:
        self._stages = 0

    def read(self, folder: Path, depth: int = 0) -> Record:
        """Return a model or a stage as a record with the library `LIBRARY`.

        Its attributes are Spark's parameters, further facts of the metadata, ``data``: the rows of
        `parquet.cells`, ``trees`` and ``tree_weights`` of models of trees, and ``stages`` of a pipeline.
        Raises `ModelError` if it is damaged.
        """
        for name in _WITHIN:
            folder = folder / name if (folder / name).is_dir() else folder
        self._stages += 1
        if depth > _DEEPEST or self._stages > MOST_STAGES:
            raise ModelError(
                f"the pipeline is damaged: more than {MOST_STAGES:,} stages, or pipelines nested more than "
                f"{_DEEPEST} deep."
            )
        metadata = _metadata(folder)
        kind = metadata.get("class")
        if not isinstance(kind, str):
            raise ModelError(f"the model is damaged: the metadata in {folder} name no class.")
        module, _, name = kind.rpartition(".")
        record = Record(Global(f"{LIBRARY}.ml" if kind.startswith(_PACKAGES) else module, name))
        state: dict[str, Any] = {
            name: metadata[name] for name in ("numFeatures", "numClasses", "numTrees") if name in metadata
        }
        for part in ("defaultParamMap", "paramMap"):
            state |= _dict(metadata.get(part, {}), folder)
        state["uid"] = str(metadata.get("uid", ""))
        if name == PIPELINE:
            state["stages"] = self._of_pipeline(folder, state.get("stageUids"), depth)
        elif name.startswith(("DecisionTree", "RandomForest", "GBT")) and (folder / "data").is_dir():
            state["trees"] = _trees(folder / "data", name)
            if (folder / "treesMetadata").is_dir():
                # Numbers, metadata and weights of the trees; the names differ by release.
                rows = [list(row.values()) for row in parquet.cells(folder / "treesMetadata")]
                state["tree_weights"] = [row[-1] for row in sorted(rows, key=lambda row: row[0])]
        elif name == "OneVsRestModel":
            count = metadata.get("numClasses")
            if not isinstance(count, int) or not 0 < count <= MOST_STAGES:
                raise ModelError(
                    f"the model is damaged: the metadata in {folder} name {count!r:.20} classes."
                )
            state["models"] = [self.read(folder / f"model_{i}", depth + 1) for i in range(count)]
        elif (folder / "data" / "data").is_dir():  # of a model of Spark's older library
            state["data"] = parquet.cells(folder / "data" / "data")
            state |= _metadata(folder / "data")
        elif (folder / "data").is_dir():
            state["data"] = parquet.cells(folder / "data")
        record.state = state
        return record

    def _of_pipeline(self, folder: Path, uids: Any, depth: int) -> list[Record]:
        if not isinstance(uids, list) or not all(isinstance(uid, str) and "/" not in uid for uid in uids):
            raise ModelError(f"the pipeline is damaged: the metadata in {folder} do not list its stages.")
        digits = len(str(len(uids)))
        stages = []
        for i, uid in enumerate(uids):
            inner = folder / "stages" / f"{i:0{digits}d}_{uid}"
            if not is_saved(inner):
                raise ModelError(f"the pipeline is damaged: its stage {shown(inner, 400)} is missing.")
            stages.append(self.read(inner, depth + 1))
        return stages


def _trees(folder: Path, name: str) -> list[dict[str, np.ndarray]]:
    """Return the nodes of each tree, of regression trees without their statistics if these are damaged."""
    by_class = name.endswith("ClassificationModel") and not name.startswith("GBT")
    try:
        return parquet.trees(folder, (*_NODES, "impurityStats"))
    except ModelError:
        if by_class:
            raise
        return parquet.trees(folder, _NODES)


def _metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata: the first line of the first part that is not empty."""
    line = b""
    try:
        for part in sorted((folder / "metadata").glob("part-*")):
            with open(part, "rb") as file:
                line = line or file.readline(_MOST_TEXT + 1)
        if len(line) > _MOST_TEXT:
            raise ValueError(f"more than {_MOST_TEXT:,} bytes")
        return _dict(json.loads(line), folder)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        reason = shown(next(iter(str(error).splitlines()), ""), 100)
        raise ModelError(
            f"the model is damaged: the metadata in {folder} can't be read ({reason})."
        ) from error


def _dict(value: Any, folder: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"the model is damaged: the metadata in {folder} are not objects of JSON.")
    return value
