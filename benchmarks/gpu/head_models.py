"""Write the models of `benchmarks.gpu.head_to_head`: ``python -m benchmarks.gpu.head_models FOLDER``.

Trains each model once (kept in `--cache`) and compiles it for a GPU that this machine need not have. For
each model, FOLDER gets NAME.tar (hbtvm's package), NAME.txt or NAME.ubj (the library's file, for peers) and
NAME.rows.npy, and one ``cells.json`` with the pairs of model and number of rows in the order of measurement.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers.data import make
from benchmarks.peers.train import trained
from hbtvm import api

TARGET = {"kind": "cuda", "arch": "sm_90", "cores": 132}
ROWS = (1_000_000, 100_000, 10_000, 1_000, 1)
_TREES, _DEPTH, _LEAST = 100, 16, 8  # of the random forest: its least sum of Hessians keeps the file small
_POOL_BYTES = 1 << 20


def _boosted(model: str, data: str) -> Callable[[Path, Path], np.ndarray]:
    def write(path: Path, cache: Path) -> np.ndarray:
        about = trained(model, data, cache)
        if path.suffix == ".ubj":
            import xgboost

            xgboost.Booster(model_file=about["path"]).save_model(path)
        else:
            shutil.copyfile(about["path"], path)
        return np.asarray(np.load(about["rows"]))

    return write


def _deep(path: Path, cache: Path) -> np.ndarray:
    """Train a random forest of deep trees, in XGBoost's format, which peers load without scikit-learn."""
    import xgboost

    kept = cache / f"deep-{_TREES}-{_DEPTH}-{_LEAST}.ubj"
    X, y, rows = make("higgs")
    if not kept.exists():
        parameters = {
            "objective": "reg:squarederror",
            "max_depth": _DEPTH,
            "min_child_weight": _LEAST,
            "num_parallel_tree": _TREES,
            "eta": 1.0,
            "subsample": 0.63,
            "colsample_bynode": 0.3,
            "tree_method": "hist",
            "seed": 0,
        }
        cache.mkdir(parents=True, exist_ok=True)
        xgboost.train(parameters, xgboost.DMatrix(X, y), 1).save_model(kept)
    shutil.copyfile(kept, path)
    return rows


MODELS: dict[str, tuple[str, Callable[[Path, Path], np.ndarray], tuple[int, ...]]] = {
    "lightgbm": (".txt", _boosted("lightgbm", "higgs"), ROWS),
    "xgboost": (".ubj", _boosted("xgboost", "higgs"), ROWS),
    "deep": (".ubj", _deep, ROWS),
    "wide": (".txt", _boosted("lightgbm", "epsilon"), (10_000,)),
}
"""By name: the suffix of the library's file, what writes it and returns rows, and numbers of rows."""


def cells(names: list[str]) -> list[tuple[str, int]]:
    """Return pairs of model and rows, the most telling first: boosted models by size, then others."""
    boosted = [(name, rows) for rows in ROWS for name in names if name in ("lightgbm", "xgboost")]
    others = [name for name in names if name not in ("lightgbm", "xgboost")]
    return boosted + [(name, rows) for name in others for rows in MODELS[name][2]]


def write(folder: Path, names: list[str], cache: Path, log: Path | None = None) -> None:
    """Write the folder.

    Parameters
    ----------
    folder
        Created where needed.
    names
        Of `MODELS`; other models that are in the folder stay.
    cache
        Where trained models are kept.
    log
        A log whose best schedules the packages take; None: default schedules.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        suffix, train, batches = MODELS[name]
        path = folder / f"{name}{suffix}"
        rows = train(path, cache)
        # Half precision halves the file; all libraries read the same float32 values from it.
        pool = rows[: max(256, _POOL_BYTES // (2 * rows.shape[1]))].astype(np.float16)
        np.save(folder / f"{name}.rows.npy", pool)
        model = api.compile(path, target=TARGET, batch_sizes=tuple(sorted(batches)), log=log)
        model.save(folder / f"{name}.tar")
        told = [file for file in sorted(folder.iterdir()) if file.name.startswith(f"{name}.")]
        print(", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in told), flush=True)
    present = [name for name in MODELS if (folder / f"{name}.tar").exists()]
    (folder / "cells.json").write_text(json.dumps(cells(present)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.head_models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=list(MODELS))
    parser.add_argument("--cache", type=Path, default=Path(".cache/gpu/models"))
    parser.add_argument("--log", type=Path, help="take the best schedules of this log")
    given = parser.parse_args()
    write(given.folder, given.models, given.cache, given.log)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
