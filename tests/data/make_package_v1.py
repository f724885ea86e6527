"""Writes package_v1.tar and package_v1.json: what format version 1 looks like, for ever.

Run from the repository's root, only if version 1 changes before its first release::

    python tests/data/make_package_v1.py

The kernels are compiled for any x86-64 CPU. Linking depends on the compiler, so another
machine may write other bytes; the predictions stay the same.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from lightgbm import LGBMClassifier  # noqa: E402

from hbtvm.compiler.targets.target import resolve  # noqa: E402
from hbtvm.frontends import from_object  # noqa: E402
from hbtvm.runtime.package import write  # noqa: E402
from tests.runtime_models import kernel, package  # noqa: E402

TARGET = resolve({"kind": "llvm", "mcpu": "x86-64"})


def main() -> None:
    """Train, compile, write."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    labels = np.array(["low", "mid", "high"])[np.digitize(X[:, 0] + np.abs(X[:, 1]), [0.5, 1.5])]
    model = LGBMClassifier(n_estimators=3, num_leaves=5, min_child_samples=5, n_jobs=1, verbose=-1)
    graph = from_object(model.fit(X, labels))
    graph = replace(graph, input=replace(graph.input, feature_names=("a", "b", "c")))
    kernels = [
        kernel(graph, 1, target=TARGET, strategy="bitvector", seconds=2e-6),
        kernel(
            graph,
            64,
            target=TARGET,
            strategy="bitvector",
            dtype="float64",
            seconds=2e-5,
            threads=2,
            parallel="rows",
        ),
    ]
    kernels = [replace(k, library=_stripped(k.library)) for k in kernels]
    made = package(graph, *kernels, target=TARGET, tuning={"trials": 0, "note": "format version 1"})
    write(replace(made, hbtvm_version="0.1.0"), HERE / "package_v1.tar")

    rows = np.round(rng.normal(size=(9, 3)), 3)
    rows[4, 1] = np.nan
    expected = {
        "rows": [[None if np.isnan(x) else x for x in row] for row in rows.tolist()],
        "predict": model.predict(rows).tolist(),
        "predict_proba": model.predict_proba(rows).tolist(),
        "classes": model.classes_.tolist(),
    }
    (HERE / "package_v1.json").write_text(json.dumps(expected, indent=1) + "\n")


def _stripped(library: bytes) -> bytes:
    """Without debugging symbols: a test file should be small."""
    import subprocess
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main()
