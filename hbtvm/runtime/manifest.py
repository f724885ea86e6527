"""A package's ``manifest.json``: everything but code and tables, in format version 9 to 14.

Each kernel has its `Signature`, and its tables by the names that they have there. ``binding`` is a hash of
all else that stands in a kernel's entry, so that tables of equal shapes, say, are not mixed up unnoticed.

``recursion`` describes a recursive model (`hbtvm.runtime.recursive.entry_json`), whose readout is what comes
in. Packages with one have version 10, on a GPU 11, with a vocabulary or a GPU's constants in shared memory
12. Those with a kernel for a GPU that has bounds (`Launch.has_bounds`) have version 14, which all that are
compiled for GPUs now are, those with one that says how much shared memory a multiprocessor is to have
(`Launch.carveout`) version 13, and all others are still written in version 9.

``cuda`` is the version of the toolkit that compiled a GPU's kernels; packages were first written without.

``executor`` is the member that runs the kernels of a CPU, and a kernel's ``object`` the one from which other
libraries are linked. There were none up to version 8.

Version 6 had no texts: no operation ``vectorize``, whose arrays are members as tables of kernels are, no
``text_library`` that computes it, and no rows of one value each (`InputSpec.rows_are_values`).

``anchor`` tells what kernels compute, ``front`` what is in front of them (`hbtvm.graph.steps_json`). Up to
version 5 there were forests only, described in ``forest``, and nothing in front of them.

``stages`` are what runs before these kernels, each with its own ``anchor``, ``columns`` and ``kernels``, and
``columns`` then are those of the matrix that the last kernels read. There were none up to version 6.

Versions 1 to 4 named no tables: ``shared_tables`` and ``tables`` were lists in argument order, and what a
kernel takes was told by ``row_tile``, ``groups``, ``width``, ``dtype`` and ``parts``. They had no input whose
category columns only the rows tell (`InputSpec.category_order`). Version 3 had no kernels that leave sums in
parts, version 2 none for GPUs (``launch``), version 1 none for rows without missing values only
(``missing``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Protocol, get_args

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph import steps_json
from hbtvm.graph.columns_anchor import Frame
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.output import OutputSpec
from hbtvm.graph.values_json import boolean, items, text
from hbtvm.runtime import signature_json
from hbtvm.runtime.cuda.launch import Launch
from hbtvm.runtime.entry import KernelEntry, Package, StageEntry
from hbtvm.runtime.recursive import entry_json
from hbtvm.runtime.signature import (
    GPU_ROW_ALIGNMENT,
    Signature,
    described,
    rows_argument,
    scores_argument,
)
from hbtvm.runtime.validate import check_kernel, check_package, check_plain, whole

FORMAT = "hbtvm-package"
VERSION = 14
MANIFEST = "manifest.json"

_WITHOUT_RECURSION, _ON_CPU, _ON_GPU, _WITH_CONSTANTS, _WITH_CARVEOUT = 9, 10, 11, 12, 13
"""Versions of packages that hold no recursive model, of those with one on a CPU and on a GPU without what is
newer, of those with a vocabulary or with constants in shared memory, and of those without a kernel that has
bounds: older releases read these."""

_LEGACY = {"shared_tables": [], "tables": [], "groups": 1, "width": 1, "row_tile": 1, "dtype": "", "parts": 1}
"""Fields of a kernel's entry in place of ``signature``, ``tables`` and ``binding``, up to version 4."""


class Add(Protocol):
    """Takes a kernel's code and None, or nothing and a table; gives the name of its member."""

    def __call__(self, code: bytes, table: np.ndarray | None, relocatable: bool = False) -> str: ...


def to_manifest(package: Package, add: Add) -> dict[str, Any]:
    """Plain values from which `from_manifest` makes an equal package.

    Parameters
    ----------
    add
        Adds a member.
    """
    return {
        "format": FORMAT,
        "version": _version(package),
        "hbtvm": package.hbtvm_version,
        "tvm": package.tvm_version,
        # Left out where there is none: older releases read such packages, too.
        **({"cuda": package.cuda_version} if package.cuda_version else {}),
        "model": {"library": package.library, "class": package.model},
        "input": package.input.to_json(),
        "output": package.output.to_json(),
        "anchor": dict(package.forest),
        "front": {
            **steps_json.to_json(package.parts, lambda table: add(b"", table)),
            "float32_apart": package.float32_apart,
            "names": [list(step) for step in package.steps],
            "told": list(package.told),
            # Left out where there is none: older releases read such packages, too.
            **({} if package.frame is None else {"frame": package.frame}),
            **({} if not package.text_library else {"text_library": add(package.text_library, None)}),
        },
        "target": dict(package.target),
        "kernels": [kernel_to_json(kernel, add) for kernel in package.kernels],
        "stages": [
            {
                "anchor": dict(stage.facts),
                "columns": list(stage.columns),
                "kernels": [kernel_to_json(kernel, add) for kernel in stage.kernels],
            }
            for stage in package.stages
        ],
        "columns": list(package.columns),
        "executor": add(package.executor, None) if package.executor else None,
        "tuning": dict(package.tuning),
        **({} if package.recursion is None else {"recursion": entry_json.to_json(package.recursion, add)}),
    }


def _version(package: Package) -> int:
    """The oldest format that has all that is in a package."""
    launches = [one.launch for one in package.all_kernels if one.launch is not None]
    if any(one.has_bounds for one in launches):
        return VERSION
    if any(one.carveout is not None for one in launches):
        return _WITH_CARVEOUT
    if package.recursion is None:
        return _WITHOUT_RECURSION
    steps = (one.persistent for one in package.recursion.kernels)
    if package.recursion.vocabulary is not None or any(one is not None and one.shared for one in steps):
        return _WITH_CONSTANTS
    return _ON_GPU if package.target.get("kind") == "cuda" else _ON_CPU


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The file; the same values give the same bytes.

    Raises
    ------
    PackageError
        If JSON has no form for some value.
    """
    return json.dumps(manifest, sort_keys=True, indent=1, default=_plain).encode()


def read_manifest(data: bytes) -> dict[str, Any]:
    """The values in the file, of which only format and version have been looked at.

    Raises
    ------
    PackageError
        If it is no manifest, or one of a newer format. The text continues a sentence that begins with the
        package, as do those of all errors here.
    """
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        raise PackageError(f"is damaged: its {MANIFEST} is no JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError(f"is no hbtvm package: its {MANIFEST} names another format")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise PackageError(f"is damaged: its format version is {version!r:.100}")
    if version > VERSION:
        writer = str(manifest.get("hbtvm") or "")
        newer = f">={writer}" if re.fullmatch(r"[0-9][0-9A-Za-z.+-]{0,40}", writer) else ""
        raise PackageError(
            f"has format version {version}, but this hbtvm reads versions up to {VERSION}; "
            f"upgrade with pip install 'hbtvm{newer}'"
        )
    return manifest


def from_manifest(
    manifest: Mapping[str, Any], libraries: Mapping[str, bytes], tables: Mapping[str, np.ndarray]
) -> Package:
    """What a manifest describes, checked.

    Parameters
    ----------
    libraries, tables
        The package's members by name.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError, OverflowError
        If it makes no sense.
    """
    if manifest["version"] < 6:
        manifest = _with_anchor(manifest)
    if manifest["version"] < 7:
        manifest = {**manifest, "stages": [], "columns": []}
    if manifest["version"] < 9:
        manifest = {**manifest, "executor": None}
    check_plain(manifest)
    version, on_gpu = manifest["version"], manifest["target"].get("kind") == "cuda"
    recursive = version > _WITHOUT_RECURSION and (version <= _WITH_CONSTANTS or "recursion" in manifest)
    kernels = []
    for entry in manifest["kernels"]:
        legacy = (
            _current(entry, version, on_gpu, manifest["input"]["n_features"], tables) if version < 5 else None
        )
        kernels.append(kernel_from_json(legacy or entry, libraries, tables, version))
    package = Package(
        library=manifest["model"]["library"],
        model=manifest["model"]["class"],
        input=InputSpec.from_json(manifest["input"]),
        output=OutputSpec.from_json(manifest["output"]),
        forest=manifest["anchor"],
        target=manifest["target"],
        kernels=tuple(kernels),
        tuning=manifest["tuning"],
        hbtvm_version=manifest["hbtvm"],
        tvm_version=manifest["tvm"],
        cuda_version=_cuda_version(manifest.get("cuda", "")),
        stages=tuple(_stage(one, libraries, tables, version) for one in manifest["stages"]),
        columns=tuple(manifest["columns"]),
        # Packages of older versions that were loaded and written again have none.
        executor=b"" if manifest["executor"] is None else libraries[manifest["executor"]],
        recursion=entry_json.from_json(manifest["recursion"], libraries, tables, version > 10 and on_gpu)
        if recursive
        else None,
        **_front(manifest["front"], manifest["input"]["n_features"], libraries, tables),
    )
    check_package(package)
    return package


def _cuda_version(given: Any) -> str:
    """The version of the CUDA toolkit that compiled a package; empty where it does not tell."""
    found = text(given)
    if found and not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", found):
        raise ValueError(f"the version of its CUDA toolkit is {found!r:.100}")
    return found


def _with_anchor(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest up to version 5 with what is new in version 6."""
    front = {**steps_json.to_json(steps_json.Parts()), "float32_apart": False, "names": [], "told": []}
    return {**manifest, "anchor": {"operator": "trees", **manifest["forest"]}, "front": front}


def _front(
    given: Mapping[str, Any],
    n_features: int,
    libraries: Mapping[str, bytes],
    tables: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """The fields of a package that tell what is in front of its kernels."""
    own = {"float32_apart", "names", "told", "frame", "text_library"}
    rest = {name: one for name, one in given.items() if name not in own}
    parts = steps_json.from_json(rest, n_features, tables)
    library = given.get("text_library")
    if library is not None and library not in libraries:
        raise ValueError(f"the library {library!r:.100} of its texts is none")
    if library is None and parts.reads_texts:
        raise ValueError("it reads texts, but has no library for them")
    if not all(isinstance(step, list) and len(step) == 2 for step in given["names"]):
        raise ValueError(f"a pipeline's steps are {given['names']!r:.100}")
    frame = given.get("frame")
    # Explicitly nothing is what no release writes.
    if "frame" in given and (
        frame not in get_args(Frame) or parts.table is None or parts.table.names is None
    ):
        raise ValueError(f"the data frames that it gives are {frame!r:.100}")
    texts = items(text)
    return {
        "parts": parts,
        "float32_apart": boolean(given["float32_apart"]),
        "steps": tuple(texts(step) for step in given["names"]),
        "told": texts(given["told"]),
        "frame": frame,
        "text_library": b"" if library is None else libraries[library],
    }


def binding(entry: Mapping[str, Any]) -> str:
    """The hash of a kernel's entry, its own field ``binding`` left out."""
    rest = {name: value for name, value in entry.items() if name != "binding"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=_plain).encode()).hexdigest()


def kernel_to_json(kernel: KernelEntry, add: Add) -> dict[str, Any]:
    """Plain values from which `kernel_from_json` makes an equal kernel; `add` adds its members."""
    names = [argument.name for argument in kernel.signature.tables]
    if len(names) != len(kernel.tables):
        raise PackageError(f"can't pack {len(kernel.tables)} tables of a kernel that takes {len(names)}.")
    entry = {
        "strategy": kernel.strategy,
        "config": dict(kernel.config),
        "rows": kernel.rows,
        "threads": kernel.threads,
        "seconds": kernel.seconds,
        "value_dtype": kernel.value_dtype,
        "library": add(kernel.library, None),
        "object": add(kernel.object, None, True) if kernel.object else None,
        "signature": signature_json.write(kernel.signature),
        "tables": {name: add(b"", table) for name, table in zip(names, kernel.tables, strict=True)},
        "parallel": kernel.parallel,
        "grain": kernel.grain,
        "missing": kernel.missing,
        "launch": kernel.launch and kernel.launch.to_json(),
    }
    return {**entry, "binding": binding(entry)}


_FIELDS = {
    "strategy", "config", "rows", "threads", "seconds", "value_dtype", "library", "object", "signature",
    "tables", "parallel", "grain", "missing", "launch", "binding",
}  # fmt: skip


def kernel_from_json(
    entry: Mapping[str, Any],
    libraries: Mapping[str, bytes],
    tables: Mapping[str, np.ndarray],
    version: int = VERSION,
) -> KernelEntry:
    """The kernel that `kernel_to_json` described, checked; parameters and errors as of `from_manifest`.

    Parameters
    ----------
    version
        The format version of its package.
    """
    fields = _FIELDS if version > 8 else _FIELDS - {"object"}
    if set(entry) != fields:
        raise ValueError(f"kernel fields {sorted(fields ^ set(entry))!r:.200} are missing or unknown")
    library, object_file = entry["library"], entry.get("object")
    if library not in libraries or not library.startswith("kernels/"):
        raise ValueError(f"the library {library!r:.100} is no kernel")
    if object_file is not None and (object_file not in libraries or not object_file.startswith("objects/")):
        raise ValueError(f"the object {object_file!r:.100} of a kernel is none")
    signature = entry["signature"]
    if not isinstance(signature, Signature):
        signature = signature_json.read(signature)
    names = [argument.name for argument in signature.tables]
    if not isinstance(entry["tables"], dict) or set(names) != set(entry["tables"]):
        raise ValueError(
            f"a kernel's tables are {sorted(entry['tables'])!r:.200}, expected {sorted(names)!r:.200}"
        )
    own = tuple(tables[entry["tables"][name]] for name in names)
    values = {name: value for name, value in entry.items() if name != "binding"}
    values |= {"library": libraries[entry["library"]], "signature": signature, "tables": own}
    values["object"] = libraries[object_file] if object_file is not None else b""
    if entry["launch"] is not None:
        values["launch"] = Launch.from_json(entry["launch"])
    kernel = KernelEntry(**values)
    check_kernel(kernel)
    if version > 4 and entry["binding"] != binding(entry):
        raise ValueError(
            f"the entry of the kernel for {kernel.rows} rows is not as it was when its tables were bound"
        )
    return kernel


def _stage(
    given: Mapping[str, Any], libraries: Mapping[str, bytes], tables: Mapping[str, np.ndarray], version: int
) -> StageEntry:
    if set(given) != {"anchor", "columns", "kernels"}:
        raise ValueError(f"a stage has the fields {sorted(given)!r:.200}")
    kernels = tuple(kernel_from_json(one, libraries, tables, version) for one in given["kernels"])
    return StageEntry(given["anchor"], tuple(given["columns"]), kernels)


def _current(
    entry: Mapping[str, Any], version: int, on_gpu: bool, n_features: int, tables: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """A kernel's entry of versions 1 to 4 as one of version 8, whose signature is no JSON yet."""
    added: dict[str, Any] = {"parts": 1} if version < 4 else {}
    added |= {"launch": None} if version < 3 else {}
    added |= {"missing": True} if version < 2 else {}
    given = {**added, **entry}
    expected = _FIELDS - {"signature", "binding", "object"} | set(_LEGACY)
    if set(given) != expected:
        raise ValueError(f"kernel fields {sorted(expected ^ set(given))!r:.200} are missing or unknown")
    row_tile, groups, width, parts = (whole(given, name) for name in ("row_tile", "groups", "width", "parts"))
    if parts != 1 and not on_gpu:
        raise ValueError(f"a CPU's kernel leaves sums in {parts} parts")
    rows = rows_argument(given["dtype"], row_tile, n_features, GPU_ROW_ALIGNMENT if on_gpu else None)
    bare = Signature((rows, scores_argument((parts * groups, width, row_tile))), groups, parts)
    members = [*given["shared_tables"], *given["tables"]]
    shared = len(given["shared_tables"])
    signature = described([tables[one] for one in members], lambda number: number >= shared, bare)
    kept = {name: value for name, value in given.items() if name not in _LEGACY}
    named = {argument.name: member for argument, member in zip(signature.tables, members, strict=True)}
    return {**kept, "signature": signature, "tables": named, "binding": ""}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise PackageError(f"can't pack {value!r}: JSON has no {type(value).__name__}.")
