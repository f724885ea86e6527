"""Writes package_v8_{scaler,clusters,terms}.tar and package_v8.json: format version 8, for ever.

Run with the project as it was at commit e26e0fd, which is the last one that wrote this version; this file
need not be there::

    git worktree add /tmp/v8 e26e0fd && cd /tmp/v8
    python .../tests/data/make_package_v8.py .../tests/data

They hold code for any x86-64 CPU: of a pipeline that transforms, whose kernels for float32 rows leave
float32; of clusters, which also transform, by a package within; and of terms of texts, which a library cuts.
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
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

sys.path[:0] = [os.getcwd()]

import hbtvm  # noqa: E402
from hbtvm.runtime.package import Package, write  # noqa: E402

TEXTS = ["the cat sat", "The dog, the cat!", "", "a dog sat on Ångström's mat"]


def main(folder: Path) -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(2)
    X = np.round(rng.normal(size=(60, 3)), 2)
    scaler = make_pipeline(StandardScaler(), MinMaxScaler((-1, 2))).fit(X)
    clusters = KMeans(3, n_init=1, random_state=0).fit(X)
    terms = TfidfVectorizer().fit(TEXTS)
    for name, model in (("scaler", scaler), ("clusters", clusters), ("terms", terms)):
        made = hbtvm.compile(model, target={"kind": "llvm", "mcpu": "x86-64"}, batch_sizes=[64], threads=1)
        write(_small(made.package), folder / f"package_v8_{name}.tar")
    rows = X[:9]
    expected = {
        "rows": rows.tolist(),
        "transform": scaler.transform(rows).tolist(),
        "transform_float32": scaler.transform(rows.astype(np.float32)).tolist(),
        "cluster": clusters.predict(rows).tolist(),
        "distances": clusters.transform(rows).tolist(),
        "texts": TEXTS,
        "terms": terms.transform(TEXTS).toarray().tolist(),
    }
    (folder / "package_v8.json").write_text(json.dumps(expected, indent=1) + "\n")


def _small(package: Package) -> Package:
    kernels: Any = tuple(replace(kernel, library=_stripped(kernel.library)) for kernel in package.kernels)
    inner = package.transform and _small(package.transform)
    texts = package.text_library and _stripped(package.text_library)
    return replace(package, kernels=kernels, transform=inner, text_library=texts)


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
