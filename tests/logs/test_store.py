"""The log file: appended to by many, torn by crashes, never poisoned."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hbtvm.logs import Log, LogError
from tests.logs.test_record import record

ROOT = Path(__file__).parents[2]
FORK = multiprocessing.get_context("fork")


def in_child(function, *args):
    """Run a function in a process of its own; fail where it failed."""
    child = FORK.Process(target=function, args=args)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def append_many(path, session, count):
    log = Log(path)
    for number in range(count):
        log.append(record(session=session, config={"number": number, "padding": "x" * (number % 5000)}))


def test_what_is_appended_is_read_in_order(tmp_path):
    log = Log(tmp_path / "log.jsonl", fsync=True)
    assert log.read().records == [] and not log.path.exists()
    written = [record(config={"tile": tile}) for tile in range(5)]
    for entry in written:
        log.append(entry)
    assert log.read().records == written and log.read().skipped == 0


def test_two_processes_append_to_one_log(tmp_path):
    path = tmp_path / "log.jsonl"
    children = [FORK.Process(target=append_many, args=(path, name, 200)) for name in ("a", "b", "c")]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    result = Log(path).read()
    assert result.skipped == 0
    for name in ("a", "b", "c"):
        numbers = [entry.config["number"] for entry in result.records if entry.session == name]
        assert numbers == list(range(200))


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_torn_line_costs_only_itself(tmp_path, cut):
    log = Log(tmp_path / "log.jsonl")
    append_many(log.path, "a", 3)
    os.truncate(log.path, log.path.stat().st_size - cut)
    # Only the newline is missing with the first cut: the record itself is whole.
    whole = 3 if cut == 1 else 2
    assert len(log.read().records) == whole and log.read().skipped == 3 - whole
    log.append(record(session="after"))
    result = log.read()
    assert [entry.session for entry in result.records] == ["a"] * whole + ["after"]
    assert result.skipped == 3 - whole


def test_foreign_lines_are_skipped_and_counted(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    log.append(record())
    newer = record().to_line().replace('"version":1', '"version":2').encode()
    with open(log.path, "ab") as file:
        file.write(b'\n  \n{"input": ["llvm"]}\n\xff\xfe\x00\nnot json\r\n' + newer + b"\n")
    log.append(record())
    result = log.read()
    assert len(result.records) == 2 and result.skipped == 4


def test_a_killed_writer_leaves_a_log_that_goes_on(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(5):
        before = len(Log(path).read().records)
        child = FORK.Process(target=append_many, args=(path, "killed", 10**6))
        child.start()
        while len(Log(path).read().records) < before + 5:
            assert child.is_alive()
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        Log(path).append(record(session="after"))
    result = Log(path).read()
    assert sum(entry.session == "after" for entry in result.records) == 5
    assert result.skipped <= 5


def test_a_full_disk_is_reported(tmp_path):
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    with pytest.raises(LogError, match=r"^cannot write tuning log .*full\.jsonl: No space left on device$"):
        Log(tmp_path / "full.jsonl").append(record())
    assert not Path("/dev/full.lock").exists()


def fill_up(path):
    log = Log(path)
    log.append(record())
    size = path.stat().st_size
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    with pytest.raises(LogError, match="cannot write"):
        log.append(record())
    assert path.stat().st_size == size


def test_nothing_stays_of_a_record_that_did_not_fit(tmp_path):
    path = tmp_path / "log.jsonl"
    in_child(fill_up, path)
    Log(path).append(record())
    assert len(Log(path).read().records) == 2 and Log(path).read().skipped == 0


def check_permissions(folder):
    if os.geteuid() == 0:
        os.setuid(65534)
    for name, verb in (("read-only.jsonl", "write"), ("secret.jsonl", "read"), ("new.jsonl", "write")):
        log = Log(folder / name)
        with pytest.raises(LogError, match=f"^cannot {verb} tuning log .*{name}: Permission denied$"):
            log.append(record()) if verb == "write" else log.read()
    assert len(Log(folder / "read-only.jsonl").read().records) == 1


def test_files_without_permission_are_reported():
    # Not in tmp_path, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, mode in (("read-only.jsonl", 0o444), ("secret.jsonl", 0)):
            Log(folder / file).append(record())
            (folder / file).chmod(mode)
            (folder / f"{file}.lock").chmod(0o666)
        folder.chmod(0o555)
        try:
            in_child(check_permissions, folder)
        finally:
            folder.chmod(0o755)


def test_paths_that_are_no_files_are_reported(tmp_path):
    log = Log(tmp_path)
    for use in (log.read, lambda: log.append(record())):
        with pytest.raises(LogError, match=f"tuning log {tmp_path}: Is a directory"):
            use()
    assert not Path(f"{tmp_path}.lock").exists()
    with pytest.raises(LogError, match="its folder does not exist"):
        Log(tmp_path / "no" / "log.jsonl").append(record())


def test_a_link_to_a_log_stays_a_link(tmp_path):
    real, link = Log(tmp_path / "real.jsonl"), Log(tmp_path / "link.jsonl")
    real.append(record())
    link.path.symlink_to(real.path)
    link.append(record())
    with link.locked():
        link.replace(link.read().records[:1])
    assert link.path.is_symlink() and len(real.read().records) == 1


def test_logs_import_nothing_of_the_project():
    code = "import sys, hbtvm.logs; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(output.stdout.split())
    assert not {"numpy", "tvm"} & loaded
    ours = {name for name in loaded if name.startswith("hbtvm.")} - {"hbtvm.version"}
    assert ours and all(name.startswith("hbtvm.logs") for name in ours)
