"""What was compiled from C is kept for the next process."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from hbtvm.errors import BuildError
from hbtvm.runtime.native.objects import build, cache
from hbtvm.runtime.native.objects.build import c_compiler, compiled_once

OPTIONS = ("-std=gnu11", "-O0", "-fPIC", "-r", "-nostdlib")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "kept"
    monkeypatch.setenv(cache.VARIABLE, str(made))
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were really compiled."""
    found: list[str] = []
    compiled = build.compiled

    def noted(compiler: str, names: list[str], *given: object) -> bytes:
        found.extend(names)
        return compiled(compiler, names, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "compiled", noted)
    return found


def errors(*more: str) -> bytes:
    return compiled_once(c_compiler(), ["kernels/errors.c"], (*OPTIONS, *more))


def test_the_same_is_compiled_once(folder: Path, calls: list[str]) -> None:
    first = errors()
    assert first[:4] == b"\x7fELF" and errors() == first and calls == ["kernels/errors.c"]
    errors("-g")
    assert calls == ["kernels/errors.c"] * 2 and len(list(folder.iterdir())) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_other_sources_and_compilers_are_compiled_anew(
    folder: Path, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors()
    changed = tmp_path / "native"
    shutil.copytree(build.SOURCES, changed)
    with (changed / "executor/internal.h").open("a") as file:
        file.write("/* changed */\n")
    monkeypatch.setattr(build, "SOURCES", changed)
    errors()
    program = tmp_path / "gcc"
    program.write_text(f'#!/bin/sh\nexec {c_compiler()} "$@"\n')
    program.chmod(0o755)
    compiled_once(str(program), ["kernels/errors.c"], OPTIONS)
    assert len(calls) == 3


@pytest.mark.parametrize("harm", ["cut off", "changed", "writable by others", "a folder that is"])
def test_what_can_not_be_trusted_is_compiled_anew(folder: Path, calls: list[str], harm: str) -> None:
    want = errors()
    (file,) = folder.iterdir()
    data = file.read_bytes()
    if harm == "cut off":
        file.write_bytes(data[:-1])
    elif harm == "changed":
        file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif harm == "writable by others":
        file.chmod(0o666)
    else:
        folder.chmod(0o777)
    assert errors() == want and len(calls) == 2
    if harm != "a folder that is":
        assert file.read_bytes() == data and errors() == want and len(calls) == 2


@pytest.mark.parametrize("where", ["", "/proc/no/such/folder", "a file"])
def test_without_a_folder_nothing_is_kept(
    calls: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "a file":
        (tmp_path / "file").write_text("")
        where = str(tmp_path / "file")
    monkeypatch.setenv(cache.VARIABLE, where)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert errors() == errors() and len(calls) == 2
    assert not (tmp_path / "home").exists()


def test_by_default_it_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder in ((None, ".cache/hbtvm"), ("other", "other/hbtvm")):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if variable:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / variable))
        errors()
        assert len(list((tmp_path / folder).iterdir())) == 1


def test_those_not_used_for_longest_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 2)
    known: dict[str, Path] = {}
    for number, name in enumerate(("a", "b", "c")):
        before = set(folder.iterdir()) if folder.exists() else set()
        errors(f"-DNAME_{name}")
        (known[name],) = set(folder.iterdir()) - before
        os.utime(known[name], (number, number))
        if name == "b":
            errors("-DNAME_a")  # used once more, now
    assert set(folder.iterdir()) == {known["a"], known["c"]}


def test_a_compiler_that_fails_leaves_nothing(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(BuildError, match="could not compile hbtvm's kernels/errors"):
            errors("-fno-such-option")
    assert list(folder.iterdir()) == []


def entry(number: int) -> bytes:
    content = b"entry %d" % number
    return hashlib.sha256(content).digest() + content


def test_other_files_are_the_users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are called: only what is called and begins as entries do is removed."""
    monkeypatch.setattr(cache, "MOST", 1)
    folder.mkdir(mode=0o700)
    theirs = [
        *(f"data{i:02}.csv" for i in range(40)),
        "a",
        "f" * 63,
        "e" * 65,
        "D" * 64,
        "c" * 64,
        ".made-abcdefgh",
    ]
    for name in theirs:
        (folder / name).write_bytes(b"theirs")
    (folder / ("b" * 64)).mkdir()
    (folder / ("9" * 64)).symlink_to("c" * 64)
    os.mkfifo(folder / ("8" * 64))
    for number in range(3):
        (folder / f"{number:064x}").write_bytes(entry(number))
    before = set(folder.iterdir())
    for path in before:
        os.utime(path, (0, 0), follow_symlinks=False)
    errors()
    left = set(folder.iterdir())
    assert before - left == {folder / f"{number:064x}" for number in range(3)} and len(left - before) == 1
    assert all((folder / name).read_bytes() == b"theirs" for name in theirs)


def test_what_a_killed_process_left_goes(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    left, written = (folder / f".hbtvm-{digit * 64}-abcdefgh" for digit in "01")
    left.write_bytes(b"half")
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # by a process that is still there
        errors()
        assert not left.exists() and written.exists()
    errors("-g")
    assert not written.exists() and len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("mask", [0, 0o022])
def test_nobody_else_can_write_what_is_made(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "deep" / "er" / "kept"))
    before = os.umask(mask)
    try:
        errors()
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert len(made) == 4 and all(path.stat().st_mode & 0o077 == 0 for path in made)


@pytest.mark.parametrize(("mode", "kept"), [(0o777, False), (0o1777, True), (0o770, False), (0o755, True)])
def test_a_folder_above_that_others_can_write(
    mode: int, kept: bool, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    monkeypatch.setenv(cache.VARIABLE, str(above / "kept"))
    errors()
    errors()
    assert len(calls) == (1 if kept else 2)


@pytest.mark.parametrize("given", [None, "~/kept", "~nobody-of-that-name/kept"])
def test_a_user_without_home(
    given: str | None, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (cache.VARIABLE, "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv(cache.VARIABLE, given)
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)
    assert errors() == errors() and len(calls) == 2 and not list(tmp_path.iterdir())


def test_an_entry_that_is_no_object_is_compiled_anew(folder: Path, calls: list[str]) -> None:
    """Though its digest is right."""
    want = errors()
    (file,) = folder.iterdir()
    for content in (b"", want[:-100], b"text", want[:16] + b"\x07" + want[17:]):
        file.write_bytes(hashlib.sha256(content).digest() + content)
        assert errors() == want
    assert len(calls) == 5 and errors() == want and len(calls) == 5
