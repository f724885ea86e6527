"""Writes package_v6_neighbors.tar and .json: nearest neighbours in format version 6, for ever.

Run with the project as it was at commit cdae725, one of the last whose kernels of neighbours compute
distances alone and leave the vote to the runtime; this file need not be there::

    git worktree add /tmp/v6 cdae725 && cd /tmp/v6
    python .../tests/data/make_package_v6_neighbors.py .../tests/data
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
from sklearn.neighbors import KNeighborsClassifier

sys.path[:0] = [os.getcwd()]

from hbtvm.compiler.assemble import KernelChoice, assemble  # noqa: E402
from hbtvm.compiler.candidates.tasks import operands_of  # noqa: E402
from hbtvm.compiler.targets.target import resolve  # noqa: E402
from hbtvm.frontends import sklearn_neighbors  # noqa: E402
from hbtvm.frontends.pickles import from_live  # noqa: E402
from hbtvm.runtime.package import write  # noqa: E402
from hbtvm.strategies import strategies_on, workload_of  # noqa: E402

CPU = resolve({"kind": "llvm", "mcpu": "x86-64"})


def main(folder: Path) -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    labels = np.array(["far", "near", "on"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    model = KNeighborsClassifier(4, weights="distance").fit(X, labels)
    graph = sklearn_neighbors.read(from_live(model))
    operands = operands_of(graph, "float64")

    def choice(rows: int) -> KernelChoice:
        strategy = strategies_on(CPU, "neighbors")["direct_distances"]
        default = strategy.default(workload_of(operands[0], rows), CPU)
        return KernelChoice(rows, "direct_distances", default, 1e-6 * rows, 1, "default")

    made = assemble(graph, operands, [choice(1), choice(16)], CPU, {"note": "format version 6"})
    stripped = tuple(replace(kernel, library=_stripped(kernel.library)) for kernel in made.kernels)
    write(replace(made, kernels=stripped), folder / "package_v6_neighbors.tar")
    rows = np.concatenate([np.round(rng.normal(size=(20, 3)), 3), X[:3]])
    expected = {
        "rows": rows.tolist(),
        "predict": model.predict(rows).tolist(),
        "predict_proba": model.predict_proba(rows).tolist(),
    }
    (folder / "package_v6_neighbors.json").write_text(json.dumps(expected, indent=1) + "\n")


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
