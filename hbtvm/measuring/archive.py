"""The `.tar` of candidates that are built on one machine and measured on another: format version 2.

Members: ``manifest.json``, ``manifest.sha256`` (its hash), and, deflated (zlib) and stored once each,
``kernels/<hash>`` (machine code), ``tables/<hash>.npy`` and ``rows/<hash>.npy``. The manifest lists the sizes
and hashes of their inflated contents. Its other fields:

==============  =====================================================================
``format``      ``"hbtvm-trials"``
``version``     2 for GPUs, whose kernels have bounds since then (`Launch.has_bounds`); 1 for CPUs
``hbtvm``       version of what built it, as ``tvm``
``date``        when it was built: ISO 8601, UTC
``model``       what the model is called, for people
``target``      the machine that the code is for, as `hbtvm.logs.record.Record` has it
``threads``     threads of a call
``executor``    member that runs a CPU's kernels; null for GPUs
``data``        ``rows`` (member), ``expected`` (member: float64, sums of the first rows), ``tolerance``
``tasks``       ``name``, ``group``, ``strategy``, ``workload``, ``data`` (number)
``candidates``  ``task`` (number), ``kernel`` (as packages have it), ``build_seconds``; best guesses first
==============  =====================================================================
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import PackageError, package_file_error
from hbtvm.logs.bounds import is_name
from hbtvm.logs.record import Record, canonical
from hbtvm.runtime.archive import read_archive, replace_file
from hbtvm.runtime.manifest import manifest_bytes
from hbtvm.runtime.tables import table_bytes

FORMAT, VERSION = "hbtvm-trials", 2
_FOR_CPUS = 1
MANIFEST, _DIGEST = "manifest.json", "manifest.sha256"

MOST_ROWS = 4096
"""Most rows of a sample; larger batches repeat them."""

_MOST_BYTES = 2**32
_MEMBER = re.compile(r"(kernels|tables|rows)/[0-9a-f]{32}(\.npy)?")


class Members:
    """The members of a new archive, deflated, each stored once."""

    def __init__(self) -> None:
        self.deflated: dict[str, bytes] = {}
        self.listed: dict[str, dict[str, Any]] = {}

    def add(self, code: bytes, table: np.ndarray | None, relocatable: bool = False) -> str:
        """Add machine code or a table (see `hbtvm.runtime.manifest.Add`), and return its name."""
        if table is None:
            return self._put("kernels/{}", code)
        return self._put("tables/{}.npy", table_bytes(table))

    def add_rows(self, rows: np.ndarray) -> str:
        """Add rows or expected sums, and return their name."""
        return self._put("rows/{}.npy", table_bytes(rows))

    def _put(self, pattern: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        name = pattern.format(digest[:32])
        if name not in self.listed:
            self.listed[name] = {"sha256": digest, "size": len(data)}
            self.deflated[name] = zlib.compress(data)
        return name


@dataclass(frozen=True)
class TrialsTask:
    """A strategy for a workload; see the module's table."""

    name: str
    group: str
    strategy: str
    workload: Mapping[str, Any]
    data: int


@dataclass(frozen=True)
class Candidate:
    """A kernel to measure.

    Attributes
    ----------
    number
        Its index in the archive.
    task
        The index of its task.
    kernel
        The kernel, for `hbtvm.runtime.manifest.kernel_from_json`.
    build_seconds
        Seconds of the build.
    """

    number: int
    task: int
    kernel: Mapping[str, Any]
    build_seconds: float

    @property
    def config(self) -> dict[str, int | str | bool]:
        """The choices of the knobs."""
        return dict(self.kernel["config"])

    @cached_property
    def key(self) -> str:
        """Text that identifies the configuration within its task."""
        return canonical(self.config)


@dataclass(frozen=True)
class Trials:
    """The contents of an archive.

    Attributes
    ----------
    manifest
        See the module's table.
    digest
        SHA-256 of the manifest, which lists the hashes of all members: the archive's identity.
    contents
        Deflated members by name.
    """

    manifest: Mapping[str, Any]
    digest: str
    contents: Mapping[str, bytes | memoryview]

    @cached_property
    def target(self) -> dict[str, Any]:
        """The machine that the code is for."""
        return dict(self.manifest["target"])

    @cached_property
    def tasks(self) -> list[TrialsTask]:
        """The tasks by number."""
        return [TrialsTask(**task) for task in self.manifest["tasks"]]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The candidates by number."""
        return [Candidate(number, **one) for number, one in enumerate(self.manifest["candidates"])]

    @property
    def on_gpu(self) -> bool:
        """Whether the code is for a GPU."""
        return bool(self.target["kind"] == "cuda")

    def unpack(self, folder: Path) -> None:
        """Write all members, inflated, and a description of each candidate into a folder.

        Raises
        ------
        PackageError
            If a member is damaged. The text continues a sentence that begins with the archive.
        """
        for name, data in self.contents.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self._inflated(name, data))
        for one in self.candidates:
            task = self.tasks[one.task]
            told = {
                "kernel": one.kernel,
                "data": self.manifest["data"][task.data],
                "rows": task.workload["rows"],
                "threads": self.manifest["threads"],
                "executor": self.manifest["executor"],
            }
            (folder / f"{one.number}.json").write_text(json.dumps(told))

    def _inflated(self, name: str, data: bytes | memoryview) -> bytes:
        listed = self.manifest["members"][name]
        inflate = zlib.decompressobj()
        try:
            # Inflate at most the listed size.
            found = inflate.decompress(data, listed["size"] + 1)
        except zlib.error:
            raise PackageError(f"is damaged: {name!r} can't be inflated") from None
        if hashlib.sha256(found).hexdigest() != listed["sha256"]:
            raise PackageError(f"is damaged: the content of {name!r} has another hash than {MANIFEST} says")
        return found


def write(path: Path, members: Members, **fields: Any) -> Trials:
    """Write an archive; the file is never half-written.

    Parameters
    ----------
    fields
        Fields of the manifest other than ``format``, ``version`` and ``members``.

    Raises
    ------
    PackageError
        If it can't be written.
    """
    version = VERSION if fields["target"]["kind"] == "cuda" else _FOR_CPUS
    manifest = {"format": FORMAT, "version": version, "members": members.listed, **fields}
    data = manifest_bytes(manifest)
    digest = hashlib.sha256(data).hexdigest()
    ordered = dict(sorted(members.deflated.items()))
    replace_file(path, {MANIFEST: data, _DIGEST: digest.encode() + b"\n", **ordered})
    return Trials(json.loads(data), digest, ordered)


def read(path: Path) -> Trials:
    """Read an archive; members are checked when they are unpacked.

    Raises
    ------
    PackageError
        If the file is missing, damaged, not such an archive, or of a newer format.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise package_file_error(f"can't read {path}: {error.strerror}.", error, path) from None
    try:
        members: dict[str, Any] = dict(read_archive(data, MANIFEST))
        own = bytes(members.pop(MANIFEST))
        stated = bytes(members.pop(_DIGEST, b"")).strip().decode("latin-1")
        return Trials(_checked(own, stated, members), stated, members)
    except PackageError as error:
        raise PackageError(f"{path} {error}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise PackageError(f"{path} is damaged: {MANIFEST}: {what}.") from None


def _checked(data: bytes, stated: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest, if it is complete and consistent."""
    manifest: Any = json.loads(data)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError("holds no trials to measure; hbtvm tune --export writes such archives")
    if type(manifest["version"]) is not int or manifest["version"] < 1:
        raise ValueError(f"version is {manifest['version']!r:.100}")
    if manifest["version"] > VERSION:
        raise PackageError(
            f"has format version {manifest['version']}, but this hbtvm reads version {VERSION}; "
            "upgrade with pip install --upgrade hbtvm"
        )
    if hashlib.sha256(data).hexdigest() != stated:
        raise PackageError(f"is damaged: the content of {MANIFEST} has another hash than {_DIGEST} says")
    listed = manifest["members"]
    for name in sorted(listed.keys() ^ members.keys()):
        where = "is missing" if name in listed else f"is not listed in {MANIFEST}"
        raise PackageError(f"is damaged: {name!r} {where}")
    for name, one in listed.items():
        if not _MEMBER.fullmatch(name):
            raise ValueError(f"a member is {name!r:.100}")
        _whole(one["size"], f"the size of {name!r}", _MOST_BYTES)
    tasks, data_sets = _list(manifest, "tasks"), _list(manifest, "data")
    for task in tasks:
        found = TrialsTask(**task)
        _whole(found.data, "a task's data", len(data_sets))
        _whole(found.workload["rows"], "a task's rows", _MOST_BYTES, 1)
        for text in (found.name, found.group):
            if not is_name(text):
                raise ValueError(f"a task is called {text!r:.100}")
    names = [one[key] for one in data_sets for key in ("rows", "expected")]
    for one in _list(manifest, "candidates"):
        candidate = Candidate(0, **one)
        _whole(candidate.task, "a candidate's task", len(tasks))
        _check_record(manifest, tasks[candidate.task], candidate)
        names += [one["kernel"]["library"], *one["kernel"]["tables"].values()]
    for name in (*names, *filter(None, [manifest["executor"]])):
        if name not in listed:
            raise ValueError(f"there is no member {name!r:.100}")
    if (manifest["executor"] is None) != (manifest["target"]["kind"] == "cuda"):
        raise ValueError(f"the executor is {manifest['executor']!r:.100}")
    _whole(manifest["threads"], "threads", 2**16, 1)
    return manifest


def _check_record(manifest: Mapping[str, Any], task: Mapping[str, Any], candidate: Candidate) -> None:
    """Check the future record of a candidate, with the checks of records."""
    Record(
        workload=task["workload"],
        strategy=task["strategy"],
        target=manifest["target"],
        config=candidate.config,
        times=(1.0,),
        build_seconds=candidate.build_seconds,
        tvm=manifest["tvm"],
        hbtvm=manifest["hbtvm"],
    )


def _list(manifest: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = manifest[name]
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name} is {found!r:.100}")
    return found


def _whole(value: object, what: str, most: int, least: int = 0) -> None:
    if type(value) is not int or not least <= value < most:
        raise ValueError(f"{what} is {value!r:.100}")
