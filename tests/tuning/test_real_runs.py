"""The tuning loop with real worker processes, one of which crashes, and with Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil

from hbtvm.logs.store import Log

SCRIPT = """
    from tests.fake_tuning import task
    from hbtvm.logs.store import Log
    from hbtvm.tuning.measuring.pool import PoolOptions
    from hbtvm.tuning.measuring.worker_process import Limits
    from hbtvm.tuning.session import tune
    from hbtvm.tuning.settings import Settings

    def progress(event):
        print(event.trial, flush=True)

    limits = Limits(build=60, measure=60)
    pool = PoolOptions(builders=2, limits=limits)
    crash = {"a": 1, "b": 1, "c": 1, "unroll": False}
    result = tune([task(only=crash, check="segfault")], Settings(
        trials=TRIALS, log=Log("log.jsonl"), progress=progress, pool=pool, experience=[]))
    print(result.stopped, result.groups["1000 rows"].best.time < 1e-2, dict(result.failures), flush=True)
"""


def start(folder: Path, trials: int) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT).replace("TRIALS", str(trials)))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_with_real_processes_one_of_which_crashes(tmp_path: Path) -> None:
    output, errors = start(tmp_path, 24).communicate(timeout=250)
    assert output.splitlines()[-1] == "trials True {'crash': 1}"
    assert errors == ""
    assert len(Log(tmp_path / "log.jsonl").read().records) >= 24


def test_control_c_in_a_real_run(tmp_path: Path) -> None:
    with start(tmp_path, 10**5) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "20":
            pass
        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=250)
    assert output.splitlines()[-1].startswith("interrupted True")
    assert errors == ""
    assert not any(child.is_running() for child in children)
