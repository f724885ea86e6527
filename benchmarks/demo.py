"""``make demo``: a whole pipeline, on strings and missing values, tuned and held against scikit-learn.

Trains imputers, a scaler, a one-hot encoder and LightGBM on rows like those of UCI's adult data set (six
numbers, eight string columns, some of both missing), runs ``hbtvm tune`` and ``hbtvm predict`` as a user
would, predicts a row as a service has it, and prints how fast the package is and how well it agrees with
scikit-learn. Everything it makes is in ``demo/``.
"""

from __future__ import annotations

import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm
from benchmarks.common import duration, markdown, side_by_side
from benchmarks.pipelines.data import CATEGORIES, NUMBERS, adult, adult_target

FOLDER = Path("demo")
_TRAIN, _TEST = 20_000, 10_000


def pipeline() -> Any:
    """The pipeline, not fitted."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    columns = ColumnTransformer([("num", numbers, list(NUMBERS)), ("cat", categories, list(CATEGORIES))])
    return make_pipeline(columns, LGBMClassifier(n_estimators=100, verbose=-1, random_state=0, n_jobs=1))


def main() -> int:
    """Run the demonstration; returns the exit status."""
    FOLDER.mkdir(exist_ok=True)
    frame = adult(_TRAIN + _TEST, missing_strings=True)
    target = np.where(adult_target(frame) == 1, ">50K", "<=50K")
    train, test = frame[:_TRAIN], frame[_TRAIN:].reset_index(drop=True)
    print(
        f"Training impute, scale | impute, one-hot → LightGBM on {_TRAIN:,} rows of {len(NUMBERS)} numbers "
        f"and {len(CATEGORIES)} string columns ...",
        flush=True,
    )
    model = pipeline().fit(train, target[:_TRAIN])
    (FOLDER / "churn.pkl").write_bytes(pickle.dumps(model))
    test.to_csv(FOLDER / "customers.csv", index=False)

    budget = ("--time-budget", "30")  # seconds; enough to show a search
    run("tune", "demo/churn.pkl", "-o", "demo/churn.tar", "--log", "demo/tuning.jsonl", *budget)
    run("predict", "demo/churn.tar", "demo/customers.csv", "-o", "demo/labels.csv")
    run("inspect", "demo/churn.tar")

    package = hbtvm.load(FOLDER / "churn.tar")
    row = {name: None if value != value else value for name, value in test.iloc[0].to_dict().items()}
    print(f"\n>>> model = hbtvm.load('churn.tar')\n>>> model.predict_proba({row})")
    print(package.predict_proba(row))

    rows = []
    for count in (1, 100, 10_000):
        batch = test[:count].copy()
        calls = {
            "sklearn": lambda batch=batch: model.predict_proba(batch),
            "hbtvm": lambda batch=batch: package.predict_proba(batch),
        }
        if count == 1:
            calls["dict"] = lambda: package.predict_proba(row)
        times = side_by_side(calls)
        rows.append(_line(f"{count:,}", times, "hbtvm"))
        if count == 1:
            rows.append(_line("1, a dict", times, "dict"))
    print(
        "\npredict_proba of a pandas frame with strings and missing values (medians, one call at a time):\n"
    )
    print(markdown(["rows per call", "scikit-learn", "hbtvm", "speed-up"], rows, second=["speed-up"]))

    labels = np.array(Path(FOLDER, "labels.csv").read_text().split()[1:])
    expected, theirs, ours = model.predict(test), model.predict_proba(test), package.predict_proba(test)
    off = float(np.max(np.abs(ours - theirs) / theirs))
    same = int(np.sum(labels == expected))
    print(f"\nAgreement: {same:,} of {len(labels):,} labels, probabilities to {off:.1e} relative;")
    print(f"the model's accuracy on rows it has not seen is {np.mean(expected == target[_TRAIN:]):.1%}.")
    return 0 if same == len(labels) and off <= 1e-5 else 1


def _line(title: str, times: dict[str, float], ours: str) -> list[str]:
    theirs = times["sklearn"]
    return [title, duration(theirs), duration(times[ours]), f"{theirs / times[ours]:,.0f}×"]


def run(*words: str) -> None:
    """Show and run an hbtvm command."""
    print(f"\n$ {shlex.join(['hbtvm', *words])}", flush=True)
    subprocess.run([sys.executable, "-m", "hbtvm", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
