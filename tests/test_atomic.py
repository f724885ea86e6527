"""Files that appear whole, and locks, with real processes and real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hbtvm import atomic
from hbtvm.errors import InputError

_WRITER = """
import sys, time
from pathlib import Path
from hbtvm import atomic
with atomic.{call} as where:
    print("ready", flush=True)
    time.sleep(600)
"""


def running(call: str) -> subprocess.Popen[str]:
    """A process that is within `call`."""
    process = subprocess.Popen([sys.executable, "-c", _WRITER.format(call=call)], stdout=-1, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("name", ["scores.csv", "x" * 200 + ".parquet", "é\n [*]?.npy"])
def test_only_what_killed_writers_left_is_removed(name: str, tmp_path: Path) -> None:
    theirs = [".scores.csv.swp", f".{name[:30]}.0123456789abcdef.other", ".scores.csv.0123456789abcde.hbtvm"]
    for other in theirs:
        (tmp_path / other).write_text("theirs")
    (tmp_path / ".link.0123456789abcdef.hbtvm").symlink_to(tmp_path / ".scores.csv.swp")
    (tmp_path / ".scores.csv.0123456789abcdef.hbtvm").mkdir()
    os.mkfifo(tmp_path / ".pipe.0123456789abcdef.hbtvm")
    before = {*os.listdir(tmp_path)}
    process = running(f"replacing(Path({str(tmp_path / name)!r}))")
    left = {*os.listdir(tmp_path)} - before
    assert len(left) == 1
    atomic.clear(tmp_path)  # it is being written
    assert {*os.listdir(tmp_path)} == before | left
    killed(process)
    atomic.clear(tmp_path, "other.csv")
    assert {*os.listdir(tmp_path)} == before | left
    atomic.clear(tmp_path, name)
    assert {*os.listdir(tmp_path)} == before


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["scores.csv"]
    mask = os.umask(0o027)
    try:
        with atomic.replacing(path) as temporary:
            temporary.write_text("after")
            assert path.read_text() == "before"
    finally:
        os.umask(mask)
    assert path.read_text() == "after" and os.listdir(tmp_path) == ["scores.csv"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".hbtvm.lock"
    process = running(f"locked(Path({str(path)!r}), 'busy')")
    with pytest.raises(InputError, match="busy"), atomic.locked(path, "busy"):
        pass
    killed(process)
    assert path.exists()
    with atomic.locked(path, "busy"):
        with pytest.raises(InputError, match="busy"), atomic.locked(path, "busy"):
            pass
        assert path.exists()
    assert not path.exists()


def test_folders_are_made_once(tmp_path: Path) -> None:
    atomic.make_folder(tmp_path / "a" / "b" / "c")
    atomic.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
