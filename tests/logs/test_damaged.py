"""Logs that lie: every field of real records changed, through everything that reads logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from benchmarks.mutants.changes import DEEP
from hbtvm.cli.main import main
from hbtvm.compiler.candidates.tasks import describe, operands_of
from hbtvm.compiler.selection.choose import choose
from hbtvm.compiler.targets.target import resolve
from hbtvm.cost_model.create import maker
from hbtvm.frontends import from_object
from hbtvm.logs import Log, Record, RecordError, best, merge, prune, stats
from hbtvm.logs.bounds import MOST_BYTES
from hbtvm.logs.ranking import final_mark
from hbtvm.logs.store import parse
from hbtvm.report.page import render
from hbtvm.report.ranking import validate
from hbtvm.report.story import tell
from hbtvm.strategies import make_forest, strategies_on, workload_of
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.learning.transfer import seeds
from hbtvm.tuning.task import Task
from tests.ensembles import random_ensemble
from tests.fake_tuning import loops
from tests.logs import damaged
from tests.models import data, targets

CPU = resolve({"kind": "llvm", "mcpu": "x86-64-v3"})
GPU = resolve({"kind": "cuda", "arch": "sm_90"})
RNG = np.random.default_rng(5)


def operands() -> list[Any]:
    """Trees, a linear model and a network, as tasks hold them."""
    X = data()[0]
    linear = from_object(LogisticRegression().fit(X, targets("real") > 0))
    network = from_object(KMeans(3, n_init=1, random_state=0).fit(X))
    forest = make_forest(
        random_ensemble(np.random.default_rng(0), trees=20, max_leaves=8), "float32", "float32"
    )
    return [forest, operands_of(linear, "float32")[0], operands_of(network, "float32")[0]]


def originals() -> list[Record]:
    """A right record of each strategy on a CPU and a GPU: readings, finals, failures."""
    records = []
    for operand in operands():
        workload = workload_of(operand, 100, 2)
        for target in (CPU, GPU):
            for name, strategy in strategies_on(target, operand.family).items():
                number = len(records)
                failed = number % 4 == 3
                records.append(
                    Record(
                        workload=workload,
                        strategy=name,
                        target=target,
                        config=strategy.default(workload, target),
                        times=() if failed else (1e-5, 2e-5),
                        error={"kind": "build", "message": "no"} if failed else None,
                        build_seconds=0.1,
                        tvm="0.27.0",
                        hbtvm="0.1.0",
                        session="a",
                        extra=final_mark("f", 1e-5) if number % 4 == 1 else {},
                    )
                )
    return records


ORIGINALS = originals()


def changed_lines(records: list[Record]) -> list[str]:
    return [line for record in records for line in damaged.lines(record)]


@pytest.fixture(scope="module")
def left() -> list[Record]:
    """Records that lie, and yet have right types and sizes."""
    return parse(line.encode("utf-8", "surrogatepass") for line in changed_lines(ORIGINALS[::3])).records


@pytest.mark.parametrize("record", ORIGINALS[::3], ids=lambda record: record.strategy)
def test_a_changed_line_is_a_record_within_bounds_or_is_skipped_with_a_reason(record: Record) -> None:
    taken = 0
    for line in damaged.lines(record):
        try:
            read = Record.from_line(line)
        except RecordError as error:
            assert 0 < len(str(error)) < 300, line[:200]
            continue
        taken += 1
        assert Record.from_line(read.to_line()) == read
        for text in (DEEP, "9" * 400, "1e400", "NaN", "Infinity", "\\ud800", '"a": 1, "a": 2'):
            assert text not in line
    assert taken > 100


@pytest.mark.parametrize("line", damaged.WHOLE, ids=lambda line: ascii(line[:12]))
def test_a_line_of_something_else_is_skipped_with_a_reason(line: bytes, tmp_path: Path) -> None:
    good = ORIGINALS[0].to_line().encode()
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([good, b"", line, line, good]))
    read = Log(path).read()
    assert (len(read.records), read.skipped, read.line) == (2, 2, 3)
    assert read.note("log.jsonl") == f"log.jsonl: 2 lines were skipped, first line 3 ({read.reason})"
    assert 0 < len(read.reason) < 300


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = ORIGINALS[0].to_line().encode()
    path.write_bytes(good + b"\n" + b'"' + b"x" * (3 * MOST_BYTES) + b"\n" + good)
    read = Log(path).read()
    assert (len(read.records), read.skipped, read.line) == (2, 1, 2)
    assert read.reason == "a line of more than 4 MiB"


def test_what_is_left_serves_every_reader(left: list[Record], tmp_path: Path) -> None:
    assert best([*left, *ORIGINALS]) is not None
    assert stats(left).records == len(left)
    story = tell(left)
    assert render(story, "log", validate(story.chapters[:40], describe, model))
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.replace([*left, *ORIGINALS])
    done = merge([path, path], path)
    assert done.written + done.duplicates == 2 * (len(left) + len(ORIGINALS)) and not done.skipped
    assert prune(path, keep=1, others=0, errors=0).kept > 0


def model(frame: Any) -> Any:
    return maker("rank", frame=lambda: frame)([])


def test_a_chosen_configuration_is_of_the_models_own_space(left: list[Record]) -> None:
    for operand in operands():
        workload = workload_of(operand, 100, 2)
        strategies = strategies_on(CPU, operand.family)
        for name, strategy in strategies.items():
            space, default = strategy.space(workload, CPU), strategy.default(workload, CPU)
            choice = choose(left, {name: strategy}, workload, CPU)
            assert space.contains(choice.config)
            task = Task(name, workload, CPU, name, "group", space, loops, "none", {}, (default,))
            for config in seeds(task, left, 64):
                assert space.contains(config)


def test_spaces_and_lessons_of_workloads_that_lie(left: list[Record]) -> None:
    """Every space that is found is small enough to walk; and a model learns from what is understood."""
    known = {record.task: record for record in left}
    spaces = {task: found[1] for task, record in known.items() if (found := describe(record)) is not None}
    assert 10 < len(spaces) < len(known)
    lessons: list[Record] = []
    for task, space in spaces.items():
        record = known[task]
        assert space.size < 10**15
        for number, config in enumerate(space.sample(RNG, 8)):
            lessons.append(
                Record(
                    workload=record.workload,
                    strategy=record.strategy,
                    target=record.target,
                    config=config,
                    times=(1e-6 * (1 + number),),
                )
            )
    operand = operands()[0]
    workload = workload_of(operand, 100, 2)
    strategy = strategies_on(CPU)["bitvector"]
    default = strategy.default(workload, CPU)
    task = Task(
        "a", workload, CPU, "bitvector", "g", strategy.space(workload, CPU), loops, "none", {}, (default,)
    )
    learner = Learner([task], Choices())
    assert learner.learn_from(lessons, describe) > 8
    assert not learner.failures, learner.warning


def test_commands_say_what_they_skip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [*list(changed_lines(ORIGINALS[1:2]))[::7], *(record.to_line() for record in ORIGINALS)]
    Path("log.jsonl").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + b"\n")
    skipped = Log("log.jsonl").read().skipped
    commands = (
        ["log", "stats", "log.jsonl"],
        ["log", "stats", "log.jsonl", "--json"],
        ["log", "best", "log.jsonl"],
        ["log", "best", "log.jsonl", "--json"],
        ["report", "log.jsonl", "-o", "log.html"],
        ["log", "merge", "log.jsonl", "-o", "merged.jsonl"],
        ["log", "prune", "log.jsonl"],
    )
    for command in commands:
        assert main(command) == 0, command
        printed = capsys.readouterr()
        told = [line for line in printed.err.splitlines() if "skipped" in line]
        assert len(told) == 1, command
        assert told[0].startswith(f"hbtvm: log.jsonl: {skipped:,} lines were skipped, first line "), command
        assert "bug" not in printed.err and "Traceback" not in printed.err
        if "--json" in command:
            json.loads(printed.out)
    assert not Log("log.jsonl").read().skipped and not Log("merged.jsonl").read().skipped
