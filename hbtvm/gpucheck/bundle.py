"""The bundle of a check: a `.tar` of packages, rows, expected outputs and the steps that use them.

``bundle.json`` has ``format`` (``"hbtvm-gpu-bundle"``), ``version`` (1), ``hbtvm`` (the version that built
it), ``target`` and ``steps``. A step has ``name``, ``kind`` (see `hbtvm.gpucheck.kinds`), ``seconds`` (the
most that it may take), ``alone`` (whether other steps would disturb it) and the kind's own fields. Fields
that name files are relative to the bundle.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hbtvm import __version__
from hbtvm.atomic import replacing
from hbtvm.errors import PackageError, package_file_error

FORMAT, VERSION = "hbtvm-gpu-bundle", 1
MANIFEST = "bundle.json"


@dataclass(frozen=True)
class Step:
    """A check or a measurement, in a process of its own.

    `fields`: the arguments of the kind's function.
    """

    name: str
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 60.0
    alone: bool = False


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    `folder`: where its files are.
    `digest`: SHA-256 of the archive.
    """

    folder: Path
    digest: str
    target: Mapping[str, Any]
    steps: Sequence[Step]


def write(path: Path, target: Mapping[str, Any], steps: Sequence[Step], files: Mapping[str, bytes]) -> None:
    """Write a bundle; the file is never half-written.

    `files`: contents by name.
    """
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "hbtvm": __version__,
        "target": dict(target),
        "steps": [asdict(step) for step in steps],
    }
    with replacing(path) as temporary, tarfile.open(temporary, "w:gz", compresslevel=6) as archive:
        for name, content in {MANIFEST: json.dumps(manifest, indent=1).encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack(path: Path, folder: Path) -> Bundle:
    """Unpack a bundle into a folder.

    Raises `PackageError` if it is missing, damaged, not a bundle, or of a newer format.
    """
    try:
        data = path.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']!r:.100}")
        if manifest["version"] > VERSION:
            raise ValueError(f"its version is {manifest['version']}, and this hbtvm reads {VERSION}")
        steps = [Step(**step) for step in manifest["steps"]]
        return Bundle(folder, hashlib.sha256(data).hexdigest(), manifest["target"], steps)
    except FileNotFoundError as error:
        raise package_file_error(f"can't read {path}: {error.strerror}.", error, path) from None
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise PackageError(f"{path} is not a whole bundle of hbtvm.gpucheck: {error}.") from None
