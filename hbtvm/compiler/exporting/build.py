"""Build a library from its source, the executor's, its tables and the objects of its kernels.

One object holds everything and exports only the header's functions, so that a program can link several
libraries. The static library holds that object, and the shared library is linked from it.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.compiler.exporting.tools import Tools, run
from hbtvm.runtime.native.objects.build import EXECUTOR, OPTIONS, RECURSIVE, SOURCES, compiled_once

_EXECUTOR = (*EXECUTOR, "exported/exported.c", "kernels/workspace.c")
_ARROW = (
    "exported/arrow.c",
    "text/text.c",
    *sorted(f"arrow/{path.name}" for path in (SOURCES / "arrow").glob("*.c")),
)
"""Sources of the reader of Arrow batches."""

_STRUCTURES = (*RECURSIVE, "exported/recursive.c")  # sources of the executor of recursive models

_MAIN = "__tvm_ffi_main"
_SCRATCH = ("__TVMBackendAllocWorkspace", "__TVMBackendFreeWorkspace")
"""Functions that kernels define weakly, and `workspace.c` strongly."""

_TABLES = """\
.section .rodata.hbtvm_tables,"a"
.globl hbtvm_tables
.hidden hbtvm_tables
.balign 64
hbtvm_tables:
.incbin "tables.bin"
.byte 0
.section .note.GNU-stack,"",%progbits
"""


@dataclass(frozen=True)
class Parts:
    """The parts of a library."""

    # `source`, `texts`, `header`: its C file, that of constants for texts (empty if it reads no batches), and
    # the header
    source: str
    texts: str
    header: str
    tables: bytes  # the kernels' tables
    kernels: Sequence[bytes]  # objects, in the order of their numbers
    names: Sequence[str]  # names of the functions that the header declares
    # Objects of a recursive model's kernels, and their functions' names in the library by original name; None
    # for other models
    recursive: Sequence[tuple[bytes, Mapping[str, str]]] | None = None


def kernel_name(number: int) -> str:
    """Return the name of a kernel's function in a library."""
    return f"hbtvm_kernel_{number}"


def build(
    name: str,
    parts: Parts,
    tools: Tools,
    machine: Sequence[str],
    options: Sequence[str],
    into: Path,
) -> None:
    """Write ``libNAME.a`` and ``libNAME.so`` into a folder.

    Raises `BuildError` if the compiler fails, or kernels need a function that no C library has.

    `name`: the library's name.
    `parts`: its parts, besides the executor.
    `machine`: options for the instruction sets.
    `options`: further options of the compiler, such as sanitizers.
    """
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as place:
        folder = Path(place)
        (folder / f"{name}.h").write_text(parts.header)
        (folder / f"{name}.c").write_text(parts.source)
        (folder / "tables.bin").write_bytes(parts.tables)
        (folder / "tables.s").write_text(_TABLES)
        command = [tools.compiler, *OPTIONS, "-fvisibility=hidden", *options, f"-I{SOURCES}", "-I."]
        # The check for these instruction sets must not use them.
        run([*command, "-c", f"{name}.c", "-o", "model.o"], "compile the model", folder)
        run([tools.compiler, "-c", "tables.s", "-o", "tables.o"], "assemble the tables", folder)
        objects = ["model.o", "tables.o"]
        more = () if parts.recursive is None else _STRUCTURES
        names = [*_EXECUTOR, *(_ARROW if parts.texts else ()), *more]
        if parts.texts:
            (folder / "texts.c").write_text(parts.texts)
            run([*command, "-c", "texts.c", "-o", "texts.o"], "compile constants for texts", folder)
            objects.append("texts.o")
        for content in _compiled(tools.compiler, names, (*machine, *options)):
            objects.append(f"part{len(objects)}.o")
            (folder / objects[-1]).write_bytes(content)
        for number, content in enumerate(parts.kernels):
            objects.append(f"kernel{number}.o")
            (folder / objects[-1]).write_bytes(content)
            _rename(tools, objects[-1], {_MAIN: kernel_name(number)}, folder)
        for number, (content, renamed) in enumerate(parts.recursive or ()):
            objects.append(f"recursive{number}.o")
            (folder / objects[-1]).write_bytes(content)
            _rename(tools, objects[-1], renamed, folder)
        whole = "whole.o"
        run(
            [tools.compiler, "-r", "-nostdlib", "-Wl,--strip-debug", *objects, "-o", whole],
            "link the model",
            folder,
        )
        (folder / "names").write_text("\n".join(parts.names) + "\n")
        run([tools.objcopy, "--keep-global-symbols=names", whole, f"{name}.o"], "hide functions", folder)
        _shared(name, parts.names, tools, options, folder)
        run([tools.ar, "rcsD", f"lib{name}.a", f"{name}.o"], "write the static library", folder)
        for library in (f"lib{name}.a", f"lib{name}.so"):
            (into / library).write_bytes((folder / library).read_bytes())


def _rename(tools: Tools, name: str, names: Mapping[str, str], folder: Path) -> None:
    """Rename an object's functions, and hide all other symbols except scratch memory's."""
    kept = [f"--keep-global-symbol={symbol}" for symbol in (*names.values(), *_SCRATCH)]
    renamed = [f"--redefine-sym={old}={new}" for old, new in names.items()]
    run([tools.objcopy, *renamed, name], "name a kernel", folder)
    run([tools.objcopy, *kept, name], "name a kernel", folder)


def _shared(name: str, names: Sequence[str], tools: Tools, options: Sequence[str], folder: Path) -> None:
    listed = "".join(f"    {symbol};\n" for symbol in names)
    (folder / "versions").write_text(f"{name}_1.0 {{\n  global:\n{listed}  local: *;\n}};\n")
    checked = [] if any(option.startswith("-fsanitize") for option in options) else ["-Wl,-z,defs"]
    command = [
        tools.compiler, "-shared", *options, f"{name}.o", "-o", f"lib{name}.so",
        f"-Wl,-soname,lib{name}.so", "-Wl,--version-script=versions", "-Wl,-z,relro", "-Wl,-z,now",
        "-Wl,-z,noexecstack", "-Wl,--as-needed", *checked, "-lm", "-pthread",
    ]  # fmt: skip
    run(command, "link the shared library", folder)


def _compiled(compiler: str, names: Sequence[str], options: tuple[str, ...]) -> list[bytes]:
    flags = (*OPTIONS, "-fvisibility=hidden", *options, "-c")
    return [_object(compiler, name, flags) for name in names]


@functools.cache
def _object(compiler: str, name: str, options: tuple[str, ...]) -> bytes:
    """Return an object that all libraries have, compiled once for all processes."""
    return compiled_once(compiler, [name], options)
