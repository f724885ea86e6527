"""The `.tar` that holds a compiled model: format version 5.

Members: ``manifest.json`` (everything but code and tables), ``manifest.sha256`` (its hash),
``kernels/<hash>.so`` (``.fatbin`` for GPUs) and ``tables/<hash>.npy``, each once however many kernels
use it, with sizes and hashes in the manifest. The same package always gives the same bytes.

Version 4 had no input whose category columns only the rows tell (`InputSpec.category_order`),
version 3 no kernels that leave sums in parts (`KernelEntry.parts`), version 2 none for GPUs
(`KernelEntry.launch`), version 1 none for rows without missing values
only (`KernelEntry.missing`). A package is written in the oldest version that can hold it, so that older
releases can still read what they could always do.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.pipeline.ensemble import TreeEnsemble
from hbtvm.pipeline.output import OutputSpec
from hbtvm.pipeline.pipeline import InputSpec
from hbtvm.runtime.archive import read_archive, replace_file, write_archive
from hbtvm.runtime.launch import Launch
from hbtvm.runtime.tables import table_bytes, table_from_bytes

FORMAT = "hbtvm-package"
VERSION = 5
_MANIFEST = "manifest.json"
_DIGEST = "manifest.sha256"

Dtype = Literal["float32", "float64"]
Parallel = Literal["none", "rows", "trees"]


@dataclass(frozen=True)
class KernelEntry:
    """One tuned kernel.

    Attributes
    ----------
    strategy, config
        What it was made from; told to the user, not needed to run it.
    rows, threads
        Rows of a call that it was tuned for, and threads that worked on it.
    seconds
        Measured time of such a call; None if it was not measured.
    dtype, value_dtype
        Type of its input, and of its leaf values.
    library
        The shared library, whose function ``main`` is the kernel; for a GPU, its machine code (a
        fatbin or cubin).
    shared_tables, tables
        Its tables in argument order; those of `tables` have tree tiles as their leading axis.
    groups, width, row_tile, parallel, grain
        See `executor.Executor`.
    missing
        Whether its rows may have missing values. Where some kernels take none, others of the same
        `dtype` do.
    launch
        How a GPU's kernel is started; None for a CPU's.
    parts
        Sums that a GPU's kernel leaves of each score, to be added by what finishes scores.
    """

    strategy: str
    config: Mapping[str, Any]
    rows: int
    threads: int
    seconds: float | None
    dtype: Dtype
    value_dtype: Dtype
    library: bytes
    shared_tables: tuple[np.ndarray, ...]
    tables: tuple[np.ndarray, ...]
    groups: int
    width: int
    row_tile: int
    parallel: Parallel = "none"
    grain: int = 1
    missing: bool = True
    launch: Launch | None = None
    parts: int = 1


@dataclass(frozen=True)
class Package:
    """A compiled model, ready to be written or loaded.

    Attributes
    ----------
    library, model
        The library and class it was trained with.
    input, output
        What comes in, and what goes out.
    forest
        What `forest_facts` tells; base score and divisor are applied to the kernels' sums.
    target
        The machine it was compiled for, as `compiler.target` describes it.
    kernels
        At least one.
    tuning
        Where the kernels come from: trials, time, date, whatever the tuner tells (JSON-able).
    hbtvm_version, tvm_version
        What compiled it; the versions installed here, if left empty.
    """

    library: str
    model: str
    input: InputSpec
    output: OutputSpec
    forest: Mapping[str, Any]
    target: Mapping[str, Any]
    kernels: tuple[KernelEntry, ...]
    tuning: Mapping[str, Any]
    hbtvm_version: str = ""
    tvm_version: str = ""


def forest_facts(ensemble: TreeEnsemble) -> dict[str, Any]:
    """What the runtime and its user need to know of a forest."""
    leaves = int(ensemble.is_leaf().sum())
    return {
        "n_features": ensemble.n_features,
        "n_outputs": ensemble.n_outputs,
        "compare_dtype": ensemble.compare_dtype,
        "base_score": ensemble.base_score.tolist(),
        "divisor": float(ensemble.divisor),
        "trees": ensemble.n_trees,
        "nodes": ensemble.n_nodes,
        "leaves": leaves,
        "depth": ensemble.max_depth(),
    }


def write(package: Package, path: str | Path) -> None:
    """Write a package; whatever happens, the file is never half-written.

    Raises
    ------
    PackageError
        If it can't be written.
    """
    replace_file(Path(path), _members(package))


def to_bytes(package: Package) -> bytes:
    """The bytes that `write` puts into the file."""
    file = io.BytesIO()
    write_archive(_members(package), file)
    return file.getvalue()


def read(path: str | Path) -> Package:
    """Read a package and check every byte of it. Its code is not loaded yet.

    Raises
    ------
    PackageError
        If it is missing, damaged, no package, or of a newer format.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise PackageError(f"there is no file {path}.") from None
    except OSError as error:
        raise PackageError(f"can't read {path}: {error.strerror}.") from error
    return from_bytes(data, str(path))


def from_bytes(data: bytes, name: str = "the package") -> Package:
    """As `read`, from a file's content; `name` stands for it in errors."""
    try:
        members = read_archive(data, _MANIFEST)
        data = bytes(members.pop(_MANIFEST))
        manifest = _manifest(data)
        if bytes(members.pop(_DIGEST, b"")) != _digest(data):
            raise PackageError(f"is damaged: the content of {_MANIFEST} has another hash than {_DIGEST} says")
        return _package(manifest, members)
    except PackageError as error:
        raise PackageError(f"{name} {error}.") from None


def _members(package: Package) -> dict[str, bytes]:
    package = replace(
        package,
        hbtvm_version=package.hbtvm_version or installed_version("hbtvm"),
        tvm_version=package.tvm_version or installed_version("apache-tvm"),
    )
    members: dict[str, bytes] = {}

    def add(folder: str, suffix: str, data: bytes) -> str:
        name = f"{folder}/{hashlib.sha256(data).hexdigest()[:32]}{suffix}"
        members[name] = data
        return name

    version = _version(package)
    kernels = []
    for kernel in package.kernels:
        entry = {f.name: getattr(kernel, f.name) for f in fields(kernel)}
        entry["config"] = dict(kernel.config)
        entry["library"] = add("kernels", ".fatbin" if kernel.launch else ".so", kernel.library)
        launch = entry.pop("launch")
        if version >= 3:
            entry["launch"] = launch and launch.to_json()
        if version < 4:
            del entry["parts"]
        if version == 1:
            del entry["missing"]
        for kind in ("shared_tables", "tables"):
            entry[kind] = [add("tables", ".npy", table_bytes(table)) for table in entry[kind]]
        kernels.append(entry)
    members = dict(sorted(members.items()))
    manifest = {
        "format": FORMAT,
        "version": version,
        "hbtvm": package.hbtvm_version,
        "tvm": package.tvm_version,
        "model": {"library": package.library, "class": package.model},
        "input": package.input.to_json(),
        "output": package.output.to_json(),
        "forest": dict(package.forest),
        "target": dict(package.target),
        "kernels": kernels,
        "tuning": dict(package.tuning),
        "members": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in members.items()
        },
    }
    data = json.dumps(manifest, sort_keys=True, indent=1, default=_plain).encode()
    return {_MANIFEST: data, _DIGEST: _digest(data), **members}


def _version(package: Package) -> int:
    """The oldest format version that can hold a package."""
    if package.input.category_order:
        return 5
    if any(kernel.parts != 1 for kernel in package.kernels):
        return 4
    if any(kernel.launch is not None for kernel in package.kernels):
        return 3
    return 1 if all(kernel.missing for kernel in package.kernels) else 2


def installed_version(distribution: str) -> str:
    """Version of an installed distribution; empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise PackageError(f"can't pack {value!r}: JSON has no {type(value).__name__}.")


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        raise PackageError(f"is damaged: its {_MANIFEST} is no JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError(f"is no hbtvm package: its {_MANIFEST} names another format")
    version = manifest.get("version")
    if not isinstance(version, int) or version < 1:
        raise PackageError(f"is damaged: its format version is {version!r}")
    if version > VERSION:
        writer = str(manifest.get("hbtvm") or "")
        raise PackageError(
            f"has format version {version}, but this hbtvm reads versions up to {VERSION}; "
            f"upgrade with pip install 'hbtvm{f'>={writer}' if writer else ''}'"
        )
    return manifest


def _package(manifest: dict[str, Any], members: dict[str, memoryview]) -> Package:
    try:
        listed = manifest["members"]
        _check_members({name: (m["sha256"], m["size"]) for name, m in listed.items()}, members)
        added: dict[str, Any] = {"parts": 1} if manifest["version"] < 4 else {}
        if manifest["version"] < 3:
            added["launch"] = None
        if manifest["version"] == 1:
            added["missing"] = True
        tables = {
            name: table_from_bytes(name, data) for name, data in members.items() if name.endswith(".npy")
        }
        package = Package(
            library=manifest["model"]["library"],
            model=manifest["model"]["class"],
            input=InputSpec.from_json(manifest["input"]),
            output=OutputSpec.from_json(manifest["output"]),
            forest=manifest["forest"],
            target=manifest["target"],
            kernels=tuple(_kernel({**added, **entry}, members, tables) for entry in manifest["kernels"]),
            tuning=manifest["tuning"],
            hbtvm_version=manifest["hbtvm"],
            tvm_version=manifest["tvm"],
        )
        _validate(package)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise PackageError(f"is damaged: {_MANIFEST}: {what}") from None
    return package


def _check_members(listed: Mapping[str, tuple[str, int]], members: Mapping[str, memoryview]) -> None:
    for name in sorted(listed.keys() | members.keys()):
        if name not in members:
            raise PackageError(f"is damaged: {name!r} is missing")
        if name not in listed:
            raise PackageError(f"is damaged: {name!r} is not listed in {_MANIFEST}")
        digest, size = listed[name]
        if len(members[name]) != size:
            raise PackageError(f"is damaged: {name!r} has {len(members[name])} bytes, expected {size}")
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise PackageError(f"is damaged: the content of {name!r} has another hash than {_MANIFEST} says")


def _kernel(
    entry: Mapping[str, Any], members: Mapping[str, memoryview], tables: Mapping[str, np.ndarray]
) -> KernelEntry:
    names = {f.name for f in fields(KernelEntry)}
    if set(entry) != names:
        raise ValueError(f"kernel fields {sorted(names ^ set(entry))} are missing or unknown")
    values = dict(entry)
    if not entry["library"].startswith("kernels/"):
        raise ValueError(f"the library {entry['library']!r} is no kernel")
    values["library"] = bytes(members[entry["library"]])
    for kind in ("shared_tables", "tables"):
        values[kind] = tuple(tables[name] for name in entry[kind])
    if entry["launch"] is not None:
        values["launch"] = launch = Launch.from_json(entry["launch"])
        launch.check(len(values["shared_tables"]) + len(values["tables"]) + 2)
    return KernelEntry(**values)


def _validate(package: Package) -> None:
    forest, target = package.forest, package.target
    if not package.kernels:
        raise ValueError("there is no kernel")
    if not package.input.n_features == forest["n_features"] > 0:
        raise ValueError(f"n_features is {forest['n_features']!r} and {package.input.n_features}")
    if not package.output.n_outputs == forest["n_outputs"] == len(forest["base_score"]):
        raise ValueError(f"n_outputs is {forest['n_outputs']!r} and {package.output.n_outputs}")
    if not float(forest["divisor"]) > 0 or forest["compare_dtype"] not in get_args(Dtype):
        raise ValueError(f"divisor is {forest['divisor']!r}, compare_dtype {forest['compare_dtype']!r}")
    on_gpu = target.get("kind") == "cuda"
    if on_gpu and not re.fullmatch(r"sm_\d{2,3}[af]?", str(target["arch"])):
        raise ValueError(f"the target's arch is {target['arch']!r}")
    if not on_gpu and not all(isinstance(feature, str) for feature in target["features"]):
        raise ValueError(f"the target's features are {target['features']!r}")
    if any((kernel.launch is not None) != on_gpu for kernel in package.kernels):
        raise ValueError(f"a kernel is not for {target.get('kind', 'a CPU')}")
    dtypes = {kernel.dtype for kernel in package.kernels}
    if dtypes != {kernel.dtype for kernel in package.kernels if kernel.missing is True}:
        raise ValueError("no kernel takes missing values")
    for kernel in package.kernels:
        if kernel.dtype not in get_args(Dtype) or kernel.parallel not in get_args(Parallel):
            raise ValueError(f"a kernel's dtype is {kernel.dtype!r}, its parallel {kernel.parallel!r}")
        for name in ("rows", "threads", "groups", "width", "row_tile", "grain", "parts"):
            if not isinstance(getattr(kernel, name), int) or getattr(kernel, name) < 1:
                raise ValueError(f"a kernel's {name} is {getattr(kernel, name)!r}")
        if kernel.parts != 1 and not on_gpu:
            raise ValueError(f"a CPU's kernel leaves sums in {kernel.parts} parts")
        if kernel.groups * kernel.width != package.output.n_outputs:
            raise ValueError(f"a kernel has {kernel.groups} groups of {kernel.width} outputs")
        if kernel.seconds is not None and not 0 < float(kernel.seconds) < math.inf:
            raise ValueError(f"a kernel's seconds are {kernel.seconds!r}")
