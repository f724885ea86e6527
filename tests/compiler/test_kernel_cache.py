"""Equal kernels are built once, if a folder for built kernels is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import te

from hbtvm.compiler.building import cpu, cuda_source
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import BuildError
from hbtvm.runtime.native.objects.cache import KERNELS
from hbtvm.tuning.measuring.program import OBJECT

CPU = resolve("cpu")
OLDER = resolve({"kind": "llvm", "mcpu": "x86-64-v2"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KERNELS, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Modules that were compiled, not read."""
    modules: list[Any] = []
    original = cpu._compiled

    def noted(lowered: Any, target: Any) -> Any:
        modules.append(lowered)
        return original(lowered, target)

    monkeypatch.setattr(cpu, "_compiled", noted)
    return modules


def module(added: float = 1.0, size: int = 8) -> Any:
    given = te.placeholder((size,), name="given")
    return tvm.IRModule(
        {"main": te.create_prim_func([given, te.compute((size,), lambda i: given[i] + added)])}
    )


def built(path: Path, made: Any, target: Any = CPU) -> tuple[bytes, bytes]:
    cpu.build_module(made, target, str(path))
    return path.read_bytes(), Path(f"{path}{OBJECT}").read_bytes()


def test_equal_modules_are_built_once(folder: Path, compiled: list[Any], tmp_path: Path) -> None:
    first = built(tmp_path / "a.so", module())
    (tmp_path / "b.so").write_bytes(b"of before")
    assert built(tmp_path / "b.so", module()) == first and len(compiled) == 1
    assert first[0][:4] == first[1][:4] == b"\x7fELF" and len(list(folder.iterdir())) == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "kept",
        *(f"{n}.so{o}" for n in "ab" for o in ("", OBJECT)),
    }


def test_other_modules_targets_and_passes_are_built_anew(
    folder: Path, compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.so"
    libraries = [built(path, module()), built(path, module(2.0)), built(path, module(size=9))]
    libraries.append(built(path, module(), OLDER))
    with tvm.transform.PassContext(disabled_pass=["tirx.CommonSubexprElim"]):
        built(path, module())
    changed = tmp_path / "lowering.py"
    changed.write_text("# changed")
    monkeypatch.setattr(cpu, "_building_sources", lambda: (changed,))
    built(path, module())
    assert len(compiled) == len(list(folder.iterdir())) == 6 and len(set(libraries[:3])) == 3


@pytest.mark.parametrize("harm", ["cut off", "changed", "empty", "no library"])
def test_damaged_entries_are_built_anew(harm: str, folder: Path, compiled: list[Any], tmp_path: Path) -> None:
    first = built(tmp_path / "a.so", module())
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    harmed = {"cut off": data[:-1], "changed": data[:99] + bytes([data[99] ^ 1]) + data[100:], "empty": b""}
    entry.write_bytes(harmed.get(harm, data[32:]))
    assert built(tmp_path / "a.so", module()) == first and len(compiled) == 2
    assert built(tmp_path / "a.so", module()) == first and len(compiled) == 2


@pytest.mark.parametrize("named", [None, ""])
def test_without_a_folder_every_module_is_built(
    named: str | None, compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KERNELS) if named is None else monkeypatch.setenv(KERNELS, named)
    assert built(tmp_path / "a.so", module()) == built(tmp_path / "a.so", module()) and len(compiled) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_equal_cuda_source_is_compiled_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By options, source and compiler; what the compiler printed is kept as well."""
    compiler, calls = tmp_path / "nvcc", tmp_path / "calls"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        'for last; do :; done\nwhile [ "$1" != -o ]; do shift; done\n'
        "grep -q wrong $last && echo 'error: wrong' >&2 && exit 1\n"
        "cat $last > $2; echo registers >&2\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(cuda_source, "nvcc", lambda: str(compiler))
    target = resolve({"kind": "cuda", "arch": "sm_90"})
    for count, source, options in ((1, "a", ()), (1, "a", ()), (2, "a", ("-v",)), (3, "b", ()), (3, "a", ())):
        assert cuda_source.machine_code(source, target, *options) == (source.encode(), "registers\n")
        assert len(calls.read_text().splitlines()) == count
    for count in (4, 5):
        with pytest.raises(BuildError, match="error: wrong"):
            cuda_source.machine_code("wrong", target)
        assert len(calls.read_text().splitlines()) == count and len(list(folder.iterdir())) == 3
