"""Runs that are left alone for hours: killed, resumed, out of disk, full of bad candidates, and long."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.schedules.space import Knob, Space
from hbtvm.tuning.measuring.pool import PoolOptions
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.measuring.worker_process import Limits
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import START, InProcess, task

LONG = int(os.environ.get("HBTVM_LONG_TRIALS", "160"))
"""Trials of the long run; 2000 take about half a minute."""

SCRIPT = """
    import json, resource, sys
    from tests.fake_tuning import SPACE, loops, task
    from hbtvm.logs.store import Log
    from hbtvm.tuning.measuring.pool import PoolOptions
    from hbtvm.tuning.session import tune
    from hbtvm.tuning.settings import Settings

    if DISK:
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))

    def progress(event):
        print("told", event.trial, flush=True)

    tasks = [task(name, group=f"{rows} rows", rows=rows, scale=scale)
             for rows in (1, 1000) for name, scale in (("fast", 1e-3), ("close", 1.2e-3))]
    result = tune(tasks, Settings(
        trials=TRIALS, log=Log("log.jsonl"), progress=progress, seed=3, experience=[],
        describe=lambda record: (loops, SPACE), pool=PoolOptions(builders=2)))
    print(result.stopped, result.log_error, all(group.best for group in result.groups.values()), flush=True)
    for record in result.history:
        print("tried", record.strategy, json.dumps(dict(record.config)))
"""


def start(folder: Path, *, trials: int = 48, disk: int = 0, **env: str) -> subprocess.Popen[str]:
    """Begin, or carry on with, a search in a process of its own."""
    script = textwrap.dedent(SCRIPT).replace("TRIALS", str(trials)).replace("DISK", str(disk))
    (folder / "script.py").write_text(script)
    (folder / "tmp").mkdir(exist_ok=True)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder / "tmp"), **env},
    )


def keys(records: list[Record]) -> Counter[str]:
    """How often each candidate was tried."""
    tried = (record for record in records if not record.extra.get("final"))
    return Counter(f"{record.workload_key} {record.strategy} {record.config}" for record in tried)


def test_killed_at_any_moment_it_carries_on_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for goal, moment in ((3, 0.0), (17, 0.003), (34, 0.011)):
        with start(tmp_path) as process:
            assert process.stdout is not None
            told = 0
            while told < goal:
                told = int(process.stdout.readline().split()[1])
            time.sleep(moment)
            process.kill()
        assert sum(keys(log.read().records).values()) >= told
    # Nobody came back to clean up what was killed; the next run does.
    left = list((tmp_path / "tmp").glob("tuning-*"))
    assert left
    for folder in left:
        os.utime(folder, (0, 0))
    with start(tmp_path) as process:
        output, errors = process.communicate(timeout=250)
    assert errors == ""
    assert "trials None True" in output
    tried = keys(log.read().records)
    assert sum(tried.values()) == 48
    assert set(tried.values()) == {1}  # nothing was measured twice
    assert list((tmp_path / "tmp").glob("tuning-*")) == []


def test_a_torn_last_line_is_survived(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    tune([task()], Settings(trials=10, log=log, experience=[]), InProcess())
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-40])  # a power failure
    result = tune([task()], Settings(trials=12, log=log, experience=[]), InProcess())
    assert result.trials == 12
    assert log.read().skipped == 1


def test_a_log_of_the_first_version_carries_on(tmp_path: Path) -> None:
    line = (
        '{"version":1,"workload":{"rows":1000,"trees":10},"strategy":"fast","target":{"kind":"llvm",'
        '"num-cores":2},"config":{"a":1,"b":1,"c":1,"unroll":false},"times":[0.5],"date":"2025-01-01T00:00:00Z"}'
    )
    (tmp_path / "log.jsonl").write_text(line + "\n")
    result = tune([task()], Settings(trials=5, log=Log(tmp_path / "log.jsonl"), experience=[]), InProcess())
    assert result.resumed == 1
    assert START not in [record.config for record in result.history if not record.extra.get("final")]


def test_full_disk_stops_with_a_sentence_and_the_best_so_far(tmp_path: Path) -> None:
    with start(tmp_path, disk=6_000) as process:
        output, errors = process.communicate(timeout=250)
    assert errors == ""
    assert "log cannot write tuning log log.jsonl: No space left on device True" in output
    read = Log(tmp_path / "log.jsonl").read()
    assert read.skipped == 0 and len(read.records) > 10


def test_log_whose_folder_goes_away_stops_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()

    def progress(event: Any) -> None:
        if event.trial == 10:
            folder.rename(tmp_path / "gone")

    runner = InProcess()
    runner.close = lambda: None  # type: ignore[method-assign]  # a batch is left over
    result = tune(
        [task()], Settings(trials=40, log=Log(folder / "x.jsonl"), progress=progress, experience=[]), runner
    )
    assert result.stopped == "log"
    assert "its folder does not exist" in str(result.log_error)
    assert result.groups["1000 rows"].best is not None


def test_devices_keep_no_log() -> None:
    assert Log("/dev/zero").read().records == []  # which would never end


def test_same_seed_and_times_give_the_same_candidates_in_any_process(tmp_path: Path) -> None:
    tried = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with start(folder, PYTHONHASHSEED=str(number)) as process:
            output, _ = process.communicate(timeout=250)
        tried.append([line for line in output.splitlines() if line.startswith("tried")])
    assert len(tried[0]) > 48
    assert tried[0] == tried[1]


def test_same_seed_and_log_carry_on_alike(tmp_path: Path) -> None:
    tune([task()], Settings(trials=20, log=Log(tmp_path / "a.jsonl"), experience=[]), InProcess())
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes())
    one, two = (
        tune([task()], Settings(trials=50, log=Log(tmp_path / f"{name}.jsonl"), experience=[]), InProcess())
        for name in "ab"
    )
    assert [r.config for r in one.history] == [r.config for r in two.history]


def test_planted_candidates_cost_their_own_trials_only(tmp_path: Path) -> None:
    planted = {
        "2,2": "abort",
        "4,2": "segfault",
        "8,2": "exit",
        "16,2": "hang",
        "32,2": "hog",
        "64,2": "leak",
        "128,2": "print",
        "256,2": "raise",
        "512,2": "child",
    }
    space = Space((Knob("a", tuple(2**i for i in range(10))), Knob("b", (1, 2, 4))))
    limits = Limits(build=60, measure=3, memory=250 * 2**20)
    # Other tests of this process may have started what lives as long as it.
    before = set(psutil.Process().children(recursive=True))
    result = tune(
        [task(space=space, planted=planted)],
        Settings(
            trials=30,
            log=Log(tmp_path / "log.jsonl"),
            pool=PoolOptions(builders=2, limits=limits),
            experience=[],
        ),
    )
    first: dict[str, Record] = {}
    for record in result.history:
        first.setdefault(f"{record.config['a']},{record.config['b']}", record)
    kinds = {at: record.error["kind"] for at, record in first.items() if record.error}
    assert kinds == {
        "2,2": "crash",
        "4,2": "crash",
        "8,2": "crash",
        "16,2": "timeout",
        "32,2": "crash",
        "256,2": "measure",
        "512,2": "timeout",
    }
    assert len(first) == 30  # all others, the leaking and the talkative one too, gave a time
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.timeout(120)
def test_many_trials_leave_no_process_and_no_memory_behind(tmp_path: Path) -> None:
    me = psutil.Process()
    before = set(me.children(recursive=True))
    memory: list[int] = []
    files: list[int] = []

    def progress(event: Any) -> None:
        if event.trial % (LONG // 10) == 0 and not event.final:
            memory.append(me.memory_info().rss)
            files.append(me.num_fds())
            assert len(me.children(recursive=True)) <= 3 + len(before)

    tasks = [task(group=f"{rows} rows", rows=rows) for rows in (1, 1000)]
    pool = PoolOptions(builders=2, limits=Limits(jobs=40))  # workers are replaced now and then
    log = Log(tmp_path / "log.jsonl")
    result = tune(tasks, Settings(trials=LONG, log=log, progress=progress, pool=pool, experience=[]))
    assert (result.trials, result.failures) == (LONG, {})
    assert set(me.children(recursive=True)) == before
    assert memory[-1] - memory[1] < 40 * 2**20
    # Other threads of this process may have files open for a moment; what leaks stays open.
    half = len(files) // 2
    assert min(files[half:]) - min(files[:half]) <= 3


def test_scratch_folders_of_the_dead_are_removed_and_of_the_living_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    load = "import os; from hbtvm.tuning.measuring.scratch import Scratch"
    code = f"{load}; s = Scratch('x-'); print(s.path); os._exit(0)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    dead = Path(done.stdout.strip())
    (tmp_path / "x-strange").mkdir()
    with Scratch("x-") as living:
        assert dead.exists()  # it may just have been made
        for folder in tmp_path.iterdir():
            os.utime(folder, (0, 0))
        with Scratch("x-") as another:
            assert not dead.exists()
            assert living.exists() and another.exists() and (tmp_path / "x-strange").exists()
    assert os.listdir(tmp_path) == ["x-strange"]
