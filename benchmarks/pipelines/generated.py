"""Pipelines made at random, in the manner of OpenML-CC18's: do they compile, and agree?

88% of that suite's pipelines (2,328 of them; Hummingbird, section 6) have 3.3 operators on average: imputers,
scalers, encoders, selections and one predictor, on frames of 1 to 200 columns of numbers, strings and missing
values. The operators, with parameters drawn at random, are those of `operators` and `predictors`.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.pipelines import operators, predictors
from benchmarks.pipelines.data import words
from benchmarks.pipelines.operators import Last, maybe, pick

ROWS = 600


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of a frame's columns: of numbers, of categories and of texts of several words."""

    numbers: list[str]
    strings: list[str]
    texts: list[str]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one pipeline ended.

    Attributes
    ----------
    seed
        It is made of.
    kind
        One of `KINDS`.
    parts
        Classes that it is made of.
    told
        What differs, or why it was refused or not fitted.
    """

    seed: int
    kind: str
    parts: list[str]
    told: str


def frame(rng: np.random.Generator, rows: int = ROWS) -> tuple[Any, Columns]:
    """A frame, and the names of its columns."""
    import pandas as pd

    wide = rng.random() < 0.25
    count = int(rng.integers(20, 150)) if wide else int(rng.integers(0, 15))
    texts = int(rng.integers(0, 50)) if wide else int(rng.integers(0, 9))
    if count + texts == 0:
        count = 1
    columns: dict[str, Any] = {}
    for i in range(count):
        kind = rng.integers(4)
        values = rng.normal(size=rows) * 10.0 ** rng.integers(-3, 5)
        if kind == 1:
            values = rng.lognormal(1, 1, rows).round(2)
        elif kind == 2:
            values = rng.integers(0, 10, rows).astype(float)
        if kind != 3 and rng.random() < 0.4:
            values[rng.random(rows) < 0.08] = np.nan
        columns[f"n{i}"] = values
    for i in range(texts):
        known = np.array([f"{'abcdefgh'[k % 8]}{k}" for k in range(int(rng.integers(2, 40)))], object)
        values = known[rng.integers(0, len(known), rows)]
        if rng.random() < 0.4:
            values[rng.random(rows) < 0.08] = np.nan
        columns[f"s{i}"] = values
    if rng.random() < 0.2:
        known = np.array(words(60), object)
        columns["t0"] = np.array([" ".join(row) for row in known[rng.integers(0, 60, (rows, 5))]], object)
    names = list(columns)
    rng.shuffle(names)
    made = pd.DataFrame({name: columns[name] for name in names})
    made = made.astype({name: "str" for name in names if name[0] == "s" and rng.random() < 0.7})
    return made, Columns(*([name for name in names if name[0] == kind] for kind in "nst"))


def pipeline(rng: np.random.Generator, columns: Columns) -> tuple[Any, Last | None]:
    """A pipeline for such columns, not fitted; and what its last step is, None if that transforms."""
    from sklearn import preprocessing
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

    last = None if maybe(rng, 0.08) else pick(rng, predictors.lasts())
    target = "classes" if last is None else last.target
    narrow = len(columns.numbers) <= 15
    number_steps = [pick(rng, operators.imputers(narrow))(rng)]
    number_steps += [pick(rng, operators.scalers(narrow))(rng) for _ in range(pick(rng, [0, 1, 1, 1, 2]))]
    project = maybe(rng, 0.25)
    dense = project or (last is not None and last.needs != "")
    steps: list[tuple[str, Any]] = []
    if columns.strings or columns.texts:
        parts: list[tuple[str, Any, Any]] = []
        if columns.numbers:
            named = columns.numbers if maybe(rng, 0.6) else make_column_selector(dtype_include=np.number)
            parts.append(("num", make_pipeline(*number_steps), named))
        if columns.strings:
            parts.append(("cat", _encoder(rng, target), columns.strings))
        parts += [(name, pick(rng, operators.vectorizers())(rng), name) for name in columns.texts]
        steps.append(("columns", ColumnTransformer(parts, **({"sparse_threshold": 0} if dense else {}))))
    else:
        steps += [(f"number{i}", step) for i, step in enumerate(number_steps)]
    if maybe(rng, 0.3):
        steps.append(("select", pick(rng, operators.selections(target))(rng)))
    if project:
        projection = pick(rng, operators.projections(target))(rng)
        if maybe(rng, 0.2):
            projection = FeatureUnion([("all", "passthrough"), ("few", projection)])
        steps.append(("project", projection))
    if last is not None:
        if last.needs == "positive":
            steps.append(("positive", preprocessing.MinMaxScaler(clip=True)))
        if last.needs == "bins":
            bins = preprocessing.KBinsDiscretizer(4, encode="ordinal", strategy="uniform")
            steps.append(("bins", bins))
        steps.append(("model", last.make(rng)))
    return Pipeline(steps), last


def _encoder(rng: np.random.Generator, target: str) -> Any:
    """What encodes strings: with missing ones filled, or as they are."""
    from sklearn import impute
    from sklearn.pipeline import make_pipeline

    # The last one takes a target of one column.
    known = operators.encoders()[: None if target in ("classes", "numbers") else -1]
    encoder = pick(rng, known)(rng)
    if maybe(rng):
        return encoder
    strategy = pick(rng, ["most_frequent", "constant"])
    filled = {"fill_value": "missing"} if strategy == "constant" else {}
    return make_pipeline(impute.SimpleImputer(strategy=strategy, **filled), encoder)


def _target(rng: np.random.Generator, last: Last | None, rows: int) -> Any:
    """Values that a last step learns; None if it needs none."""
    kind = "classes" if last is None else last.target
    if kind == "none":
        return None
    if kind.endswith("numbers"):
        return rng.normal(size=(rows, 2) if kind == "several numbers" else rows)
    if kind in ("several classes", "two classes"):
        return rng.integers(0, 2, (rows, 2) if kind == "several classes" else rows)
    target = rng.integers(0, int(rng.choice([2, 2, 3, 5])), rows)
    return np.array([f"class {k}" for k in target]) if maybe(rng, 0.4) else target


def fitted(seed: int) -> tuple[Any, Any]:
    """A fitted pipeline, and rows to predict."""
    rng = np.random.default_rng(seed)
    rows, columns = frame(rng)
    model, last = pipeline(rng, columns)
    target = _target(rng, last, len(rows))
    if type(model[-1]).__name__.startswith("XGB") and target.dtype.kind == "U":
        # It takes no other labels than 0, 1, 2, ...
        target = np.unique(target, return_inverse=True)[1]
    half = len(rows) // 2
    model.fit(rows.iloc[:half], None if target is None else target[:half])
    return model, rows.iloc[half:]


def parts_of(model: Any) -> list[str]:
    """Names of the classes that a pipeline is made of, without containers."""
    held = [value for value in model.get_params(deep=True).values() if hasattr(value, "fit")]
    containers = ("Pipeline", "ColumnTransformer", "FeatureUnion")
    return sorted({type(one).__name__ for one in held} - {*containers})


METHODS = ("predict", "predict_proba", "decision_function", "score_samples")


def _decided(model: Any, rows: Any) -> Any:
    """The rows whose neighbours are decided by distance, where these are what a pipeline ends with.

    Of training rows that are equally far scikit-learn takes one or another by the state of its heaps, which
    depends on how it cuts the rows.
    """
    last = model[-1]
    if not hasattr(last, "kneighbors") or not hasattr(last, "predict") or hasattr(last, "offset_"):
        return rows
    far, _ = last.kneighbors(model[:-1].transform(rows), last.n_neighbors + 1)
    return rows[far[:, -1] > far[:, -2] * (1 + 1e-9)]


def compare(model: Any, compiled: Any, rows: Any) -> str | None:
    """What differs between a pipeline's answers and its compiled form's; None if nothing does."""
    rows = _decided(model, rows)
    if not len(rows):
        # Every row has ties, as where few columns of zeros and ones are left.
        return None
    if not hasattr(model[-1], "predict"):
        return _apart("transform", _dense(model.transform(rows)), _dense(compiled.transform(rows)))
    for method in METHODS:
        if not hasattr(model, method):
            continue
        if method == "decision_function" and "decision" not in compiled.package.output.outputs:
            continue
        if method == "score_samples" and "score" not in compiled.package.output.outputs:
            continue
        expected, got = getattr(model, method)(rows), getattr(compiled, method)(rows)
        # Several targets have a list of probabilities.
        several = isinstance(expected, list)
        for one, other in zip(expected, got, strict=True) if several else [(expected, got)]:
            told = _apart(method, np.asarray(one), np.asarray(other))
            if told is not None:
                return told
    if compiled.beside is None:
        return None
    return _apart("transform", _dense(model.transform(rows)), _dense(compiled.transform(rows)))


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if hasattr(values, "toarray") else np.asarray(values)


def _apart(method: str, expected: np.ndarray, got: np.ndarray) -> str | None:
    """What differs between two arrays."""
    if expected.shape != got.shape:
        return f"{method}: shape {got.shape}, expected {expected.shape}"
    if expected.dtype.kind in "OUS" or (method == "predict" and expected.dtype.kind in "iu"):
        wrong = float(np.mean(expected != got))
        return f"{method}: {wrong:.1%} of the labels differ" if wrong else None
    # Libraries that sum in float32 are themselves off by more where sums are close to zero.
    single = expected.dtype == np.float32
    scale = (1e-2 if single else 1e-3) * max(float(np.nanmax(np.abs(expected), initial=0.0)), 1e-30)
    off = np.abs(got - expected) / np.maximum(np.abs(expected), scale)
    off = np.where(np.isnan(expected) | (got == expected), np.isnan(expected) != np.isnan(got), off)
    worst = float(off.max())
    return None if worst <= (1e-5 if single else 1e-6) else f"{method}: off by {worst:.2g}"


KINDS = ("agree", "differ", "refused", "not fitted")


def outcome(seed: int) -> Outcome:
    """Compile one pipeline and compare it."""
    import hbtvm

    try:
        model, rows = fitted(seed)
    except (ValueError, TypeError) as error:
        return Outcome(seed, "not fitted", [], str(error))
    names = parts_of(model)
    try:
        difference = compare(model, hbtvm.compile(model, batch_sizes=100, dtype="float64"), rows)
    except hbtvm.ModelError as error:
        return Outcome(seed, "refused", names, str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(seed, "differ", names, f"{type(error).__name__}: {error}")
    return Outcome(seed, "agree" if difference is None else "differ", names, difference or "")


def main(output: Path, count: int, seed: int) -> int:
    """Compile and compare so many that scikit-learn can fit; returns the exit status."""
    warnings.simplefilter("ignore")
    found: list[Outcome] = []
    number = seed - 1
    while sum(one.kind != "not fitted" for one in found) < count:
        number += 1
        start = time.perf_counter()
        one = outcome(number)
        found.append(one)
        if one.kind in ("differ", "refused"):
            told = f"{one.kind} {number}: {', '.join(one.parts)}: {one.told[:300]}"
            print(f"{told} ({time.perf_counter() - start:.1f} s)", file=sys.stderr, flush=True)
        if len(found) % 50 == 0:
            print(f"{len(found)} pipelines", file=sys.stderr, flush=True)
    (output / "generated.json").write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    (output / "generated.md").write_text(report(found))
    counts = collections.Counter(one.kind for one in found)
    print(", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    return 1 if counts["differ"] else 0


def report(found: list[Outcome]) -> str:
    """How the pipelines of each operator ended, then reasons."""
    ended: dict[str, collections.Counter[str]] = {}
    for one in found:
        for name in one.parts:
            ended.setdefault(name, collections.Counter())[one.kind] += 1
    rows = [[name, *(str(counts[kind]) for kind in KINDS[:3])] for name, counts in sorted(ended.items())]
    total = collections.Counter(one.kind for one in found)
    rows.append(["pipelines", *(str(total[kind]) for kind in KINDS[:3])])
    text = "# Pipelines made at random\n\n" + common.markdown(["operator", *KINDS[:3]], rows) + "\n"
    for kind in KINDS[1:]:
        reasons: dict[str, list[int]] = {}
        for one in found:
            if one.kind == kind:
                reasons.setdefault(one.told, []).append(one.seed)
        ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
        lines = [f"- {len(seeds)} x {' '.join(told.split())} ({seeds})" for told, seeds in ordered]
        text += f"\n## {kind.capitalize()}\n\n" + ("\n".join(lines) or "None.") + "\n"
    return text
