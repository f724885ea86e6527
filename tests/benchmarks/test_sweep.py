"""The sweep over scikit-learn's estimators: its verdicts, its rows, its processes and its report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.sweep import compare, documented, processes, report
from benchmarks.sweep.__main__ import main
from benchmarks.sweep.classes import classes, instance
from benchmarks.sweep.compare import AGREE, BOTH_RAISE, MORE, REFUSED, WRONG
from benchmarks.sweep.edges import edges, has_trees, near
from benchmarks.sweep.judge import Answers, Judge
from benchmarks.sweep.rows import variants
from benchmarks.sweep.run import Outcome, compile_small, sweep_class, sweep_setting
from benchmarks.sweep.settings import settings
from hbtvm.errors import InputError


class _Planted:
    """A compiled model whose answers to rows of one kind are changed."""

    def __init__(self, model: Any, change: Any) -> None:
        self._model, self._change = model, change

    def predict(self, X: Any) -> Any:
        answer = self._model.predict(X)
        return self._change(answer) if isinstance(X, np.ndarray) and X.dtype == np.int8 else answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def tree() -> Any:
    """A setting with a tree, and its compiled model."""
    setting = next(settings("DecisionTreeClassifier", 0))
    return setting, compile_small(setting.model)


def _other_label(answer: np.ndarray) -> np.ndarray:
    changed = answer.copy()
    changed[3] = "yes" if answer[3] == "no" else "no"
    return changed


def _crash(answer: np.ndarray) -> np.ndarray:
    raise KeyError("planted")


def test_a_tree_agrees_with_its_library(tree: Any):
    setting, compiled = tree
    outcome = sweep_setting("DecisionTreeClassifier", 0, setting, lambda model: compiled)
    assert outcome.counts[WRONG] == 0, outcome.findings
    assert outcome.counts[AGREE] > 80 and outcome.counts[BOTH_RAISE] > 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_other_label, "[3] is"),
        (_crash, "crash: KeyError"),
        (lambda answer: answer.astype(object), "type object for"),
        (lambda answer: answer[:, None], "shape (18, 1) for (18,)"),
        (lambda answer: answer.tolist(), "list of 18 for array"),
    ],
)
def test_a_planted_answer_is_reported(tree: Any, change: Any, reason: str):
    setting, compiled = tree
    planted = _Planted(compiled, change)
    outcome = sweep_setting("DecisionTreeClassifier", 0, setting, lambda model: planted)
    wrong = [one for one in outcome.findings if one[0] == WRONG]
    assert [one[1:3] for one in wrong] == [("predict", "int8"), ("predict", "edges, int8")], wrong
    assert all(reason in one[3] or "shape" in one[3] for one in wrong), wrong
    assert "| DecisionTreeClassifier | 1 " in report.markdown([outcome], "# Head")
    assert "## Wrong" in report.markdown([outcome], "# Head")


def test_numbers_differ_by_more_than_the_tolerance():
    expected = np.array([[1.0, 100.0], [1e-9, np.nan]])
    near_enough = expected * (1 + 1e-7)
    assert not compare.difference(near_enough, expected, 1e-6, 1e-2)
    assert compare.difference(expected * (1 + 1e-5), expected, 1e-6, 1e-2)
    assert compare.difference(np.nan_to_num(expected), expected, 1e-6, 1e-2)
    assert "array for sparse array" in compare.difference(expected, sparse.csr_array(expected), 1e-6, 1.0)
    assert compare.difference([expected], [expected, expected], 1e-6, 1.0) == "list of 1 for list of 2"


def test_verdicts_of_calls_that_raise():
    refusal, missing = InputError("no"), ValueError("Input X contains NaN.")
    assert compare.judge(None, refusal) == (REFUSED, "no")
    assert compare.judge(missing, refusal)[0] == BOTH_RAISE
    assert compare.judge(missing, None)[0] == WRONG
    assert compare.judge(TypeError("Sparse data was passed"), None)[0] == MORE
    assert compare.judge(None, IndexError("3"))[0] == WRONG


def _answers(model: Any, title: str, rows: Any, got: Any, method: str = "predict") -> Answers:
    """An answer beside the library's."""
    return Answers(Judge(model, method, has_trees(model)), title, rows, got, getattr(model, method)(rows))


def test_only_what_models_md_states_is_set_apart():
    line = np.arange(8.0)[:, None]
    tree = DecisionTreeClassifier().fit(line, line[:, 0] > 3)
    overflow = (
        "answers; the library raises ValueError: Input X contains infinity or a value too large for dtype"
    )
    other = ~tree.predict(line)
    assert not documented.sentence(_answers(tree, "int8", line.astype(np.int8), other), "[3] is 1 for 0")
    assert not documented.sentence(_answers(tree, "extreme", line * 1e30, other), "[3] is 1 for 0")
    assert documented.sentence(_answers(tree, "extreme", line, other), overflow)
    assert not documented.sentence(_answers(tree, "inf", line, other), overflow)


def test_mixtures_of_integers_have_to_be_those_of_floats():
    whole = np.random.default_rng(0).integers(0, 100, (60, 2))
    mixture = GaussianMixture(2, random_state=0).fit(whole)
    floats = mixture.predict(whole.astype(np.float64))
    rows = whole.astype(np.int8)
    answers = _answers(mixture, "int8", rows, floats)
    assert documented.sentence(answers, "[3] is 1 for 0")
    assert not documented.sentence(replace(answers, got=1 - floats), "[3] is 1 for 0")
    assert not documented.sentence(replace(answers, title="float64"), "[3] is 1 for 0")


@pytest.mark.parametrize("before", [[], [StandardScaler()]])
def test_neighbours_may_differ_only_in_tied_rows(before: list[Any]):
    line = np.arange(8.0)[:, None]
    model = make_pipeline(*before, KNeighborsRegressor(1)).fit(line, line[:, 0] * 3)
    rows = np.array([[0.5], [2.25], [3.5]])
    expected = model.predict(rows)
    for changed, stated in (([0], True), ([0, 2], True), ([1], False), ([0, 1], False)):
        got = expected.copy()
        got[changed] += 3
        answers = _answers(model, "edges, float64", rows, got)
        assert answers.difference()
        assert bool(documented.sentence(answers, answers.difference())) == stated


def test_rows_beside_huge_ones_are_compared_by_themselves():
    rows = np.array([[1.0], [2.0], [1e30]])
    model = KMeans(1, n_init=1, random_state=0).fit(rows[:2])
    expected = model.transform(rows)
    for row, factor, agrees in ((0, 1.01, False), (2, 1.01, False), (2, 1 + 1e-7, True), (2, np.inf, False)):
        got = expected.copy()
        got[row] *= factor
        answers = _answers(model, "huge", rows, got, "transform")
        told = answers.difference()
        assert (not told) == agrees
        assert bool(told and documented.sentence(answers, told)) == np.isinf(factor)


@pytest.mark.parametrize("name", ["KBinsDiscretizer", "HistGradientBoostingRegressor", "StandardScaler"])
def test_edges_are_values_of_the_model(name: str):
    setting = next(settings(name, 0))
    found = edges(setting.model, 4, np.random.default_rng(0))
    assert all(len(values) for values in found[:1])
    if name == "KBinsDiscretizer":
        assert set(setting.model.bin_edges_[0]) <= set(found[0])
    low, high = near(found[0], "float32")[len(found[0]) :].reshape(2, -1)
    assert ((low < found[0].astype(np.float32)) & (found[0].astype(np.float32) < high)).all()


def test_the_same_seed_gives_the_same_rows():
    setting = next(settings("StandardScaler", 1))
    again = next(settings("StandardScaler", 1))
    first, second = (list(variants(one.model, one.data, 1)) for one in (setting, again))
    assert [name for name, _ in first] == [name for name, _ in second]
    for (name, rows), (_, other) in zip(first, second, strict=True):
        if isinstance(rows, np.ndarray) and rows.dtype != object:
            np.testing.assert_array_equal(rows, other, err_msg=name)
    assert {"int8", "uint64", "bool", "edges, float32", "pandas, nullable", "csr_array"} <= dict(first).keys()


@pytest.mark.filterwarnings("ignore:Class PassiveAggressive:FutureWarning")
def test_all_classes_can_be_made():
    assert len(classes()) > 150
    for kind in classes().values():
        instance(kind)


def _badly(name: str, seed: int, limit: int, only: str) -> Iterator[Outcome]:
    yield Outcome(name, seed, "plain")
    if name == "crashes":
        os._exit(3)
    while name == "hangs":
        time.sleep(0.1)


def test_a_process_that_crashes_or_hangs_is_reported():
    tasks = [("crashes", 0), ("works", 0)]
    ended = {done[0].name: done for done in processes.run(tasks, 2, 1, "", 600.0, _badly, (__name__,))}
    assert ended["crashes"][-1].findings == [(WRONG, "process", "", "crash: the process ended with status 3")]
    assert len(ended["works"]) == 1
    (hanging,) = processes.run([("hangs", 0)], 1, 1, "", 0.0, _badly, (__name__,))
    assert hanging[-1].findings == [(WRONG, "process", "", "crash: not done after 0 s")]


def test_the_command_writes_its_table(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "run", lambda *given: [list(sweep_class("MaxAbsScaler", 0, limit=1))])
    written = tmp_path / "sweep.md"
    status = main(["--classes", "MaxAbsScaler", "--seeds", "0", "--limit", "1", "-o", str(written)])
    assert "| MaxAbsScaler" in written.read_text()
    assert status == ("## Wrong" in written.read_text())
    assert main(["--classes", "NoSuchClass"]) == 2
    assert "NoSuchClass" in capsys.readouterr().err
