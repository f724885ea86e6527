"""What was compiled from C is kept for the next process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hbtvm.errors import BuildError
from hbtvm.runtime.native import build, cache
from hbtvm.runtime.native.build import c_compiler, compiled_once

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
    return compiled_once(c_compiler(), ["errors.c"], (*OPTIONS, *more))


def test_the_same_is_compiled_once(folder: Path, calls: list[str]) -> None:
    first = errors()
    assert first[:4] == b"\x7fELF" and errors() == first and calls == ["errors.c"]
    errors("-g")
    assert calls == ["errors.c"] * 2 and len(list(folder.iterdir())) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_other_sources_and_compilers_are_compiled_anew(
    folder: Path, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors()
    changed = tmp_path / "native"
    changed.mkdir()
    for source in (build.SOURCES / "errors.c", *build.SOURCES.glob("*.h")):
        (changed / source.name).write_bytes(source.read_bytes())
    with (changed / "internal.h").open("a") as file:
        file.write("/* changed */\n")
    monkeypatch.setattr(build, "SOURCES", changed)
    errors()
    program = tmp_path / "gcc"
    program.write_text(f'#!/bin/sh\nexec {c_compiler()} "$@"\n')
    program.chmod(0o755)
    compiled_once(str(program), ["errors.c"], OPTIONS)
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
        with pytest.raises(BuildError, match="could not compile hbtvm's errors"):
            errors("-fno-such-option")
    assert list(folder.iterdir()) == []
