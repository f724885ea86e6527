"""SIGTERM and SIGHUP during ``hbtvm tune``, with processes, pipes and terminals."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.cli.signals import StopSignals, lasting
from tests import fake_cli, models

NOTE = "hbtvm: stopped by {}; m.tar holds the best so far\n"


@pytest.fixture(autouse=True)
def as_in_a_shell() -> Iterator[None]:
    """Give signals their default actions: what runs the tests may ignore SIGHUP, which processes inherit."""
    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def start(folder: Path, *arguments: object, how: str | None = None, **more: Any) -> subprocess.Popen[str]:
    """Begin ``hbtvm tune`` with signals as a shell would leave them."""
    (folder / "m.txt").touch()
    ignored: Sequence[signal.Signals] = more.pop("ignored", ())

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return subprocess.Popen(
        fake_cli.command("tune", *(arguments or ("m.txt",)), how=how),
        cwd=folder,
        env=fake_cli.environment(),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": prepare, **more},
    )


def read_until(process: subprocess.Popen[str], there: Callable[[str], bool]) -> str:
    """Lines of standard error up to the first that is as wanted."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if there(line):
            return "".join(lines)
    raise AssertionError(f"it ended early: {''.join(lines)}")


def waiting(line: str) -> bool:
    return line == "waiting\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_best_so_far_is_packaged(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path, how="waits") as process:
        read_until(process, waiting)
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0
    assert err.endswith(NOTE.format(number.name))
    assert f"stopped by {number.name}; this is the best so far" in out
    assert (tmp_path / "m.tar").stat().st_size == 100_000


@pytest.mark.parametrize(
    ("second", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 143)], ids=["SIGTERM", "SIGINT"]
)
def test_a_second_signal_gives_up_packaging(tmp_path: Path, second: signal.Signals, status: int) -> None:
    with start(tmp_path, how="waits twice") as process:
        read_until(process, waiting)
        process.send_signal(signal.SIGTERM)
        read_until(process, lambda line: line == "saving\n")
        process.send_signal(second)
        _, err = process.communicate(timeout=100)
    assert process.returncode == status
    assert "hbtvm: stopped by SIGTERM, and nothing was packaged" in err
    assert not (tmp_path / "m.tar").exists()


def test_a_hangup_after_another_signal_is_no_second_one(tmp_path: Path) -> None:
    with start(tmp_path, how="waits twice") as process:
        read_until(process, waiting)
        process.send_signal(signal.SIGHUP)
        read_until(process, lambda line: line == "saving\n")
        process.send_signal(signal.SIGHUP)  # a closed terminal: from the kernel, and from the shell
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 129  # it was SIGTERM that ended it: by SIGHUP, its number would be negative
    assert "stopped by SIGHUP, and nothing was packaged" in err


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    with start(tmp_path, how="waits", ignored=[signal.SIGHUP]) as process:
        read_until(process, waiting)
        process.send_signal(signal.SIGHUP)  # of two signals, Python would handle this one first
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 0
    assert err.endswith(NOTE.format("SIGTERM"))


def test_a_closed_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = start(tmp_path, how="waits", start_new_session=True, preexec_fn=take_terminal, **streams)
    os.close(theirs)
    shown = b""
    while b"waiting" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)  # the kernel sends SIGHUP, and all writing fails from now on
    assert process.wait(timeout=100) == 0
    assert (tmp_path / "m.tar").stat().st_size == 100_000


def test_output_that_nobody_reads(tmp_path: Path) -> None:
    with start(tmp_path, how="waits") as process:
        read_until(process, waiting)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=100) == 0
    assert (tmp_path / "m.tar").stat().st_size == 100_000


@pytest.mark.parametrize("stop", [signal.SIGTERM, None], ids=["stopped", "to the end"])
def test_a_real_search(tmp_path: Path, stop: signal.Signals | None) -> None:
    """Stopped, or with the progress lost half-way: the package predicts, and no process is left."""
    model = models.ZOO["xgb_real_base"]()
    model.save_model(tmp_path / "x.json")
    given = ("x.json", "--batch-size", 50, "--threads", 1, "--trials", 1000 if stop else 6)
    with start(tmp_path, *given) as process:
        read_until(process, lambda line: "50 rows " in line)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        assert process.stdout is not None and process.stderr is not None
        if stop is not None:
            process.send_signal(stop)
            out, err = process.communicate(timeout=200)
            assert "stopped by SIGTERM; this is the best so far" in out
            assert err.endswith("hbtvm: stopped by SIGTERM; x.tar holds the best so far\n")
        else:
            process.stderr.close()
            assert "all trials are done" in process.stdout.read()
        assert process.wait(timeout=200) == 0
    assert not [child for child in children if child.is_running()]
    X = models.data()[0]
    tuned = hbtvm.load(tmp_path / "x.tar")
    np.testing.assert_allclose(tuned.predict(X), model.predict(X), rtol=1e-5)
    log = (tmp_path / "hbtvm-tuning.jsonl").read_text()
    assert log.endswith("\n") and '"kind":"crash"' not in log


def test_only_the_command_line_sets_handlers_and_puts_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "hbtvm.api", fake_cli.api())
    monkeypatch.setattr(hbtvm, "api", fake_cli.api(), raising=False)
    (tmp_path / "m.txt").touch()
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    assert main(["tune", "m.txt"]) == 0
    assert [signal.getsignal(number) for number in numbers] == before
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(main(["tune", "m.txt"])))
    thread.start()
    thread.join()
    assert done == [0]
    assert [signal.getsignal(number) for number in numbers] == before


def test_handlers_are_put_back_after_a_signal() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with StopSignals() as signals, contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signals.received == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_a_callback_from_c_lost_is_raised_later(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: lost.append(unraisable.exc_type))
    seen: list[int] = []
    try:
        with StopSignals() as signals:
            checked = signals.checked(seen.append)
            checked(1)
            ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))()
            assert lost == [KeyboardInterrupt]
            with pytest.raises(KeyboardInterrupt):
                checked(2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1, 2]


def test_a_lasting_stream_forgets_what_cannot_be_written() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as file:
        stream = lasting(file)
        for _ in range(3):
            stream.write("x" * 100_000)
            stream.flush()
        assert os.path.samestat(os.fstat(writer), os.stat(os.devnull))
