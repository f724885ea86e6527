"""Linear models are tuned as trees are, side by side with them in one log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm.compiler.candidates import tasks
from hbtvm.compiler.selection.choose import choose
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.logs.query import shipped
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.strategies import make_forest, strategies_on, workload_of
from hbtvm.tuning.learning.transfer import nearest
from tests.kernels import CPU
from tests.models import data, targets

pytestmark = pytest.mark.usefixtures("shared_workers")


@pytest.fixture(scope="module")
def model() -> LogisticRegression:
    # Of two classes: of more, labels and probabilities are computed with the scores, by a network.
    return LogisticRegression().fit(data()[0], targets("real") > 0)


@pytest.fixture(scope="module")
def tree() -> DecisionTreeRegressor:
    return DecisionTreeRegressor(max_depth=3).fit(data()[0], targets("real"))


def test_one_log_serves_trees_and_linear_models(
    model: LogisticRegression, tree: DecisionTreeRegressor, tmp_path: Path
) -> None:
    log, X = tmp_path / "log.jsonl", data()[0]
    hbtvm.search(tree, batch_sizes=100, trials=3, log=log, threads=1, strategies="gemm")
    found = hbtvm.search(model, batch_sizes=(1, 100), trials=8, log=log, threads=1, seed=3)
    assert found.result.trials == 8
    assert not found.result.failures
    assert all("busy" in warning for warning in found.result.warnings)
    records = Log(log).read().records
    own = [record for record in records if record.workload.get("family") == "linear"]
    assert {record.strategy for record in own} == {"linear"}
    assert {record.workload["rows"] for record in own} == {1, 100}
    for record in own:
        known = tasks.describe(record)
        assert known is not None
        assert known[1].contains(dict(record.config))
    np.testing.assert_allclose(found.model.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    timed = [kernel for kernel in found.model.package.kernels if kernel.seconds is not None]
    assert [(kernel.rows, kernel.dtype) for kernel in timed] == [(1, "float64"), (100, "float64")]
    assert {kernel.dtype for kernel in found.model.package.kernels} == {"float32", "float64"}

    again = hbtvm.search(model, batch_sizes=(1, 100), trials=8, log=log, threads=1, seed=3)
    assert again.result.resumed == 8
    compiled = hbtvm.compile(model, batch_sizes=(1, 100), log=log, threads=1)
    assert compiled.package.tuning["origins"] == ["log", "log"]
    trees = hbtvm.compile(tree, batch_sizes=100, log=log, threads=1)
    assert trees.package.kernels[0].strategy == "gemm"
    assert trees.package.tuning["origins"] == ["log"]


def records_of(graph: object, strategy: str, count: int) -> list[Record]:
    operand = (
        tasks.operands_of(graph, "float32")[0]  # type: ignore[arg-type]
        if strategy == "linear"
        else make_forest(graph.anchor, "float32", "float32")  # type: ignore[attr-defined]
    )
    how, workload = strategies_on(CPU, operand.family)[strategy], workload_of(operand, 100)
    configs = how.space(workload, CPU).sample(np.random.default_rng(0), count)
    return [
        Record(workload=workload, strategy=strategy, target=CPU, config=config, times=(1e-6 * (1 + i),))
        for i, config in enumerate(configs)
    ]


def test_records_of_the_other_family_say_nothing(
    model: LogisticRegression, tree: DecisionTreeRegressor, tmp_path: Path
) -> None:
    linear, trees = from_object(model), from_object(tree)
    of_linear, of_trees = records_of(linear, "linear", 20), records_of(trees, "gemm", 20)
    operand = tasks.operands_of(linear, "float32")[0]
    forest = tasks.operands_of(trees, "float32")[0]
    for one, others in ((operand, [*of_trees, *shipped()]), (forest, of_linear)):
        workload = workload_of(one, 100)
        usable, _ = tasks.usable(one, None, CPU)
        choice = choose(others, usable, workload, CPU)
        assert (choice.origin, choice.strategy in usable) == ("default", True)
        found = tasks.make_tasks(one, usable, CPU, [100], 1, tmp_path)
        assert nearest([others], found, 5) == []
    default = strategies_on(CPU, "linear")["linear"].default(of_linear[0].workload, CPU)  # type: ignore[arg-type]
    measured = [*of_linear, replace(of_linear[0], config=default, times=(1e-3,))]
    known = {
        name: choose(measured, tasks.usable(operand, None, CPU)[0], workload_of(operand, rows), CPU).origin
        for name, rows in (("same", 100), ("near", 150))
    }
    assert known == {"same": "log", "near": "similar"}


def test_strategies_of_the_other_family_are_refused_by_name(
    model: LogisticRegression, tree: DecisionTreeRegressor
) -> None:
    with pytest.raises(InputError, match="no strategy can hold this model: gemm holds trees only"):
        hbtvm.compile(model, strategies="gemm")
    with pytest.raises(InputError, match="linear holds linear models only"):
        hbtvm.compile(tree, strategies="linear")
    with pytest.raises(
        InputError, match=r"there is no strategy 'magic'.*gemm, oblivious, leaf_intervals, linear"
    ):
        hbtvm.compile(model, strategies="magic")
    assert hbtvm.compile(model, batch_sizes=1, strategies=("gemm", "linear")).package.kernels
