"""An archive of a small model's candidates, and ways to change it."""

from __future__ import annotations

import functools
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from hbtvm import trials
from hbtvm.measuring import archive
from hbtvm.measuring.archive import Members

_folder = tempfile.TemporaryDirectory(prefix="hbtvm-tests-")
SIZES = (1, 200)


@functools.cache
def model() -> Any:
    """Return a small forest."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    return RandomForestClassifier(6, max_depth=4, random_state=0).fit(X, X[:, 0] * X[:, 1] > 0)


@functools.cache
def _exported() -> tuple[Path, Path]:
    path, file = Path(_folder.name, "trials.tar"), Path(_folder.name, "model.pkl")
    joblib.dump(model(), file)
    done = trials.export(
        model(), path, trials=10, threads=1, batch_sizes=SIZES, strategies=["bitvector", "tree_traversal"]
    )
    assert done.built + done.twins == 10
    return path, file


def archive_in(folder: Path) -> Path:
    """Return a copy of the archive."""
    return Path(shutil.copy(_exported()[0], folder / "trials.tar"))


def model_file(folder: Path) -> Path:
    """Return a copy of the model's file."""
    return Path(shutil.copy(_exported()[1], folder / "model.pkl"))


Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def changed(path: Path, change: Change) -> None:
    """Write an archive anew, its fields and inflated members changed."""
    read = archive.read(path)
    contents = {name: zlib.decompress(data) for name, data in read.contents.items()}
    fields = {name: value for name, value in read.manifest.items() if name not in ("format", "version")}
    del fields["members"]
    change(fields, contents)
    members = Members()
    for name, data in contents.items():
        made = members._put(name, data)
        assert made == name
    archive.write(path, members, **fields)
