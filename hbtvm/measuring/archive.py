"""The `.tar` of candidates that are built on one machine and measured on another: format version 1.

Members: ``manifest.json``, ``manifest.sha256`` (its hash), and, deflated (zlib) and stored once each,
``kernels/<hash>`` (machine code), ``tables/<hash>.npy`` and ``rows/<hash>.npy``. The manifest lists the sizes
and hashes of their inflated contents. Its other fields:

==============  =====================================================================
``format``      ``"hbtvm-trials"``
``version``     1
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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hbtvm import codec
from hbtvm.codec import Index, Via, Within
from hbtvm.errors import PackageError, package_file_error
from hbtvm.logs.bounds import is_name
from hbtvm.logs.record import Record, canonical
from hbtvm.runtime.package.archive import read_archive, replace_file
from hbtvm.runtime.package.facts import Target
from hbtvm.runtime.package.tables import table_bytes

FORMAT, VERSION = "hbtvm-trials", 1
MANIFEST, _DIGEST = "manifest.json", "manifest.sha256"

MOST_ROWS = 4096  # most rows of a sample; larger batches repeat them

_MOST_BYTES = 2**32
_MEMBER = re.compile(r"(kernels|tables|rows)/[0-9a-f]{32}(\.npy)?")


class Members:
    """The members of a new archive, deflated, each stored once."""

    def __init__(self) -> None:
        self.deflated: dict[str, bytes] = {}
        self.listed: dict[str, dict[str, Any]] = {}

    def add(self, value: bytes | np.ndarray, folder: str) -> str:
        """Add machine code, a table or rows (a `hbtvm.codec.Store`); return the name."""
        if isinstance(value, np.ndarray):
            return self._put(f"{folder}/{{}}.npy", table_bytes(value))
        return self._put(f"{folder}/{{}}", value)

    def _put(self, pattern: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        name = pattern.format(digest[:32])
        if name not in self.listed:
            self.listed[name] = {"sha256": digest, "size": len(data)}
            self.deflated[name] = zlib.compress(data)
        return name


def _printable(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"a task is called {name!r:.100}")
    return name


@dataclass(frozen=True)
class TrialsTask:
    """A strategy for a workload; see the module's table."""

    name: Annotated[str, Via(str, None, _printable)]
    group: Annotated[str, Via(str, None, _printable)]
    strategy: str
    workload: Mapping[str, Any]
    data: Index


@dataclass(frozen=True)
class Candidate:
    """A kernel to measure."""

    task: Index  # the index of its task
    kernel: Mapping[str, Any]  # the JSON of its `hbtvm.runtime.package.kernel.KernelEntry`
    build_seconds: float  # what building it took
    number: Annotated[int, codec.SKIP] = 0  # its place in the archive

    @property
    def config(self) -> dict[str, int | str | bool]:
        """The choices of the knobs."""
        return dict(self.kernel["config"])

    @cached_property
    def key(self) -> str:
        """Text that identifies the configuration within its task."""
        return canonical(self.config)


@dataclass(frozen=True)
class _Rows:
    rows: str
    expected: str
    tolerance: float


@dataclass(frozen=True)
class _Listed:
    sha256: str
    size: Annotated[int, Within(0, _MOST_BYTES)]


@dataclass(frozen=True)
class _Document:
    """The manifest's fields; see the module's table."""

    hbtvm: str
    tvm: str
    date: str
    model: str
    target: Target
    threads: Annotated[int, Within(1, 2**16)]
    executor: str | None
    data: tuple[_Rows, ...]
    tasks: tuple[TrialsTask, ...]
    candidates: tuple[Candidate, ...]
    members: Mapping[str, _Listed]

    def validate(self) -> None:
        """Raise a `ValueError` for indices and names that do not exist."""
        for name in ("data", "tasks", "candidates"):
            if not getattr(self, name):
                raise ValueError(f"{name} is []")
        for name in self.members:
            if not _MEMBER.fullmatch(name):
                raise ValueError(f"a member is {name!r:.100}")
        for task in self.tasks:
            if task.data >= len(self.data) or not 1 <= task.workload["rows"] < _MOST_BYTES:
                raise ValueError(f"a task's data is {task.data}, its rows are {task.workload['rows']!r:.100}")
        names = [name for sample in self.data for name in (sample.rows, sample.expected)]
        for candidate in self.candidates:
            if candidate.task >= len(self.tasks):
                raise ValueError(f"a candidate's task is {candidate.task}")
            names += [candidate.kernel["library"], *candidate.kernel["tables"]]
        for name in (*names, *filter(None, [self.executor])):
            if name not in self.members:
                raise ValueError(f"there is no member {name!r:.100}")
        if self.target.get("kind") not in ("llvm", "cuda"):
            raise ValueError(f"the target's kind is {self.target.get('kind')!r:.100}")
        if (self.executor is None) != (self.target["kind"] == "cuda"):
            raise ValueError(f"the executor is {self.executor!r:.100}")


@dataclass(frozen=True)
class Trials:
    """The contents of an archive."""

    manifest: Mapping[str, Any]  # see the module's table
    digest: str  # SHA-256 of the manifest, which lists the hashes of all members: the archive's identity
    contents: Mapping[str, bytes | memoryview]  # deflated members by name

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
        return [
            Candidate(**fields, number=number) for number, fields in enumerate(self.manifest["candidates"])
        ]

    @property
    def on_gpu(self) -> bool:
        """Whether the code is for a GPU."""
        return bool(self.target["kind"] == "cuda")

    def unpack(self, folder: Path) -> None:
        """Write all members, inflated, and a description of each candidate into a folder.

        Raises `PackageError` if a member is damaged. The text continues a sentence that begins with the
        archive.
        """
        for name, data in self.contents.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self._inflated(name, data))
        for candidate in self.candidates:
            task = self.tasks[candidate.task]
            description = {
                "kernel": candidate.kernel,
                "data": self.manifest["data"][task.data],
                "rows": task.workload["rows"],
                "threads": self.manifest["threads"],
                "executor": self.manifest["executor"],
            }
            (folder / f"{candidate.number}.json").write_text(json.dumps(description))

    def _inflated(self, name: str, data: bytes | memoryview) -> bytes:
        listed = self.manifest["members"][name]
        inflate = zlib.decompressobj()
        try:
            # Inflate at most the listed size.
            content = inflate.decompress(data, listed["size"] + 1)
        except zlib.error:
            raise PackageError(f"is damaged: {name!r} can't be inflated") from None
        if hashlib.sha256(content).hexdigest() != listed["sha256"]:
            raise PackageError(f"is damaged: the content of {name!r} does not match its hash in {MANIFEST}")
        return content


def write(path: Path, members: Members, **fields: Any) -> Trials:
    """Write an archive; the file is never half-written.

    `fields`: fields of the manifest other than ``format``, ``version`` and ``members``.
    Raises `PackageError` if it can't be written.
    """
    manifest = {"format": FORMAT, "version": VERSION, "members": members.listed, **fields}
    data = codec.text(manifest)
    digest = hashlib.sha256(data).hexdigest()
    ordered = dict(sorted(members.deflated.items()))
    replace_file(path, {MANIFEST: data, _DIGEST: digest.encode() + b"\n", **ordered})
    return Trials(json.loads(data), digest, ordered)


def read(path: Path) -> Trials:
    """Read an archive; members are checked when they are unpacked.

    Raises `PackageError` if the file is missing, damaged, not such an archive, or of a newer format.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise package_file_error(f"can't read {path}: {error.strerror}.", error, path) from None
    try:
        members: dict[str, Any] = dict(read_archive(data, MANIFEST))
        manifest = bytes(members.pop(MANIFEST))
        stated = bytes(members.pop(_DIGEST, b"")).strip().decode("latin-1")
        return Trials(_checked(manifest, stated, members), stated, members)
    except PackageError as error:
        raise PackageError(f"{path} {error}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise PackageError(f"{path} is damaged: {MANIFEST}: {reason}.") from None


def _checked(data: bytes, stated: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest, if it is whole and its parts fit each other."""
    manifest = codec.parse(data)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError("holds no trials to measure; hbtvm tune --export writes such archives")
    if type(manifest.get("version")) is not int or manifest["version"] < 1:
        raise ValueError(f"version is {manifest.get('version')!r:.100}")
    if manifest["version"] > VERSION:
        raise PackageError(
            f"has format version {manifest['version']}, but this hbtvm reads version {VERSION}; "
            "upgrade with pip install --upgrade hbtvm"
        )
    if hashlib.sha256(data).hexdigest() != stated:
        raise PackageError(f"is damaged: the content of {MANIFEST} does not match the hash in {_DIGEST}")
    listed = manifest["members"]
    for name in sorted(listed.keys() ^ members.keys()):
        where = "is missing" if name in listed else f"is not listed in {MANIFEST}"
        raise PackageError(f"is damaged: {name!r} {where}")
    fields = {name: value for name, value in manifest.items() if name not in ("format", "version")}
    document = codec.read(_Document, fields)
    for candidate in document.candidates:
        _check_record(document, document.tasks[candidate.task], candidate)
    return manifest


def _check_record(document: _Document, task: TrialsTask, candidate: Candidate) -> None:
    """Check what a candidate's record will hold, by the checks of records."""
    Record(
        workload=task.workload,
        strategy=task.strategy,
        target=document.target,
        config=candidate.config,
        times=(1.0,),
        build_seconds=candidate.build_seconds,
        tvm=document.tvm,
        hbtvm=document.hbtvm,
    )
