"""Kernels of contributions are searched beside those of predictions, within one budget and one log."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.api import Search
from hbtvm.cli.progress.summary import print_report
from hbtvm.compiler.candidates import tasks
from hbtvm.compiler.candidates.prepared import prepare
from hbtvm.compiler.candidates.program import TreeProgram
from hbtvm.compiler.pieces import pieces_of
from hbtvm.cost_model.encoding.features import features
from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.graph.views import views_of
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.strategies import Strategy
from hbtvm.tuning.learning.transfer import nearest, seeds
from hbtvm.tuning.task import Task
from hbtvm.words.quantities import model_shape
from tests.kernels import CPU

pytestmark = pytest.mark.usefixtures("shared_workers")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 4)).astype(np.float32)
GROUPS = ["1 row", "100 rows", "reasons, 1 row", "reasons, 100 rows"]


@dataclass
class Searched:
    library: Any
    view: Graph
    search: Search
    log: Log

    @property
    def records(self) -> list[Record]:
        return [one for one in self.log.read().records if one.workload.get("family") == "reasons"]


def search(library: Any, log: Log, **options: Any) -> Search:
    """Search few candidates of predictions and contributions."""
    more = {"batch_sizes": (1, 100), "threads": 1, "trials": 12, "seed": 2, "explain": True, **options}
    return hbtvm.search(library, log=log, **more)


@cache
def searched() -> Searched:
    library = GradientBoostingRegressor(n_estimators=7, max_depth=3, random_state=0)
    library.fit(X, X[:, 0] * X[:, 1] + X[:, 2])
    log = Log(Path(tempfile.mkdtemp(), "log.jsonl"))
    view = views_of(from_object(library))["reasons"]
    return Searched(library, view, search(library, log, strategies="tree_traversal"), log)


def task(rows: int, folder: Path = Path()) -> Task:
    """Return the task for a batch size."""
    piece = pieces_of(searched().view, "float32", None, CPU)[0]
    (found,) = tasks.make_tasks(piece.operands[0], piece.strategies, CPU, [rows], 1, folder)
    return found


def test_both_are_searched_within_the_trials() -> None:
    result = searched().search.result
    assert list(result.groups) == GROUPS
    assert result.trials == 12
    assert not result.failures
    tried = {name: group.trials for name, group in result.groups.items()}
    assert sum(tried.values()) == 12 and min(tried.values()) > 0
    strategies = [group.best.task.strategy for group in result.groups.values() if group.best]
    assert strategies == ["tree_traversal", "tree_traversal", "quadrature", "quadrature"]


def test_the_package_has_the_fastest() -> None:
    found = searched().search
    package = found.model.package
    bests = [found.result.groups[name].best for name in GROUPS]
    for view, best in ((package, bests[:2]), (package.views["reasons"], bests[2:])):
        timed = [kernel for kernel in view.kernels if kernel.seconds is not None]
        assert [(kernel.seconds, kernel.config) for kernel in timed] == [
            (one.time, one.config) for one in best if one
        ]
        assert view.tuning["origins"] == ["tuned", "tuned"]
    assert package.views["leaves"].tuning["origins"] != ["tuned", "tuned"]
    anchor: Any = searched().view.anchor
    scores = found.model.views["reasons"].predict(X[:30])
    np.testing.assert_allclose(scores.reshape(30, -1), anchor.reference(X[:30]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores.sum(axis=-1).reshape(-1), found.model.predict(X[:30]), atol=1e-5)


def test_the_log_is_resumed_and_compiled_from() -> None:
    known = searched()
    again = search(known.library, known.log, strategies="tree_traversal")
    assert (again.result.trials, again.result.resumed) == (12, 12)
    compiled = hbtvm.compile(known.view, batch_sizes=(1, 100), threads=1, log=known.log).package
    assert compiled.tuning["origins"] == ["log", "log"]
    best = again.result.groups["reasons, 100 rows"].best
    assert best is not None and best.config in [kernel.config for kernel in compiled.kernels]


def test_records_are_known_to_logs_and_to_transfer() -> None:
    records = searched().records
    assert {record.workload["rows"] for record in records} == {1, 100}
    for record in records:
        described = tasks.describe(record)
        assert described is not None and described[1].contains(dict(record.config))
        assert model_shape(record.workload) == "reasons of 4 features, 7 trees of 8 leaves, depth 3"
    lame = Record(
        workload={**records[0].workload, "points": "many"}, target=CPU, strategy="quadrature", config={},
        times=(1.0,),
    )  # fmt: skip
    assert tasks.describe(lame) is None
    other = task(300)
    of_rows = [record for record in records if record.workload["rows"] == 100]
    (guess,) = seeds(other, of_rows, 1)
    fastest = min(of_rows, key=lambda record: record.cost)
    assert {**guess, "row_tile": 0} == {**fastest.config, "row_tile": 0} and other.space.contains(guess)
    assert nearest([of_rows], [other], 3) == [of_rows]
    trees = [record for record in searched().log.read().records if record not in records]
    assert nearest([trees], [other], 3) == []


def test_loops_are_described() -> None:
    for rows in (1, 300):
        one = task(rows)
        for config in one.space.sample(np.random.default_rng(0), 6):
            numbers = features([one.describe(config)])
            assert np.isfinite(numbers).all() and numbers.any()


def test_a_wrong_kernel_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepare(pieces_of(searched().view, "float32", None, CPU), CPU, [100], 1, tmp_path)
    (right,) = ready.tasks
    program, (config,) = TreeProgram(right.payload), right.initial
    program.build(config, str(tmp_path / "kernel.so"))
    assert program.load(config, str(tmp_path / "kernel.so")).check() is None

    def swapped(strategy: Strategy, operand: Any, config: Any) -> dict[str, np.ndarray]:
        tables = tables_of(strategy, operand, config)
        return {**tables, "point": tables["point"] * np.float32(1.01)}

    kind = type(ready.works[0].piece.strategies["quadrature"])
    tables_of = kind.tables
    monkeypatch.setattr(kind, "tables", swapped)
    assert "rows differ" in str(program.load(config, str(tmp_path / "kernel.so")).check())


def test_the_report_has_no_times_of_calls_for_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = searched().search
    package = tmp_path / "model.tar"
    package.write_bytes(b"")
    print_report(found.result, package, searched().log.path, calls=found.calls)
    lines = {line[:19].strip(): line for line in capsys.readouterr().out.splitlines()[:5]}
    column = lines["rows in a call"].index("call, array")
    cells = {name: lines[name][column : column + 11].strip() for name in GROUPS}
    assert cells["reasons, 1 row"] == cells["reasons, 100 rows"] == "-"
    assert "µs" in cells["1 row"] + cells["100 rows"]


def test_contributions_of_linear_models(tmp_path: Path) -> None:
    rows = X.astype(np.float64)
    library = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, X[:, 0] > 0)
    found = search(library, Log(tmp_path / "log.jsonl"), batch_sizes=100, trials=4)
    assert list(found.result.groups) == ["100 rows", "reasons, 100 rows"]
    assert not found.result.failures
    view = found.model.package.views["reasons"]
    assert view.tuning["origins"] == ["tuned"]
    scores = found.model.views["reasons"].predict(rows)
    np.testing.assert_allclose(scores.sum(axis=-1).reshape(-1), library.decision_function(rows), atol=1e-9)
