"""Archives of candidates: what is written is read, and nothing else is."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.errors import PackageError, PackageNotFoundError
from hbtvm.measuring import archive
from hbtvm.measuring.archive import Members
from hbtvm.runtime.package.archive import read_archive, write_archive
from hbtvm.runtime.package.kernel import KernelEntry
from hbtvm.runtime.package.tables import table_from_bytes
from tests.measuring.exported import SIZES, archive_in, changed

pytestmark = pytest.mark.usefixtures("shared_workers")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path, folder = archive_in(tmp_path), tmp_path / "unpacked"
    trials = archive.read(path)
    assert {task.group for task in trials.tasks} == {"1 row", "200 rows"}
    assert {task.workload["rows"] for task in trials.tasks} == set(SIZES)
    assert not trials.on_gpu and trials.target["kind"] == "llvm"
    folder.mkdir()
    trials.unpack(folder)
    for one in trials.candidates:
        told = json.loads((folder / f"{one.number}.json").read_text())
        library = {one.kernel["library"]: (folder / one.kernel["library"]).read_bytes()}
        tables = {
            name: table_from_bytes(name, memoryview((folder / name).read_bytes()))
            for name in one.kernel["tables"]
        }
        entry = codec.read(KernelEntry, told["kernel"], {**library, **tables})
        assert entry.config == one.config and entry.rows == told["rows"]


def test_each_content_is_there_once(tmp_path: Path) -> None:
    members = Members()
    table = np.arange(5, dtype=np.int32)
    assert members.add(table, "tables") == members.add(table.copy(), "tables")
    assert members.add(b"code", "kernels") == members.add(b"code", "kernels")
    assert len(members.deflated) == 2


def test_the_same_archive_has_the_same_bytes(tmp_path: Path) -> None:
    path = archive_in(tmp_path)
    before = path.read_bytes()
    changed(path, lambda fields, contents: None)
    assert path.read_bytes() == before


def test_a_byte_that_changed_is_noticed_anywhere(tmp_path: Path) -> None:
    path, folder = archive_in(tmp_path), tmp_path / "unpacked"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for number, place in enumerate([*rng.integers(0, len(whole), 60).tolist(), 0, 600, len(whole) - 1]):
        data = bytearray(whole)
        data[place] ^= 1 << (number % 8)
        path.write_bytes(data)
        own = folder / str(number)
        own.mkdir(parents=True)
        try:
            archive.read(path).unpack(own)
        except PackageError:
            continue
        # Padding between members says nothing, nor does that of a deflated stream's last byte.
        found, known = (read_archive(bytes(one), "manifest.json") for one in (data, whole))
        assert inflated(found) == inflated(known)


def inflated(members: dict[str, memoryview]) -> dict[str, bytes]:
    return {name: zlib.decompress(data) if "/" in name else bytes(data) for name, data in members.items()}


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_part_of_an_archive_is_refused(tmp_path: Path, share: float) -> None:
    path = archive_in(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(PackageError, match=r"trials\.tar is (cut short|not a tar archive)"):
        archive.read(path)


def test_no_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PackageNotFoundError, match="can't read"):
        archive.read(tmp_path / "none.tar")


OWN = "its own library"
KERNEL: dict[str, Any] = {"config": {}, "library": "kernels/a", "tables": []}


def rewritten(path: Path, **fields: Any) -> None:
    """Write a manifest with other fields, and hashes that fit."""
    members = {name: bytes(data) for name, data in read_archive(path.read_bytes(), "manifest.json").items()}
    manifest = {**json.loads(members["manifest.json"]), **fields}
    data = json.dumps({name: value for name, value in manifest.items() if value is not Ellipsis}).encode()
    members["manifest.json"] = data
    members["manifest.sha256"] = hashlib.sha256(data).hexdigest().encode()
    file = io.BytesIO()
    write_archive(members, file)
    path.write_bytes(file.getvalue())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": "hbtvm-package"}, "holds no trials to measure; hbtvm tune --export writes"),
        ({"version": 2}, "format version 2, but this hbtvm reads version 1; upgrade with"),
        ({"version": "1"}, "damaged: manifest.json: version is '1'"),
        ({"tasks": ...}, "'tasks' is missing"),
        ({"tasks": []}, r"tasks is \[\]"),
        ({"tasks": [{"name": "x"}]}, "manifest.json"),
        (
            {"candidates": [{"task": -1, "kernel": {"config": {}}, "build_seconds": 0}]},
            r"candidates\[0\]\.task is -1",
        ),
        ({"candidates": [{"task": 99, "kernel": {"config": {}}, "build_seconds": 0}]}, "task is 99"),
        ({"data": [{"rows": "rows/x", "expected": "rows/y", "tolerance": 0}]}, "manifest.json"),
        ({"executor": None}, "the executor is None"),
        ({"executor": "../x"}, "there is no member"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 2**63}, "threads is 9223372036854775808"),
        ({"tvm": ...}, "'tvm' is missing"),
        ({"hbtvm": ...}, "'hbtvm' is missing"),
        ({"tvm": 5}, "tvm is 5; expected a text"),
        ({"hbtvm": "a\n"}, "hbtvm must be a string"),
        ({"target": {"kind": "llvm", "features": 3}}, "features"),
        ({"target": {"kind": "llvm", "features": [], "cores": 10**400}}, "64 bits"),
        (
            {"target": {"kind": "opencl", "arch": "a", "max_threads_per_block": 8}},
            "target's kind is 'opencl'",
        ),
        ({"target": {"kind": "cuda"}, "executor": None}, "the target's arch is None"),
        ({"target": {}}, "the target's features are None"),
        ({"members": {}}, "is not listed"),
        (
            {"candidates": [{"task": 0, "kernel": KERNEL | {"library": "../x"}, "build_seconds": 0}]},
            "there is no member '../x'",
        ),
        (
            {
                "candidates": [
                    {
                        "task": 0,
                        "kernel": KERNEL | {"tables": ["/x"], "library": OWN},
                        "build_seconds": 0,
                    }
                ]
            },
            "there is no member '/x'",
        ),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    path = archive_in(tmp_path)
    library = archive.read(path).candidates[0].kernel["library"]
    for one in fields.get("candidates", ()):
        if one["kernel"].get("library") == OWN:
            one["kernel"] = {**one["kernel"], "library": library}
    rewritten(path, **fields)
    with pytest.raises(PackageError, match=words):
        archive.read(path)


def test_members_of_other_names_are_refused(tmp_path: Path) -> None:
    path = archive_in(tmp_path)
    members = {name: bytes(data) for name, data in read_archive(path.read_bytes(), "manifest.json").items()}
    manifest = json.loads(members["manifest.json"])
    members["0.json"] = zlib.compress(b"{}")
    manifest["members"]["0.json"] = {"sha256": hashlib.sha256(b"{}").hexdigest(), "size": 2}
    file = io.BytesIO()
    write_archive(members, file)
    path.write_bytes(file.getvalue())
    rewritten(path, members=manifest["members"])
    with pytest.raises(PackageError, match=r"a member is '0\.json'"):
        archive.read(path)


def test_no_more_is_inflated_than_is_listed(tmp_path: Path) -> None:
    path, folder = archive_in(tmp_path), tmp_path / "unpacked"
    members = {name: bytes(data) for name, data in read_archive(path.read_bytes(), "manifest.json").items()}
    name = next(name for name in members if name.startswith("tables/"))
    members[name] = zlib.compress(bytes(2**26))
    file = io.BytesIO()
    write_archive(members, file)
    path.write_bytes(file.getvalue())
    folder.mkdir()
    with pytest.raises(PackageError, match="does not match its hash in"):
        archive.read(path).unpack(folder)
    members[name] = b"no stream"
    file = io.BytesIO()
    write_archive(members, file)
    path.write_bytes(file.getvalue())
    with pytest.raises(PackageError, match="can't be inflated"):
        archive.read(path).unpack(folder)
