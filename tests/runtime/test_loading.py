"""Shared objects are checked before they are mapped, and loaded from memory."""

from __future__ import annotations

import functools
import glob
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hbtvm.errors import PackageError
from hbtvm.runtime.cuda.memory import check_code
from hbtvm.runtime.native.objects import loading
from hbtvm.runtime.native.objects.build import OPTIONS, c_compiler, compiled
from hbtvm.runtime.native.objects.elf import problem
from hbtvm.runtime.native.objects.loading import closing, open_library
from hbtvm.runtime.package.archive import read_archive
from hbtvm.runtime.package.manifest import MANIFEST

DATA = Path(__file__).parents[1] / "data"
PACKAGES = sorted(DATA.glob("package_v*.tar"))


@functools.cache
def library() -> bytes:
    """A library that needs nothing but libm."""
    return compiled(c_compiler(), ["text/text.c"], (*OPTIONS, "-O0", "-shared"), ["-lm"])


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.stem)
def test_all_packages_ever_written_pass(path: Path) -> None:
    members = read_archive(path.read_bytes(), MANIFEST)
    for name, content in members.items():
        if name.endswith((".so", ".o")):
            assert problem(bytes(content), name.endswith(".so")) is None, name


def test_a_gpus_code_that_is_cut_short() -> None:
    """The driver takes an address without a size, and would read beyond the end."""
    members = read_archive((DATA / "package_v1_gpu.tar").read_bytes(), MANIFEST)
    codes = [bytes(content) for name, content in members.items() if name.endswith(".fatbin")]
    cubin = codes[0][codes[0].index(b"\x7fELF") :]
    for code in (*codes, cubin):
        check_code(code)
        for size in {4, 15, 16, 63, 64, len(code) // 2, len(code) * 3 // 4}:
            with pytest.raises(PackageError, match=r"a kernel's code can't be loaded: it .*\.$"):
                check_code(code[:size])


def test_the_systems_libraries_pass() -> None:
    """Those of other linkers, too; what exports versions of symbols is no library of kernels."""
    tried = 0
    for name in sorted(glob.glob("/usr/lib/*-linux-gnu/lib*.so"))[:60]:
        code = Path(name).read_bytes()
        if code[:4] == b"\x7fELF":
            said = problem(code)
            assert said is None or "unknown tag, 0x6ff" in said, (name, said)
            tried += 1
    if not tried:
        pytest.skip("this system keeps its libraries elsewhere")


def test_cut_anywhere() -> None:
    code = library()
    for size in {0, 1, 63, 64, *np.random.default_rng(0).integers(0, len(code), 200).tolist(), len(code) - 1}:
        said = problem(code[:size])
        assert said is not None and said.isprintable(), size
        with pytest.raises(PackageError, match=r"a library can't be loaded: it .*\.$"):
            open_library(code[:size], "a library")
    assert problem(code) is None and problem(code + bytes(100)) is None


def _segment(code: bytes, kind: int) -> int:
    """Where the first program header of a kind is."""
    start, n = struct.unpack_from("<32xQ16xH", code)
    return next(
        at for at in range(start, start + 56 * n, 56) if struct.unpack_from("<I", code, at)[0] == kind
    )


@pytest.mark.parametrize(
    ("kind", "at", "value", "said"),
    [
        (1, 8, 1 << 40, "beyond the file"), (1, 32, 1 << 40, "beyond the file"), (1, 40, 1, "less memory"),
        (1, 40, 1 << 40, "too much memory"), (1, 40, 1 << 20, "overlap"), (1, 48, 3, "not aligned"),
        (1, 0, 9, "segment"), (1, 4, 0, "can't be read"), (2, 16, 1 << 40, "outside"), (2, 16, 8, "outside"),
        (2, 32, 8, "wrong size"), (2, 0, 9, "dynamic sections"),
    ],
)  # fmt: skip
def test_segments_that_lie(kind: int, at: int, value: int, said: str) -> None:
    code = bytearray(library())
    place = _segment(code, kind) + at
    code[place : place + (4 if at < 8 else 8)] = value.to_bytes(4 if at < 8 else 8, "little")
    assert said in str(problem(bytes(code)))


@pytest.mark.parametrize("tag", [5, 6, 7, 8, 10, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE])
def test_tables_that_lie(tag: int) -> None:
    """The dynamic section gives another address or size, or none."""
    code = library()
    at, size = struct.unpack_from("<8xQ16xQ", code, _segment(code, 2))
    entry = next(e for e in range(at, at + size, 16) if struct.unpack_from("<Q", code, e)[0] == tag)
    old = struct.unpack_from("<Q", code, entry + 8)[0]
    for new in (0, 8, old + 24, old - 24, old * 2, 1 << 40, 2**64 - 1):
        changed = bytearray(code)
        struct.pack_into("<Q", changed, entry + 8, new)
        assert problem(bytes(changed)) is not None, new
    changed = bytearray(code)
    struct.pack_into("<Q", changed, entry, 21)
    assert problem(bytes(changed)) is not None


def test_no_folder_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a read-only container, say: nothing is written anywhere, so nothing stays behind."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    assert open_library(library(), "a library")["hbtvm_text_version"]() == 2


def test_each_is_another_library() -> None:
    """Though their descriptors have the same number."""
    handles = {open_library(library(), "a library")._handle for _ in range(5)}
    assert len(handles) == 5
    kept = closing(open_library(library(), "a library"))
    assert kept["hbtvm_text_version"]() == 2


def test_a_folder_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr("os.memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert open_library(library(), "a library")["hbtvm_text_version"]() == 2
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(PackageError, match=r"a library can't be loaded: .*TMPDIR.*: No such file"):
        open_library(library(), "a library")


def test_where_nothing_may_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(loading.ctypes, "CDLL", refuse)
    with pytest.raises(PackageError, match=r"loaded: it: failed to map segment from shared object\.$"):
        open_library(library(), "a library")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-Wl,--hash-style=sysv",),
        ("-Wl,--hash-style=both", "-Wl,-z,now"),
        ("-Wl,--version-script={versions}", "-Wl,--build-id"),
        *((f"-fuse-ld={linker}",) for linker in ("gold", "lld", "mold") if shutil.which(f"ld.{linker}")),
    ],
    ids=" ".join,
)
def test_what_linkers_write_is_taken(options: tuple[str, ...], tmp_path: Path) -> None:
    """Memory of threads, relocations, other libraries' symbols, and either table of hashes."""
    source, versions = tmp_path / "a.c", tmp_path / "versions"
    source.write_text(
        "#include <math.h>\n"
        "__thread int calls; static int number = 3, *at = &number;\n"
        "double called(double x) { ++calls; return exp(x) + *at; }\n"
    )
    versions.write_text("FIRST { global: called; local: *; };\n")
    built = tmp_path / "a.so"
    flags = [option.format(versions=versions) for option in options]
    subprocess.run(["c++", "-x", "c", "-shared", "-fPIC", *flags, source, "-o", built, "-lm"], check=True)
    assert problem(built.read_bytes()) is None
    cut = built.read_bytes()[: built.stat().st_size // 2]
    assert problem(cut) is not None
