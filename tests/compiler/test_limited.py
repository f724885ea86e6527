"""Logged configurations are built within a search's limits."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm.compiler.building import limited
from hbtvm.compiler.candidates.tasks import operands_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import BuildError
from hbtvm.frontends import from_object
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.strategies import STRATEGIES, workload_of
from hbtvm.tuning.measuring.worker_process import Limits

X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


def hang(*_: Any) -> None:
    time.sleep(600)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "LIMITS", Limits(build=0.5))


def test_results_come_in_order_and_failures_in_one_sentence(impatient: None) -> None:
    assert limited.results([]) == []
    calls: list[tuple[str, Any]] = [(str(n), partial(np.full, n, 1.5)) for n in (3, 1, 2)]
    assert [len(made) for made in limited.results(calls)] == [3, 1, 2]
    for call, reason in ((partial(int, "x"), "ValueError: invalid literal"), (hang, "it took too long")):
        with pytest.raises(BuildError, match=f"configuration for gemm, 1 row can't be built: .*{reason}"):
            limited.results([("gemm, 1 row", call)])


def test_a_log_cannot_keep_compile_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    model = DecisionTreeRegressor(max_depth=3).fit(X, X[:, 0])
    operand = operands_of(from_object(model), "float32")[0]
    workload, target = workload_of(operand, 7, 1), resolve("cpu")
    config = STRATEGIES["bitvector"].default(workload, target)
    log = Log(tmp_path / "log.jsonl")
    log.append(Record(workload=workload, strategy="bitvector", target=target, config=config, times=(1e-6,)))
    compiled = partial(hbtvm.compile, model, batch_sizes=7, threads=1)
    with monkeypatch.context() as patch:
        patch.setattr("hbtvm.compiler.assemble.build_packaged", hang)
        with pytest.raises(BuildError, match="for bitvector, 7 rows can't be built: it took too long"):
            compiled(log=log)
    monkeypatch.setattr(limited, "LIMITS", Limits())
    made = compiled(log=log)
    assert made.package.tuning["origins"] == ["log"]
    np.testing.assert_allclose(made.predict(X), model.predict(X), rtol=1e-5)
