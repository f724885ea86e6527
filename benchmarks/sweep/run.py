"""Sweep one class: fit, compile, predict, judge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import hbtvm
from benchmarks.sweep import compare, documented
from benchmarks.sweep.compare import AGREE, METHODS, MORE, REFUSED, WRONG
from benchmarks.sweep.edges import has_trees
from benchmarks.sweep.judge import Answers, Judge
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
        # A BernoulliRBM draws random numbers to score rows.
        if theirs is None or (name, method) == ("BernoulliRBM", "score_samples"):
            continue
        judge = Judge(setting.model, method, trees)
        for title, rows in variants(setting.model, setting.data, seed):
            expected, rejection = compare.call(theirs, rows)
            got, refusal = compare.call(getattr(compiled, method), rows)
            answers = Answers(judge, title, rows, got, expected)
            if rejection is None and refusal is None:
                told = answers.difference()
                verdict, reason = (WRONG, told) if told else (AGREE, "")
            else:
                verdict, reason = compare.judge(rejection, refusal)
            stated = verdict == WRONG and documented.sentence(answers, reason)
            if stated:
                verdict, reason = MORE, stated
            outcome.add(verdict, method, title, reason)
    return outcome


def summary(outcomes: list[Outcome]) -> Counter[str]:
    """Return the calls of several settings by verdict."""
    total: Counter[str] = Counter({AGREE: 0})
    for outcome in outcomes:
        total.update(outcome.counts)
    return total
