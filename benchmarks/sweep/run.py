"""Sweep one class: fit, compile, predict, judge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hbtvm
from benchmarks.sweep import compare
from benchmarks.sweep.compare import AGREE, METHODS, REFUSED, WRONG
from benchmarks.sweep.edges import has_trees
from benchmarks.sweep.rows import variants
from benchmarks.sweep.settings import LIMIT, Setting, settings
from hbtvm.errors import HbtvmError

Compile = Callable[[Any], Any]

_KEPT = 6
"""Findings of one setting and verdict that are kept."""


@dataclass
class Outcome:
    """What came of one setting.

    Attributes
    ----------
    counts
        Calls by verdict.
    findings
        Verdict, method, rows and reason of calls that do not agree.
    """

    name: str
    seed: int
    setting: str
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, verdict: str, method: str, rows: str, reason: str) -> None:
        """Count a call, and keep its reason if few are kept so far."""
        self.counts[verdict] += 1
        if verdict == compare.BOTH_RAISE or not reason:
            return
        if sum(one[0] == verdict for one in self.findings) < _KEPT:
            self.findings.append((verdict, method, rows, reason))


def compile_small(model: Any) -> Any:
    """Compile for one row a call, on one thread: any number of rows is computed by the same kernel."""
    return hbtvm.compile(model, batch_sizes=1, threads=1)


def sweep_class(
    name: str, seed: int, limit: int = LIMIT, only: str = "", build: Compile = compile_small
) -> Iterator[Outcome]:
    """Yield the outcomes of a class, setting by setting.

    Parameters
    ----------
    name
        Of the class.
    limit
        Most settings.
    only
        Regular expression; other settings are fitted, and left out.
    build
        Compiles a fitted model.
    """
    for setting in settings(name, seed, limit):
        if re.search(only, setting.title):
            yield sweep_setting(name, seed, setting, build)


def sweep_setting(name: str, seed: int, setting: Setting, build: Compile = compile_small) -> Outcome:
    """Compile a model, call all of its methods with all rows, and judge the answers."""
    outcome = Outcome(name, seed, setting.title)
    try:
        compiled = build(setting.model)
    except HbtvmError as error:
        outcome.add(REFUSED, "compile", "", " ".join(str(error).split())[:240])
        return outcome
    except Exception as error:
        outcome.add(WRONG, "compile", "", f"crash: {type(error).__name__}: {error}"[:240])
        return outcome
    trees = has_trees(setting.model)
    for method in METHODS:
        theirs = getattr(setting.model, method, None)
        if theirs is None:
            continue
        judge = _Judge(setting.model, method, trees)
        for title, rows in variants(setting.model, setting.data, seed):
            expected, rejection = compare.call(theirs, rows)
            got, refusal = compare.call(getattr(compiled, method), rows)
            if rejection is None and refusal is None:
                told = judge.difference(got, expected, rows, title)
                verdict, reason = (WRONG, told) if told else (AGREE, "")
            else:
                verdict, reason = compare.judge(rejection, refusal)
            outcome.add(verdict, method, title, reason)
    return outcome


class _Judge:
    """Compares answers of one method, by the tolerances of docs/reference/models.md."""

    def __init__(self, model: Any, method: str, trees: bool) -> None:
        self.model, self.method, self.trees = model, method, trees

    def difference(self, got: Any, expected: Any, rows: Any, title: str) -> str:
        """Say how an answer differs; empty if it does not."""
        half = "float16" in title
        single = half or "float32" in title or "Float32" in title or "mixed" in title
        rtol = 2e-3 if half else 1e-5 if self.trees or single else 1e-6
        extreme = any(word in title for word in ("extreme", "huge", "larger", "denormal"))
        scale = 1.0 if single or extreme else 1e-2
        try:
            told = compare.difference(got, expected, rtol, scale, finite=extreme)
        except (AttributeError, TypeError, ValueError) as failure:
            return f"can't be compared: {type(failure).__name__}: {failure}"
        if told and self.method == "predict" and self._ties(got, expected, rows, rtol):
            return ""
        return "" if told and single and self._rounded(got, expected, rows) else told

    def _ties(self, got: Any, expected: Any, rows: Any, rtol: float) -> bool:
        """Whether labels differ only where the library's two highest scores are equal within rounding."""
        if not isinstance(got, np.ndarray) or got.shape != np.shape(expected) or got.ndim != 1:
            return False
        if got.dtype.kind != expected.dtype.kind or got.dtype.kind == "f":
            return False
        apart = compare.rows_apart(got, expected)
        for scores in self._scores(rows):
            largest = np.abs(scores).max(axis=-1, initial=0.0, where=np.isfinite(scores))
            if scores.ndim == 1:
                margin, largest = np.abs(scores), np.max(largest)
            else:
                ordered = np.sort(scores, axis=1)
                margin = ordered[:, -1] - ordered[:, -2]
            with np.errstate(all="ignore"):
                return not (margin > rtol * largest)[apart].any()
        return False

    def _scores(self, rows: Any) -> Iterator[np.ndarray]:
        """Yield scores by which the library chooses labels, shape (n,) or (n, labels >= 2)."""
        calls = [(getattr(self.model, name, _absent), 1) for name in ("decision_function", "predict_proba")]
        calls += [(getattr(self.model, "transform", _absent), -1)]
        centers = getattr(self.model, "cluster_centers_", None)
        if centers is not None:
            calls = [(lambda X: ((np.asarray(X, np.float64)[:, None] - centers) ** 2).sum(2), -1)]
        for function, sign in calls:
            scores, error = compare.call(function, rows)
            if error is not None or not isinstance(scores, np.ndarray) or scores.dtype.kind != "f":
                continue
            if scores.ndim == 1 or scores.shape[1] > 1:
                yield sign * scores.astype(np.float64)

    def _rounded(self, got: Any, expected: Any, rows: Any) -> bool:
        """Whether an answer is the library's for the same rows in float64, which its own float32 rounds."""
        if not isinstance(rows, np.ndarray) or not isinstance(got, np.ndarray) or got.dtype.kind != "f":
            return False
        exact, error = compare.call(getattr(self.model, self.method), rows.astype(np.float64))
        if error is not None or compare.difference(expected, exact, 1e-3, 1.0):
            return False
        return not compare.difference(got, exact, 1e-5, 1.0)


def _absent(rows: Any) -> Any:
    raise AttributeError(rows)


def summary(outcomes: list[Outcome]) -> Counter[str]:
    """Return the calls of several settings by verdict."""
    total: Counter[str] = Counter({AGREE: 0})
    for outcome in outcomes:
        total.update(outcome.counts)
    return total
