"""Workers may crash, hang, leak and print: the pool carries on and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.measuring.worker_process import Limits

GOOD: Config = {"a": 64, "b": 4, "unroll": True}
BAD: Config = {"a": 32, "b": 4, "unroll": True}
NEVER = float("inf")
# What hangs costs its limit; what does not needs far less, even on a busy machine.
LIMITS = Limits(start=120, build=5, measure=5, memory=250 * 2**20, jobs=100)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(["tests.fake_programs:Synthetic"], PoolOptions(builders=2, limits=LIMITS)) as pool:
        yield pool


def candidate(config: Config, **payload: Any) -> Candidate:
    return Candidate("tests.fake_programs:Synthetic", payload, config)


def build(pool: Pool, *candidates: Candidate) -> list[BuiltLibrary | Failure | None]:
    return pool.build(candidates, NEVER)


def measure(pool: Pool, one: Candidate, timing: Timing | None = None) -> Measured | Failure:
    [library] = build(pool, one)
    assert isinstance(library, BuiltLibrary)
    return pool.measure(one, library, timing or Timing())


def test_good_candidate_is_built_and_timed(pool: Pool) -> None:
    result = measure(pool, candidate(GOOD))
    assert isinstance(result, Measured)
    assert result.times == pytest.approx([1e-3] * 3)


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ({"build": "raise"}, "build", "no such intrinsic"),
        ({"make": "raise"}, "build", "could not be loaded"),
        ({"build": "hang"}, "build_timeout", "too long"),
        ({"build": "child"}, "build_timeout", "too long"),
        ({"build": "abort"}, "crash", "SIGABRT"),
        ({"build": "exit"}, "crash", "status 3"),
        ({"refuse": BAD}, "invalid", "does not divide"),
    ],
)
def test_failed_build_leaves_its_neighbours_alone(
    pool: Pool, payload: dict[str, Any], kind: str, words: str
) -> None:
    first, bad, last = build(pool, candidate(GOOD), candidate(BAD, **payload), candidate(GOOD))
    assert isinstance(first, BuiltLibrary)
    assert isinstance(last, BuiltLibrary)
    assert isinstance(bad, Failure)
    assert bad.kind == kind
    assert words in bad.message


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ({"check": "segfault"}, "crash", "SIGSEGV"),
        ({"run": "abort"}, "crash", "SIGABRT"),
        ({"run": "hang"}, "timeout", "too long"),
        ({"run": "hog"}, "crash", "memory"),
        ({"run": "raise"}, "measure", "no such intrinsic"),
        ({"wrong": True}, "wrong_result", "row 3"),
        ({"time": float("nan")}, "measure", "nan"),
        ({"time": -1.0}, "measure", "-1.0"),
        ({"time": 0.0}, "measure", "no time"),
    ],
)
def test_failed_measurement_is_told_and_survived(
    pool: Pool, payload: dict[str, Any], kind: str, words: str
) -> None:
    result = measure(pool, candidate(BAD, **payload))
    assert isinstance(result, Failure)
    assert result.kind == kind
    assert words in result.message
    assert isinstance(measure(pool, candidate(GOOD)), Measured)


def test_unknown_program_is_a_failed_build(pool: Pool) -> None:
    [result] = build(pool, Candidate("no_such_module:x", {}, GOOD))
    assert isinstance(result, Failure)
    assert result.kind == "build"
    assert "no_such_module" in result.message


def test_printing_reaches_neither_the_terminal_nor_the_answers(
    pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    result = measure(pool, candidate(GOOD, make="print", build="print", check="print", run="print"))
    assert isinstance(result, Measured)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_built_after_the_deadline(pool: Pool) -> None:
    assert pool.build([candidate(GOOD)] * 3, time.monotonic() - 1) == [None] * 3


def test_fingerprint_tells_equal_libraries(pool: Pool) -> None:
    one, two, three = build(
        pool, *(candidate({"a": a, "b": b}, same=True) for a, b in [(1, 1), (1, 2), (2, 1)])
    )
    assert isinstance(one, BuiltLibrary)
    assert isinstance(two, BuiltLibrary)
    assert isinstance(three, BuiltLibrary)
    assert one.fingerprint == two.fingerprint != three.fingerprint


def test_worker_is_replaced_after_its_share_and_when_it_leaks() -> None:
    limits = Limits(start=30, build=5, measure=5, memory=150 * 2**20, jobs=3)
    with Pool(["tests.fake_programs:Synthetic"], PoolOptions(builders=1, limits=limits)) as pool:
        assert all(isinstance(result, BuiltLibrary) for result in build(pool, *[candidate(GOOD)] * 3))
        before = pool._builders[0].pid
        assert isinstance(build(pool, candidate(GOOD))[0], BuiltLibrary)
        assert pool._builders[0].pid != before

        [library] = build(pool, candidate(GOOD))
        assert isinstance(library, BuiltLibrary)
        pids = set()
        limits_hit = 0
        for _ in range(8):
            result = pool.measure(candidate(GOOD, check="leak"), library, Timing())
            limits_hit += isinstance(result, Failure)
            pids.add(pool._runners[0].pid)
        assert len(pids) > 1
        assert limits_hit <= 1


def test_worker_killed_while_idle_is_not_held_against_the_next_candidate() -> None:
    with Pool(["tests.fake_programs:Synthetic"], PoolOptions(builders=1, limits=LIMITS)) as pool:
        assert isinstance(build(pool, candidate(GOOD))[0], BuiltLibrary)
        os.kill(pool._builders[0].pid, signal.SIGKILL)
        os.waitid(os.P_PID, pool._builders[0].pid, os.WEXITED | os.WNOWAIT)
        assert isinstance(build(pool, candidate(GOOD))[0], BuiltLibrary)


def test_closing_leaves_no_process_and_no_file() -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = Pool(["tests.fake_programs:Synthetic"], PoolOptions(builders=2, limits=LIMITS))
    [library, _] = build(pool, candidate(GOOD), candidate(BAD, build="child"))
    assert isinstance(library, BuiltLibrary)
    pool.close()
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not Path(library.path).exists()


def script(folder: Path, text: str) -> list[str]:
    """A user's script with no `__main__` guard."""
    file = folder / "script.py"
    file.write_text(textwrap.dedent(text))
    return [sys.executable, str(file)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import time
        from hbtvm.tuning.measuring.messages import Candidate
        from hbtvm.tuning.measuring.pool import Pool, PoolOptions
        pool = Pool(["tests.fake_programs:Synthetic"], PoolOptions(builders=2))
        good = [Candidate("tests.fake_programs:Synthetic", {}, {"a": 1, "b": 1})] * 2
        assert len(pool.build(good, 1e18)) == 2  # the builders are at work, and not still starting
        print(*[worker.pid for worker in (*pool._builders, *pool._runners)], flush=True)
        pool.build([Candidate("tests.fake_programs:Synthetic", {"build": "hang"}, {"a": 1, "b": 1})], 1e18)
        """,
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert any(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
    end = time.monotonic() + 120
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but has not been waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_script_without_guard_and_with_misleading_files(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "tuning.py").write_text("raise SystemExit('the wrong tuning')")
    command = script(
        tmp_path,
        """
        from hbtvm.tuning.measuring.messages import Candidate
        from hbtvm.tuning.measuring.machine import BuiltLibrary
        from hbtvm.tuning.measuring.pool import Pool, PoolOptions
        print("once")
        with Pool([], PoolOptions(builders=1)) as pool:
            [built] = pool.build([Candidate("tests.fake_programs:Synthetic", {}, {"a": 1, "b": 1})], 1e18)
            print(isinstance(built, BuiltLibrary))
        """,
    )
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path / "cwd",
        timeout=250,
        check=True,
    )
    assert done.stdout == "once\nTrue\n"
    assert done.stderr == ""


def test_workers_import_only_what_the_program_needs(pool: Pool) -> None:
    heavy = ("sklearn", "xgboost", "tvm")
    code = f"import hbtvm.tuning.measuring.worker, sys; print(*(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.strip() == ""
