"""Makes the files that cells are measured with: models, packages, rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.explain.cases import Case, save
from benchmarks.pipelines.measure import compile_package

MOST = 20_000
"""Rows of a case."""


def prepare(case: Case, folder: Path) -> None:
    """Make what is missing of a case's files.

    These are the model, `packages`, `shared`, rows, and a forest's trees for peers that do not read pickles.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / case.file
    if not model.exists():
        fitted = case.fit()
        save(fitted, model)
        if "fasttreeshap" in case.peers and model.suffix == ".pkl":
            np.savez(model.with_suffix(".npz"), **_trees(fitted))
    explained, plain = packages(case, folder)
    for package, threads, more in (
        (explained, 1, ["--explain"]),
        (plain, 1, []),
        (shared(case, folder), 2, ["--explain"]),
    ):
        if not package.exists() and (threads == 1 or case.method == "explain"):
            compile_package(model, package, threads, 0, "float32", *more)
    path = rows_of(case, folder)
    if not path.exists():
        rows = case.rows(MOST)
        if isinstance(rows, np.ndarray):
            np.save(path, rows)
        else:
            path.write_bytes(pickle.dumps(rows))


def packages(case: Case, folder: Path) -> tuple[Path, Path]:
    """Return the files of the packages with and without reasons."""
    stem = Path(case.file).stem
    return folder / f"{stem}-explain.tar", folder / f"{stem}-plain.tar"


def shared(case: Case, folder: Path) -> Path:
    """Return the file of the package with reasons whose kernels share a call between two threads."""
    return folder / f"{Path(case.file).stem}-threads.tar"


def rows_of(case: Case, folder: Path) -> Path:
    """Return the file of a case's rows: ``.npy``, or the pickle of a frame."""
    return folder / f"{Path(case.file).stem}-rows.{'pkl' if case.peers == ('steps',) else 'npy'}"


def _trees(forest: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a forest's trees, by number and the name that shap has for them."""
    arrays: dict[str, np.ndarray] = {}
    for number, estimator in enumerate(forest.estimators_):
        tree = estimator.tree_
        arrays |= {
            f"{number}/children_left": tree.children_left,
            f"{number}/children_right": tree.children_right,
            f"{number}/children_default": tree.children_right,
            f"{number}/features": tree.feature,
            f"{number}/thresholds": tree.threshold,
            f"{number}/values": tree.value[:, :, 0] / len(forest.estimators_),
            f"{number}/node_sample_weight": tree.weighted_n_node_samples,
        }
    return arrays
