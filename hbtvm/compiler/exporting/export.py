"""`export`: a package as a library for C, and for languages that call C."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from hbtvm import checks
from hbtvm.compiler.building.compilers import c_compiler, is_cross, machine_options
from hbtvm.compiler.exporting.batches import Batches, batches_of, texts_source
from hbtvm.compiler.exporting.build import Parts, build, kernel_name
from hbtvm.compiler.exporting.constants import Tables
from hbtvm.compiler.exporting.example import example
from hbtvm.compiler.exporting.header import Library, declared, ends_of, header
from hbtvm.compiler.exporting.methods import further_of, label_names, methods_of
from hbtvm.compiler.exporting.recursive import Prepared as RecursivePrepared
from hbtvm.compiler.exporting.rows import Rows, row_reader, rows_of
from hbtvm.compiler.exporting.source import Part, source
from hbtvm.compiler.exporting.tools import tools_of
from hbtvm.errors import FileError, InputError, PackageError, UnsupportedModel
from hbtvm.runtime.cpu import architecture
from hbtvm.runtime.feeds.file_columns import known_values
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.host import described, stages_of
from hbtvm.runtime.model import Model
from hbtvm.runtime.native.library import Function
from hbtvm.runtime.package.file import Package, Source, read
from hbtvm.schedules.workload import Target

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_WORDS = """
    alignas alignof auto bool break case char class const constexpr continue default delete do double else
    enum extern false float for goto if inline int long main namespace new nullptr operator private public
    register restrict return short signed sizeof static struct switch template this throw true try typedef
    typeof union unsigned using virtual void volatile while c m hbtvm exported pthread
"""
_RESERVED = frozenset(_WORDS.split())  # words of C and C++, and names of other libraries


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    name: str  # the library's name
    files: tuple[Path, ...]  # libraries, header and example
    functions: tuple[str, ...]  # names of the functions that compute outputs, without suffixes
    lacking: tuple[str, ...]  # names of Python functions that the library lacks
    compiler: str = "cc"  # compiler of programs that use it


def export(
    package: Package | Model | Source,
    directory: str | os.PathLike[str],
    name: str | None = None,
    *,
    force: bool = False,
) -> Exported:
    """Write a package as a library for C: ``libNAME.so``, ``libNAME.a``, ``NAME.h`` and ``example.c``.

    The libraries hold the whole model and need only libc, libm and threads. Results equal the package's in
    Python, bit for bit. The header documents their use.

    Parameters
    ----------
    package
        A package, as a path, bytes or an open file, or a loaded or compiled model.
    directory
        The folder to write to; created if necessary.
    name
        The name of the library and the prefix of its functions: letters, digits and underscores. By default
        derived from the package's file name, or ``"model"``.
    force
        Whether to replace existing files.

    Raises
    ------
    PackageError
        If the package can't be read, or C can't compute its outputs; nothing is written.
    InputError
        If `name` is not an identifier in C, or files exist already.
    FileError
        If files can't be written.
    BuildError
        If there is no C compiler, or it fails.
    """
    folder = Path(checks.path("directory", directory))
    name = _name(package, name)
    files = [f"lib{name}.so", f"lib{name}.a", f"{name}.h", "example.c"]
    _check_folder(folder, files, force)
    opened = (
        package if isinstance(package, Package) else package.package if isinstance(package, Model) else None
    )
    opened = opened or read(package)  # type: ignore[arg-type]
    try:
        prepared = _prepared(opened, name)
    except PackageError as error:
        title = f"{os.fspath(package)}" if isinstance(package, str | os.PathLike) else "the model"
        raise PackageError(f"{title} can't be exported to C: it {error}.") from None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
            inner = Path(place, "made")
            inner.mkdir()  # with the permissions of any new folder
            prepared.write(inner)
            _publish(inner, folder, files)
    except OSError as error:
        raise FileError(
            f"can't write to {folder}: {error.strerror or error}.", error.errno, str(folder)
        ) from error
    target = cast(Target, opened.target)
    compiler = Path(c_compiler(target)).name if is_cross(target) else "cc"
    written = tuple(folder / file for file in files)
    return Exported(name, written, prepared.functions, prepared.lacking, compiler)


def _prepared(package: Package, name: str, options: Sequence[str] = ()) -> _Prepared | RecursivePrepared:
    if package.python:
        raise PackageError(f"runs Python code, {', '.join(map(str, package.python))}")
    if on_gpu(package.target):
        raise PackageError("was compiled for GPUs; compile the model for a CPU")
    return (RecursivePrepared if package.recursion is not None else _Prepared)(package, name, options)


class _Prepared:
    """A library to write.

    `name`: the library's name.
    `options`: further options of the compiler, such as sanitizers.
    Raises `PackageError` if C can't compute the package's outputs; the text continues a sentence that begins
    with the package.
    """

    def __init__(self, package: Package, name: str, options: Sequence[str] = ()) -> None:
        self._target, self._options = cast(Target, package.target), options
        self._objects: dict[bytes, int] = {}
        self._batches: dict[int, Batches] = {}  # by the model's number
        self._parts = [self._read(package, 0)]
        methods, lacking = methods_of(package)
        places = {0: 0}
        for number, further in enumerate(further_of(package), 1):
            try:
                if further is package.transform:
                    part = self._part(further, _rows(further))
                else:
                    part = self._read(further, len(self._parts))
            except PackageError:
                lacking += [method.name for method in methods if method.model == number]
            else:
                places[number] = len(self._parts)
                self._parts.append(part)
        methods = [replace(one, model=places[one.model]) for one in methods if one.model in places]
        if not methods or (not package.transforms and not methods[0].name.startswith("predict")):
            raise PackageError("computes its predictions in a way that libraries for C do not support")
        spec = package.input
        labels = label_names(package, methods)
        names = [*(spec.feature_names or ()), *(text for values in labels for text in values)]
        if any("\0" in column for column in names):
            raise PackageError(
                "has a column or a class whose name holds a NUL character, which ends strings in C"
            )
        codes = (
            ()
            if spec.numbers_are_categories
            else sorted(i for i, categories in spec.categories.items() if categories)
        )
        library = Library(
            name=name,
            model=f"{package.library} {package.model}",
            version=package.hbtvm_version,
            methods=methods,
            width=spec.n_features,
            rows=all(part[2] is not None for part in self._parts),
            arrow=[*self._batches],
            columns=spec.feature_names or (),
            labels=labels,
            codes=codes,
            lacking=lacking,
            features=package.target["features"] if architecture(package.target) == "x86_64" else (),
        )
        unread = [method.name for method in methods if not [*ends_of(library, method)]]
        methods = [method for method in methods if method.name not in unread]
        self._library = replace(library, methods=methods, lacking=[*lacking, *unread])
        self._row = () if self._library.rows else _row(package)
        self.functions = tuple(one.name for one in methods)
        self.lacking = (*lacking, *unread)

    def _read(self, package: Package, number: int) -> Part:
        """Return the model of a number, which may read values other than numbers from batches of Arrow."""
        rows = None
        with contextlib.suppress(PackageError):  # Arrow's refusal names what no language but Python reads
            rows = _rows(package)
        batches: Batches | None = None
        if rows is None or package.input.categories or package.input.category_order:
            first = sum(len(batches.texts) for batches in self._batches.values())
            try:
                batches = batches_of(package, first)
            except UnsupportedModel as error:
                if rows is None:
                    reason = str(error).rstrip(".")
                    raise PackageError(f"has a step without code in C: {reason}") from None
        part = self._part(package, rows)
        if batches is not None:
            self._batches[number] = batches
        return part

    def _part(self, package: Package, rows: Rows | None) -> Part:
        if not all(kernel.object for kernel in package.all_kernels):
            raise PackageError("has no object files to link; compile the model again")
        functions = [Function(1 + self._number(kernel.object)) for kernel in package.all_kernels]
        return stages_of(package, functions), described(package, row_reader(package)), rows

    def _number(self, content: bytes) -> int:
        return self._objects.setdefault(content, len(self._objects))

    def write(self, folder: Path) -> None:
        """Write all files into a folder."""
        tools = tools_of(c_compiler(self._target))
        tables = Tables()
        functions = {1 + number: kernel_name(number) for number in self._objects.values()}
        code = source(self._library, self._parts, functions, tables, self._batches)
        texts = texts_source([*self._batches.values()], tables) if self._batches else ""
        declarations = header(self._library)
        names = declared(self._library)
        parts = Parts(code, texts, declarations, bytes(tables.data), [*self._objects], names)
        build(self._library.name, parts, tools, machine_options(self._target), self._options, folder)
        (folder / f"{self._library.name}.h").write_text(declarations)
        (folder / "example.c").write_text(example(self._library, self._row))


def _rows(package: Package) -> Rows:
    if package.parts.table is not None:
        raise PackageError("transforms rows by steps that only Python computes")
    return rows_of(package, row_reader(package))


def _row(package: Package) -> list[str | int | None]:
    """Return a row: texts and known categories, zeros, and None for categories that are not texts."""
    spec, reader = package.input, row_reader(package)
    known = known_values(spec, reader if isinstance(reader, FeedReader) else None)
    row: list[str | int | None] = [None if spec.category_order else 0] * spec.n_features
    for column, values in known.items():
        texts = [value for value in values if isinstance(value, str)]
        if values:
            row[column] = next((text for text in texts if "\0" not in text), None)
            row[column] = row[column] or ("some text" if texts else None)
    return row


def write_library(package: Package, folder: Path, name: str, options: Sequence[str] = ()) -> None:
    """Write a library to an existing folder, compiled with further options, such as sanitizers."""
    _prepared(package, name, options).write(folder)


def _name(package: Package | Model | Source, name: str | None) -> str:
    if name is None:
        stem = Path(package).name.split(".")[0] if isinstance(package, str | os.PathLike) else "model"
        name = re.sub(r"[^A-Za-z0-9]+", "_", stem).strip("_")
        name = name if name[:1].isalpha() else f"model_{name}".rstrip("_")
        name = name if name not in _RESERVED else f"{name}_model"
        name = name[:64]
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise InputError(
            f"name is {name!r:.100}; expected a letter, then letters, digits and underscores, such as "
            "'churn', but not a keyword of C."
        )
    return name


def _check_folder(folder: Path, files: Sequence[str], force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder.")
    existing = [file for file in files if (folder / file).exists()]
    if existing and not force:
        raise InputError(f"{folder} has {', '.join(existing)} already; --force (force=True) replaces files.")


def _publish(built: Path, folder: Path, files: Sequence[str]) -> None:
    """Move files to their folder: all at once, or one by one if the folder exists."""
    if not folder.exists():
        os.rename(built, folder)
        return
    for file in files:
        os.replace(built / file, folder / file)
