"""Recursive models compiled and tuned, from models and files to predictions."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.compiler.recursion.compile import chosen, work_of
from hbtvm.logs.ranking import final_mark
from hbtvm.logs.record import Record
from hbtvm.recursive import known, reference
from hbtvm.strategies.recursive.levels import Levels

pytestmark = pytest.mark.usefixtures("shared_workers")

VOCABULARY = 30
TREES = rec.trees([[1, [2, 3]], [[4, 5], [6, [7, 8]]], 9, [0, 29]])


@functools.cache
def model(output: str = "classes") -> rec.Model:
    """A tree LSTM with random weights; `output` says what is read of it."""
    rng = np.random.default_rng(3)
    weights = known.example_weights("tree_lstm", 24, VOCABULARY)
    weights["head.weight"] = rng.normal(size=(3, 24)).astype(np.float32)
    weights["head.bias"] = rng.normal(size=3).astype(np.float32)
    weights["one"] = rng.normal(size=(1, 24)).astype(np.float32)
    outputs: dict[str, Any] = {
        "classes": rec.roots("h") | rec.linear("head") | rec.softmax(),
        "two": rec.mean("h") | rec.linear("one"),
        "value": rec.total("c") | rec.linear("one") | rec.tanh(),
        "nodes": rec.nodes("h"),
        "most": rec.most("c"),
    }
    classes = {"classes": ("bad", "so so", "good"), "two": (0, 1)}.get(output, ())
    return rec.Model(known.tree_lstm(24, 2), weights, outputs[output], classes=classes)


@pytest.mark.parametrize("output", ["classes", "two", "value", "nodes", "most"])
def test_predictions_are_the_reference_s(output: str) -> None:
    own = model(output)
    compiled = hbtvm.compile(own, batch_sizes=(4,), threads=1)
    expected = reference.scores(own, TREES)
    if output == "classes":
        np.testing.assert_allclose(compiled.predict_proba(TREES), expected, atol=1e-6)
        np.testing.assert_array_equal(compiled.predict(TREES), np.array(own.classes)[expected.argmax(axis=1)])
    elif output == "two":
        second = 1 / (1 + np.exp(-expected[:, 0]))
        np.testing.assert_allclose(compiled.predict_proba(TREES)[:, 1], second, atol=1e-6)
        np.testing.assert_array_equal(compiled.predict(TREES), (second > 0.5).astype(int))
    else:
        found = compiled.predict(TREES)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=2e-6)


def test_tuning_of_a_file_and_its_log(tmp_path: Path) -> None:
    path, log = tmp_path / "sentiment.rec", tmp_path / "log.jsonl"
    model().save(path)
    options: dict[str, Any] = {"batch_sizes": 3, "threads": 2, "log": log}
    found = hbtvm.search(path, trials=3, seed=1, **options)
    assert found.result.trials == 3
    assert {group.best.task.group for group in found.result.groups.values() if group.best} == {"3 structures"}
    expected = reference.scores(model(), TREES)
    np.testing.assert_allclose(found.model.predict_proba(TREES), expected, atol=1e-6)
    found.model.save(tmp_path / "sentiment.tar")
    loaded = hbtvm.load(tmp_path / "sentiment.tar")
    np.testing.assert_array_equal(loaded.predict_proba(TREES), found.model.predict_proba(TREES))
    # What was measured is found again.
    again = hbtvm.compile(path, **options)
    assert "log" in again.package.tuning["origins"]
    assert again.package.recursion is not None and found.model.package.recursion is not None
    by_rows = {one.rows: dict(one.config) for one in found.model.package.recursion.kernels}
    for one, origin in zip(again.package.recursion.kernels, again.package.tuning["origins"], strict=True):
        assert origin != "log" or dict(one.config) == by_rows[one.rows]
    # As in logs of releases whose spaces had fewer knobs.
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("config", {}).pop("depth", None)
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    older = hbtvm.compile(path, **options)
    assert older.package.tuning["origins"] == again.package.tuning["origins"]
    assert older.package.recursion is not None
    assert all(one.config["depth"] == one.depth == 1 for one in older.package.recursion.kernels)


@pytest.mark.parametrize(
    "target", ['{"kind": "llvm", "mcpu": "x86-64-v3"}', '{"kind": "llvm", "mcpu": "x86-64-v2"}']
)
def test_other_cpus(target: str) -> None:
    compiled = hbtvm.compile(model(), target=target, batch_sizes=(4,), threads=1)
    expected = reference.scores(model(), TREES)
    np.testing.assert_allclose(compiled.predict_proba(TREES), expected, atol=1e-6)


def test_float64_and_strategies_are_refused() -> None:
    with pytest.raises(hbtvm.InputError, match="float32"):
        hbtvm.compile(model(), dtype="float64")
    with pytest.raises(hbtvm.InputError, match="levels"):
        hbtvm.compile(model(), strategies=["gemm"])


def test_rows_are_refused_with_what_is_expected() -> None:
    compiled = hbtvm.compile(model("nodes"), batch_sizes=(1,), threads=1)
    with pytest.raises(hbtvm.InputError, match="structures"):
        compiled.predict(np.zeros((3, 4), np.float32))


def test_finals_decide_over_readings() -> None:
    """A reading of a search may be lucky; what was measured anew at its end counts, as for other models."""
    target = hbtvm.compile(model(), batch_sizes=(1,), threads=1).package.target
    work = work_of(model(), target, (1,), 1)
    workload, levels = work.workload(1), Levels()
    default = levels.default(workload, target)
    others = [one for one in itertools.islice(levels.space(workload, target), 50) if one != default][:2]
    made = functools.partial(Record, workload=workload, target=target, strategy=levels.name)
    readings = [made(config=others[0], times=(1e-6,)), made(config=others[1], times=(2e-6,))]
    finals = [
        made(config=config, times=(seconds,), extra=final_mark("a", reading))
        for config, seconds, reading in ((others[0], 4e-6, 1e-6), (others[1], 3e-6, 2e-6))
    ]
    assert chosen(work, 1, readings)[:2] == (others[0], 1e-6)
    assert chosen(work, 1, [*readings, *finals])[:2] == (others[1], 3e-6)
