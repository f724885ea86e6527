"""Write the packages of this folder, in the present format.

Run again when the format changes before a release, with a CUDA toolkit, and from the project's root::

    python -m tests.data.make_packages

Those for CPUs are made for any x86-64 CPU, that for GPUs for sm_90.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm

CPU = {"kind": "llvm", "mcpu": "x86-64"}
GPU = {"kind": "cuda", "arch": "sm_90", "cores": 132}
TEXTS = ["the cat sat", "the dog, the cat!", "", "a dog sat on a mat"] * 20


def main() -> None:
    """Train, compile, write."""
    X = np.random.default_rng(0).normal(size=(80, 5))
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, np.arange(80) % 3)
    models: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "clusters": (make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)), X, CPU),
        "scaler": (StandardScaler(), X, CPU),
        "terms": (TfidfVectorizer(), TEXTS, CPU),
        "gpu": (forest, None, GPU),
    }
    for name, (model, rows, target) in models.items():
        fitted = model if rows is None else model.fit(rows)
        sizes = (1,) if target is CPU else (1, 64)
        made = hbtvm.compile(fitted, batch_sizes=sizes, threads=1, target=target)
        made.save(Path(__file__).with_name(f"package_v1_{name}.tar"))


if __name__ == "__main__":
    main()
