"""``make demo``: a real model on a real data set, tuned, deployed, and held against its library.

Trains a LightGBM classifier of 10 classes on the handwritten digits that scikit-learn
ships, runs ``hbtvm tune`` and ``hbtvm predict`` as a user would, and prints how fast the
package is and how well it agrees with the library. Everything it makes is in ``demo/``.
"""

from __future__ import annotations

import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hbtvm
from benchmarks.common import duration, markdown, side_by_side

FOLDER = Path("demo")


def main() -> int:
    """Run the demonstration; returns the exit status."""
    FOLDER.mkdir(exist_ok=True)
    digits = load_digits()
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    data = digits.data.astype(np.float32)
    X, X_test, y, y_test = train_test_split(data, names[digits.target], random_state=0)
    print("Training LightGBM on scikit-learn's digits: 10 classes, 64 features, 1,000 trees ...", flush=True)
    model = lightgbm.LGBMClassifier(n_estimators=100, verbose=-1, random_state=0).fit(X, y)
    (FOLDER / "digits.pkl").write_bytes(pickle.dumps(model))
    header = ",".join(model.feature_name_)
    np.savetxt(FOLDER / "rows.csv", X_test, fmt="%g", delimiter=",", header=header, comments="")

    run("tune", "demo/digits.pkl", "-o", "demo/digits.tar", "--log", "demo/tuning.jsonl")
    run("predict", "demo/digits.tar", "demo/rows.csv", "-o", "demo/labels.csv")
    run("inspect", "demo/digits.tar")

    labels = np.array(Path(FOLDER, "labels.csv").read_text().split()[1:])
    package = hbtvm.load(FOLDER / "digits.tar")
    theirs, ours = model.predict_proba(X_test), package.predict_proba(X_test)
    off = float(np.max(np.abs(ours - theirs) / theirs))
    same = int(np.sum(labels == model.predict(X_test)))
    rows = []
    cores = len(os.sched_getaffinity(0))
    for count in (1, 100, 10_000):
        batch = np.ascontiguousarray(np.resize(X_test, (count, X_test.shape[1])))
        times = side_by_side(
            {
                "one": lambda batch=batch: model.predict_proba(batch, num_threads=1),
                "all": lambda batch=batch: model.predict_proba(batch, num_threads=cores),
                "hbtvm": lambda batch=batch: package.predict_proba(batch),
            }
        )
        library = min(times["one"], times["all"])
        rows.append(
            [f"{count:,}", duration(library), duration(times["hbtvm"]), f"{library / times['hbtvm']:.1f}×"]
        )
    print(f"\npredict_proba, LightGBM with the better of 1 and {cores} threads (medians):\n")
    print(markdown(["rows per call", "LightGBM", "hbtvm", "speed-up"], rows))
    print(f"\nAgreement: {same} of {len(labels)} labels, probabilities to {off:.1e} relative;")
    print(f"the model's accuracy on rows it has not seen is {np.mean(labels == y_test):.1%}.")
    return 0 if same == len(labels) and off <= 1e-5 else 1


def run(*words: str) -> None:
    """Show and run an hbtvm command."""
    print(f"\n$ {shlex.join(['hbtvm', *words])}", flush=True)
    subprocess.run([sys.executable, "-m", "hbtvm", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
