"""Writes package_v5.tar and package_v5.json: format version 5, for ever.

Run with the project as it was at commit 07730f6, which is the last one that wrote this version; this file
need not be there::

    git worktree add /tmp/v5 07730f6 && cd /tmp/v5
    python .../tests/data/make_package_v5.py .../tests/data

It holds a CPU's kernels for float32 and float64 rows, made for any x86-64 CPU, of a model with a column of
categories.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier

sys.path[:0] = [os.getcwd()]

from hbtvm.compiler.assemble import KernelChoice, assemble  # noqa: E402
from hbtvm.compiler.targets.target import resolve  # noqa: E402
from hbtvm.frontends import from_object  # noqa: E402
from hbtvm.runtime.package import write  # noqa: E402
from hbtvm.strategies import make_forest, strategies_on, workload_of  # noqa: E402

CPU = resolve({"kind": "llvm", "mcpu": "x86-64"})
WORDS = ["red", "green", "blue"]


def main(folder: Path) -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(1)
    colour = rng.choice(WORDS, 200)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200), "colour": colour})
    X = X.astype({"colour": pd.CategoricalDtype(WORDS)})
    labels = np.array(["low", "high"])[((X["a"] + (colour == "red")) > 0.5).astype(int)]
    model = LGBMClassifier(n_estimators=4, num_leaves=5, min_child_samples=5, n_jobs=1, verbose=-1)
    graph = from_object(model.fit(X, labels))

    def choice(rows: int, strategy: str) -> KernelChoice:
        default = strategies_on(CPU)[strategy].default(workload_of(forests[0], rows), CPU)
        return KernelChoice(rows, strategy, default, 1e-6 * rows, 1, "tuned")

    forests = [make_forest(graph.anchor, dtype, "float32") for dtype in ("float32", "float64")]
    kernels = [choice(1, "tree_traversal"), choice(64, "perfect_tree_traversal")]
    made = assemble(graph, forests, kernels, CPU, {"note": "format version 5"})
    stripped = tuple(replace(kernel, library=_stripped(kernel.library)) for kernel in made.kernels)
    write(replace(made, kernels=stripped), folder / "package_v5.tar")

    rows = X[:9].assign(a=np.round(X["a"][:9], 3), b=[0.25, np.nan, *range(7)])
    expected = {
        "rows": [
            [None if value != value else value for value in row] for row in rows.astype(object).to_numpy()
        ],
        "predict": model.predict(rows).tolist(),
        "predict_proba": model.predict_proba(rows).tolist(),
    }
    (folder / "package_v5.json").write_text(json.dumps(expected, indent=1) + "\n")


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
