"""Writes package_v2.tar, package_v4.tar and package_v4.json: format versions 2 and 4, for ever.

Run with the project as it was at commit 32cdad2, which is the last one that wrote these versions, and with a
CUDA toolkit; this file need not be there::

    git worktree add /tmp/v4 32cdad2 && cd /tmp/v4
    python .../tests/data/make_package_v4.py .../tests/data

Version 2 holds a CPU's kernel for rows without missing values beside one for all rows, made for any x86-64
CPU; version 4 a GPU's kernels, one of which leaves its sums in two parts.
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
from lightgbm import LGBMClassifier

sys.path[:0] = [os.getcwd(), str(Path("tests").resolve())]

from hbtvm.compiler.target import resolve  # noqa: E402

from hbtvm.compiler.assemble import Kernel, assemble  # noqa: E402
from hbtvm.frontends import from_object  # noqa: E402
from hbtvm.runtime.package import write  # noqa: E402
from hbtvm.strategies import make_forest, strategies_on, workload_of  # noqa: E402

CPU, GPU = resolve({"kind": "llvm", "mcpu": "x86-64"}), resolve({"kind": "cuda", "arch": "sm_90"})


def main(folder: Path) -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    labels = np.array(["low", "mid", "high"])[np.digitize(np.nan_to_num(X[:, 0] + X[:, 1]), [-0.5, 0.5])]
    model = LGBMClassifier(n_estimators=4, num_leaves=5, min_child_samples=5, n_jobs=1, verbose=-1)
    graph = from_object(model.fit(X, labels))

    def choice(rows: int, strategy: str, forest: object, target: dict, **knobs: object) -> Kernel:
        default = strategies_on(target)[strategy].default(workload_of(forest, rows), target)
        return Kernel(rows, strategy, {**default, **knobs}, 1e-6 * rows, 1, "tuned")

    whole = make_forest(graph.anchor, "float32", "float32", missing=False)
    every = [make_forest(graph.anchor, dtype, "float32") for dtype in ("float32", "float64")]
    kernels = [choice(1, "bitvector", whole, CPU), choice(64, "tree_traversal", whole, CPU)]
    made = assemble(graph, [whole, *every], kernels, CPU, {"note": "format version 2"})
    stripped = tuple(replace(kernel, library=_stripped(kernel.library)) for kernel in made.kernels)
    write(replace(made, kernels=stripped), folder / "package_v2.tar")

    kernels = [
        choice(1, "bitvector", every[0], GPU, tree_blocks=2),
        choice(100, "perfect_tree_traversal", every[0], GPU),
    ]
    write(assemble(graph, every, kernels, GPU, {"note": "format version 4"}), folder / "package_v4.tar")

    rows = np.round(rng.normal(size=(9, 3)), 3)
    rows[4, 1] = np.nan
    expected = {
        "rows": [[None if np.isnan(x) else x for x in row] for row in rows.tolist()],
        "predict": model.predict(rows).tolist(),
        "predict_proba": model.predict_proba(rows).tolist(),
    }
    (folder / "package_v4.json").write_text(json.dumps(expected, indent=1) + "\n")


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
