"""The `.tar`: deterministic, whole or not there, and suspicious of what it reads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import PackageError
from hbtvm.runtime.model import Model
from hbtvm.runtime.package import file as package_module
from hbtvm.runtime.package.archive import read_archive
from hbtvm.runtime.package.file import Package, forest_facts, from_bytes, read, to_bytes, write
from hbtvm.runtime.package.manifest import VERSION
from hbtvm.runtime.package.signature import Signature, scores_argument
from tests.packages import (
    assert_equal,
    files,
    first,
    manifest_of,
    refused,
    tar_of,
    with_manifest,
    with_member,
)
from tests.runtime_models import compiled, trained

NAME = "sk_forest_three_nan"


@pytest.fixture(scope="module")
def made() -> Package:
    return compiled(NAME)


@pytest.fixture(scope="module")
def data(made: Package) -> bytes:
    return to_bytes(made)


def test_what_is_written_is_read(made: Package, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    write(made, path)
    assert path.read_bytes() == data
    assert_equal(read(path), made)
    assert to_bytes(read(path)) == data
    assert os.listdir(tmp_path) == ["model.tar"]


def test_the_same_package_gives_the_same_bytes(made: Package, data: bytes) -> None:
    kernels = tuple(replace(k, config=dict(reversed(list(k.config.items())))) for k in made.kernels)
    assert to_bytes(replace(made, kernels=kernels)) == data


def test_any_tar_program_can_read_it(data: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        infos = tar.getmembers()
    names = [info.name for info in infos]
    assert names[:2] == ["manifest.json", "manifest.sha256"]
    assert names[2:] == sorted(names[2:])
    assert all(
        info.isfile() and (info.mtime, info.uid, info.gid, info.uname) == (0, 0, 0, "") for info in infos
    )
    # And repacked by one, in whatever order, it is still a package.
    repacked = dict(reversed(list(files(data).items())))
    assert_equal(from_bytes(tar_of(repacked, form=tarfile.GNU_FORMAT)), from_bytes(data))


def test_what_kernels_share_is_stored_once(made: Package) -> None:
    twice = replace(made, kernels=(*made.kernels, replace(made.kernels[0], rows=2)))
    assert len(files(to_bytes(twice))) == len(files(to_bytes(made)))


def test_tables_are_aligned_and_read_only(data: bytes) -> None:
    for kernel in from_bytes(data).kernels:
        for table in kernel.tables:
            assert table.ctypes.data % 64 == 0 and not table.flags.writeable


def test_objects_beside_libraries(made: Package, data: bytes) -> None:
    """What kernels were linked from, without what is for debuggers."""
    assert all(kernel.object.startswith(b"\x7fELF") for kernel in made.kernels)
    assert not any(b".debug_" in kernel.object + kernel.library for kernel in made.kernels)
    again = from_bytes(data).kernels
    assert [kernel.object for kernel in again] == [kernel.object for kernel in made.kernels]
    bare = replace(made, kernels=tuple(replace(kernel, object=b"") for kernel in made.kernels))
    assert not any(name.startswith("objects/") for name in files(to_bytes(bare)))
    assert from_bytes(to_bytes(bare)).kernels[0].object == b""


def test_manifest_tells_everything_but_numbers(made: Package, data: bytes) -> None:
    manifest = json.loads(files(data)["manifest.json"])
    assert manifest["format"] == "hbtvm-package" and manifest["version"] == 1
    assert (manifest["library"], manifest["model"]) == ("scikit-learn", "RandomForestClassifier")
    assert manifest["forest"] == forest_facts(trained(NAME)[1].anchor)
    assert manifest["tvm_version"]
    kernel = manifest["kernels"][0]
    assert {"strategy", "config", "rows", "threads", "seconds", "value_dtype"} <= kernel.keys()
    assert {"library", "object", "signature", "tables", "binding"} <= kernel.keys()
    roles = [one["role"] for one in kernel["signature"]["arguments"]]
    assert roles == ["rows", *["table"] * len(kernel["tables"]), "scores"]


def test_what_json_lacks_is_refused(made: Package) -> None:
    to_bytes(replace(made, tuning={"trials": np.int64(3), "best": np.float32(0.5)}))
    with pytest.raises(PackageError, match=r"can't pack .*JSON has no object"):
        to_bytes(replace(made, tuning={"log": object()}))
    tables = (np.array([None]), *made.kernels[0].tables[1:])
    with pytest.raises(PackageError, match="only numbers are stored"):
        to_bytes(replace(made, kernels=(replace(made.kernels[0], tables=tables),)))


def test_only_a_gpus_kernel_leaves_sums_in_parts(made: Package) -> None:
    own = made.kernels[0].signature
    scores = scores_argument((2 * own.groups, *own.scores.shape[2:]))
    signature = Signature((*own.arguments[:-1], scores), own.groups, parts=2)
    kernels = (replace(made.kernels[0], signature=signature), *made.kernels[1:])
    text = refused(to_bytes(replace(made, kernels=kernels)))
    assert "is damaged" in text and "a CPU's kernel leaves sums in 2 parts" in text


def test_cut_anywhere(data: bytes) -> None:
    manifest = len(files(data)["manifest.json"])
    places = [0, 1, 511, 512, 513, 512 + manifest // 2, 512 + manifest, 1024 + manifest // 512 * 512]
    places += [len(data) * i // 17 for i in range(1, 17)]
    places += [len(data) - 1024, len(data) - 1023, len(data) - 513, len(data) - 512, len(data) - 1]
    for place in places:
        text = refused(data[:place])
        assert "is cut short" in text or "is not a tar archive" in text, (place, text)


def test_any_changed_byte_is_noticed(data: bytes) -> None:
    rng = np.random.default_rng(0)
    members = files(data)
    padding = np.ones(len(data), bool)
    at = 0
    for content in members.values():
        padding[at : at + 512 + len(content)] = False
        at += 512 + len(content) + -len(content) % 512
    for place in rng.choice(np.flatnonzero(~padding), 200):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        refused(bytes(changed))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a tar archive"),
        (b"PK\x03\x04" + bytes(4096), "is not a tar archive"),
        (b"\x7fELF" * 1000, "is not a tar archive"),
        (bytes(10240), "but not an hbtvm package: it lacks manifest.json"),
        (tar_of({"readme.txt": b"hello"}), "but not an hbtvm package: it lacks manifest.json"),
        (tar_of({"x" * 300: b"hello"}, form=tarfile.PAX_FORMAT), "it lacks manifest.json"),
        (tar_of({"manifest.json": b"{"}), "its manifest.json is not JSON"),
        (tar_of({"manifest.json": b"[" * 100000}), "its manifest.json is not JSON"),
        (tar_of({"manifest.json": b"[]"}), "its manifest.json names another format"),
        (tar_of({"manifest.json": b'{"format": "docker"}'}), "its manifest.json names another format"),
        (tar_of({"manifest.json": b'{"format": "hbtvm-package"}'}), "its format version is None"),
        (
            tar_of({"manifest.json": b'{"format": "hbtvm-package", "version": 1}'}),
            "manifest.json does not match the hash",
        ),
        (tar_of(manifest_of({"format": "hbtvm-package", "version": 1})), "'members' is missing"),
    ],
)
def test_other_files(content: bytes, message: str) -> None:
    assert message in refused(content)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"there is no file .*absent\.tar"):
        read(tmp_path / "absent.tar")
    with pytest.raises(PackageError, match=r"can't read .*: Is a directory"):
        read(tmp_path)


def test_a_newer_format_says_what_to_do(data: bytes) -> None:
    newer = with_manifest(
        data, lambda m: m.update(version=VERSION + 1, hbtvm_version="3.1.0", kernels="something else")
    )
    text = refused(newer)
    assert f"has format version {VERSION + 1}" in text and "pip install 'hbtvm>=3.1.0'" in text


def info(name: str, kind: bytes, **fields: Any) -> tarfile.TarInfo:
    result = tarfile.TarInfo(name)
    result.type = kind
    for field, value in fields.items():
        setattr(result, field, value)
    return result


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (info("evil", tarfile.SYMTYPE, linkname="/etc/passwd"), "holds a symbolic link, 'evil'"),
        (info("evil", tarfile.LNKTYPE, linkname="manifest.json"), "holds a hard link, 'evil'"),
        (info("evil", tarfile.CHRTYPE), "holds a device, 'evil'"),
        (info("evil", tarfile.FIFOTYPE), "holds a pipe, 'evil'"),
        (info("kernels", tarfile.DIRTYPE), "holds a folder, 'kernels/'"),
        (info("evil", b"g"), "holds a special entry, 'evil'"),
        (info("/etc/passwd", tarfile.REGTYPE), "holds a file named '/etc/passwd'"),
        (info("../evil", tarfile.REGTYPE), "holds a file named '../evil'"),
        (info("kernels/../../evil", tarfile.REGTYPE), "holds a file named 'kernels/../../evil'"),
        (info("a\nb", tarfile.REGTYPE), "holds a file named"),
        (info("manifest.json", tarfile.REGTYPE), "holds 'manifest.json' twice"),
        (info("stray", tarfile.REGTYPE), "'stray' is not listed in manifest.json"),
    ],
)
def test_members_that_no_package_has(data: bytes, extra: tarfile.TarInfo, message: str) -> None:
    assert message in refused(tar_of(files(data), extra))


def test_members_that_are_not_as_listed(data: bytes) -> None:
    members = files(data)
    library = first(data, ".so")
    lacking = {name: content for name, content in members.items() if name != library}
    assert f"'{library}' is missing" in refused(tar_of(lacking))
    longer = {**members, library: members[library] + b"x"}
    assert f"expected {len(members[library])}" in refused(tar_of(longer))
    other = {**members, library: members[library][:-1] + b"x"}
    assert "does not match its hash" in refused(tar_of(other))


def test_code_that_is_cut_short_or_empty(data: bytes) -> None:
    """Hashes are right; what the loader would follow is not."""
    for name, content in files(data).items():
        if name.startswith("kernels/"):
            assert f"'{name}' is empty" in refused(with_member(data, name, b""))
            short = from_bytes(with_member(data, name, content[: len(content) // 2]))
            with pytest.raises(PackageError, match=r"can't be loaded: it is cut short"):
                Model(short).warm_up()


def test_claims_beyond_the_file(data: bytes) -> None:
    for size in (b"%011o\0" % (8**11 - 1), b"%011o\0" % len(data), b"77777777777 "):
        block = data[:124] + size + data[136:512]
        block = block[:148] + b" " * 8 + block[156:]
        block = block[:148] + b"%06o\0 " % sum(block) + block[156:]
        assert "is cut short: 'manifest.json' should have" in refused(block + data[512:])
    # Sizes in base 256, as GNU tar writes those beyond 8 GiB.
    block = data[:124] + b"\x80" + bytes(10) + b"\x01" + data[136:148] + b" " * 8 + data[156:512]
    block = block[:148] + b"%06o\0 " % sum(block) + block[156:]
    assert "the size of 'manifest.json' is not a number" in refused(block + data[512:])


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def test_tables_that_are_no_tables(data: bytes) -> None:
    name = first(data, ".npy")
    good = files(data)[name]
    assert "holds object, expected plain numbers" in refused(with_member(data, name, npy(np.array([{}]))))
    assert "expected plain numbers" in refused(with_member(data, name, npy(np.array(["text"]))))
    assert "expected plain numbers" in refused(with_member(data, name, npy(np.ones(3, ">f4"))))
    assert "expected plain numbers" in refused(with_member(data, name, npy(np.ones(3, "M8[s]"))))
    assert "is not a table" in refused(with_member(data, name, npy(np.ones(3), version=(2, 0))))
    for bad in (b"", b"\x93NUMPY", good[:60], b"cos\nsystem\n", b"\x93NUMPY\x01\x00\x04\x00{}()"):
        assert "is not a table" in refused(with_member(data, name, bad))
    for shape in ("(99999999999999999, 999)", "(-1,)", "(0,)", "()"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
        claim = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
        text = refused(with_member(data, name, claim))
        assert "is not as large as its shape" in text or "is not a table" in text


def set_in(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: Any) -> None:
        for step in path[:-1]:
            manifest = manifest[step]
        manifest[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kernels",), []), (("kernels",), 5), (("kernels",), [5]),
        (("kernels", 0, "library"), "kernels/none.so"),
        (("kernels", 0, "library"), "manifest.json"), (("kernels", 0, "object"), "objects/none.o"),
        (("kernels", 0, "tables"), ["tables/none.npy"]),
        (("kernels", 0, "value_dtype"), "int8"), (("kernels", 0, "parallel"), "gpu"),
        (("kernels", 0, "rows"), 0), (("tvm_version",), None), (("target",), {}),
        (("kernels", 0, "signature", "arguments", 0, "shape", 1), "64"),
        (("kernels", 0, "signature", "groups"), 7), (("kernels", 0, "seconds"), -1),
        (("kernels", 0, "seconds"), "soon"), (("forest", "n_features"), 5),
        (("forest", "base_score"), [0.0]), (("forest", "divisor"), 0), (("forest", "compare_dtype"), "int8"),
        (("forest",), None), (("kernels", 0, "surprise"), 1), (("target", "features"), [1]), (("model",), 3),
        (("library",), None), (("output", "classes"), [["<i8", [0]]] * 2), (("output", "label_dtype"), "U5"),
        (("output", "label_dtype"), "scores"), (("input", "n_features"), -1), (("output", "kind"), "oracle"),
        (("output", "transform"), "magic"), (("members",), []), (("members",), None), (("kind",), "x"),
    ],
)  # fmt: skip
def test_manifests_that_cannot_be(data: bytes, path: tuple[Any, ...], value: Any) -> None:
    assert "is damaged" in refused(with_manifest(data, set_in(*path, to=value)))


@pytest.mark.parametrize("depth", [40, 300, 900])
def test_nesting_that_is_too_deep(data: bytes, depth: int) -> None:
    deep: Any = 0
    for _ in range(depth):
        deep = [deep]
    for path in (("tuning", "deep"), ("kernels", 0, "config", "deep"), ("rewrites",), ("surprise",)):
        assert "is damaged" in refused(with_manifest(data, set_in(*path, to=deep)))


@pytest.mark.parametrize("name", ["model", "input", "output", "forest", "target", "kernels", "tuning"])
def test_a_field_that_is_missing(data: bytes, name: str) -> None:
    assert f"the field '{name}' is missing" in refused(with_manifest(data, lambda m: m.pop(name)))


def test_a_library_is_never_taken_from_elsewhere(data: bytes) -> None:
    table = first(data, ".npy")
    told = "a member in kernels/"
    assert told in refused(with_manifest(data, set_in("kernels", 0, "library", to=table)))
    library, linked = first(data, ".so"), first(data, ".o")
    assert told in refused(with_manifest(data, set_in("kernels", 0, "library", to=linked)))
    assert "a member in objects/" in refused(with_manifest(data, set_in("kernels", 0, "object", to=library)))


def test_write_replaces_whole_files_only(
    made: Package, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.tar"
    path.write_bytes(b"old")

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(PackageError, match=r"can't write .*model\.tar: No space left on device\."):
            write(made, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.tar"]
    write(made, path)
    assert path.read_bytes() == data
    for bad in (tmp_path / "no" / "model.tar", tmp_path):
        with pytest.raises(PackageError, match="can't write"):
            write(made, bad)
    assert os.listdir(tmp_path) == ["model.tar"]


def test_permissions_are_the_users(made: Package, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(made, tmp_path / "model.tar")
    finally:
        os.umask(before)
    assert (tmp_path / "model.tar").stat().st_mode & 0o777 == 0o640


def test_full_disk(data: bytes, tmp_path: Path) -> None:
    source, path = tmp_path / "source.tar", tmp_path / "model.tar"
    source.write_bytes(data)
    script = """
import resource, sys
from hbtvm.errors import PackageError
from hbtvm.runtime.package.file import read, write
package = read(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    write(package, sys.argv[2])
except PackageError as error:
    print(error)
"""
    root = str(Path(package_module.__file__).parents[2])
    command = [sys.executable, "-c", script, str(source), str(path)]
    done = subprocess.run(command, check=True, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == f"can't write {path}: File too large."
    assert os.listdir(tmp_path) == ["source.tar"]


def test_names_that_do_not_fit() -> None:
    from hbtvm.runtime.package.archive import write_archive

    for name in ("x" * 101, "../x", "ä", ""):
        with pytest.raises(PackageError, match="can't pack"):
            write_archive({name: b""}, io.BytesIO())
    assert read_archive(tar_of({"a": b"1", "b": b""}), "a") == {"a": b"1", "b": b""}
