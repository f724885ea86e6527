"""Writes package_v7_{scaler,voting}.tar and package_v7.json: format version 7, for ever.

Run with the project as it was at commit 0d1bfad, which is the last one that wrote this version; this file
need not be there::

    git worktree add /tmp/v7 0d1bfad && cd /tmp/v7
    python .../tests/data/make_package_v7.py .../tests/data

They hold a CPU's kernels, made for any x86-64 CPU: of a pipeline that transforms, whose kernels leave float64
in place of its float32, and of a vote of which one half is a forest's kernel and the other reads its scores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

sys.path[:0] = [os.getcwd()]

import hbtvm  # noqa: E402
from hbtvm.runtime.package import Package, write  # noqa: E402


def main(folder: Path) -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(60, 3)), 2)
    y = np.array(["low", "mid", "high"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    forest = RandomForestClassifier(3, max_leaf_nodes=4, random_state=0)
    scaler = make_pipeline(StandardScaler(), MinMaxScaler((-1, 2))).fit(X)
    voting = VotingClassifier([("f", forest), ("l", LogisticRegression())], voting="soft").fit(X, y)
    for name, model in (("scaler", scaler), ("voting", voting)):
        made = hbtvm.compile(model, target={"kind": "llvm", "mcpu": "x86-64"}, batch_sizes=[1, 64], threads=1)
        write(_small(made.package), folder / f"package_v7_{name}.tar")
    rows = X[:9]
    expected = {
        "rows": rows.tolist(),
        "transform": scaler.transform(rows).tolist(),
        "transform_float32": scaler.transform(rows.astype(np.float32)).tolist(),
        "predict": voting.predict(rows).tolist(),
        "predict_proba": voting.predict_proba(rows).tolist(),
    }
    (folder / "package_v7.json").write_text(json.dumps(expected, indent=1) + "\n")


def _small(package: Package) -> Package:
    def stripped(kernels: Any) -> Any:
        return tuple(replace(kernel, library=_stripped(kernel.library)) for kernel in kernels)

    stages = tuple(replace(stage, kernels=stripped(stage.kernels)) for stage in package.stages)
    return replace(package, kernels=stripped(package.kernels), stages=stages)


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
