"""A recursive model as a library for C: constants of its description, and functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hbtvm.compiler.building.compilers import c_compiler, machine_options
from hbtvm.compiler.exporting.build import Parts, build, kernel_name
from hbtvm.compiler.exporting.constants import Constants, Recorder, Tables
from hbtvm.compiler.exporting.methods import label_names, methods_of
from hbtvm.compiler.exporting.recursive_example import example
from hbtvm.compiler.exporting.recursive_header import RecursiveLibrary, declared, header, input_names
from hbtvm.compiler.exporting.rows import row_reader, rows_of
from hbtvm.compiler.exporting.source import cpu_check, input_of, method_of, opening, preamble
from hbtvm.compiler.exporting.tools import tools_of
from hbtvm.errors import PackageError
from hbtvm.runtime.cpu import architecture
from hbtvm.runtime.host import described, stages_of
from hbtvm.runtime.native.description import model_of as rows_model_of
from hbtvm.runtime.native.library import Function
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.recursive.description import model_of, names_of
from hbtvm.schedules.workload import Target

_SYMBOL = "__tvm_ffi_"  # prefix of TVM's functions in objects


class Prepared:
    """A library to write; parameters and errors as for other models.

    `functions`, `lacking`: names of the functions that compute outputs, and of Python functions that it
    lacks.
    """

    def __init__(self, package: Package, name: str, options: Sequence[str] = ()) -> None:
        entry = package.recursion
        assert entry is not None
        self._package, self._options, self._entry = package, options, entry
        methods, lacking = methods_of(package) if package.kernels else ([], [])
        if not all(
            [kernel.object for kernel in entry.kernels] + [kernel.object for kernel in package.all_kernels]
        ):
            raise PackageError("has no object files to link; compile the model again")
        labels = label_names(package, methods)
        texts = [*(input_.name for input_ in entry.inputs), *(text for values in labels for text in values)]
        if any("\0" in text for text in texts):
            raise PackageError(
                "has an input or a class whose name holds a NUL character, which ends strings in C"
            )
        self._objects = list(dict.fromkeys(kernel.object for kernel in entry.kernels))
        self._heads = list(dict.fromkeys(kernel.object for kernel in package.all_kernels))
        self._library = RecursiveLibrary(
            name=name,
            model=package.model,
            version=package.hbtvm_version,
            entry=entry,
            methods=methods,
            labels=labels[0] if labels else (),
            lacking=lacking,
            features=package.target["features"] if architecture(package.target) == "x86_64" else (),
        )
        self.functions = tuple(output for output, _, _ in self._library.outputs)
        self.lacking = tuple(lacking)

    def write(self, folder: Path) -> None:
        """Write all files into a folder."""
        library, target = self._library, cast(Target, self._package.target)
        tools, tables = tools_of(c_compiler(target)), Tables()
        code = self._source(tables)
        declarations = header(library)
        sources = [
            (content, {f"{_SYMBOL}{symbol}": _name(number, symbol) for symbol in self._names(content)})
            for number, content in enumerate(self._objects)
        ]
        parts = Parts(
            code, "", declarations, bytes(tables.data), self._heads, declared(library), recursive=sources
        )
        build(library.name, parts, tools, machine_options(target), self._options, folder)
        (folder / f"{library.name}.h").write_text(declarations)
        (folder / "example.c").write_text(example(library))

    def _names(self, content: bytes) -> list[str]:
        """Return the functions of an object that steps call."""
        lists = (names_of(kernel) for kernel in self._entry.kernels if kernel.object == content)
        return list(dict.fromkeys(name for names in lists for name in names))

    def _source(self, tables: Tables) -> str:
        """Return the C file."""
        entry, library = self._entry, self._library
        known: dict[int, str] = {}

        def function(name: str) -> Function:
            # A placeholder for the address.
            at = next((at for at, known_name in known.items() if known_name == name), len(known) + 1)
            known[at] = name
            return Function(at)

        recursive = []
        for kernel in entry.kernels:
            number = self._objects.index(kernel.object)
            recursive.append({name: function(_name(number, name)) for name in names_of(kernel)})
        heads = [
            function(kernel_name(self._heads.index(kernel.object))) for kernel in self._package.all_kernels
        ]
        constants, kept = Constants(tables, known), Recorder()
        model = constants.structure(model_of(kept, entry, recursive), kept)
        behind = ""
        if self._package.kernels:
            reader, kept = row_reader(self._package), Recorder()
            stages = stages_of(self._package, heads)
            layers = constants.structure(rows_model_of(kept, stages, described(self._package, reader)), kept)
            rows = input_of(constants, rows_of(self._package, reader))
            behind = f", .behind = {{.count = 1, .models = {{{layers}}}, .inputs = {{{rows}}}}}"
        exported = constants.define("struct exported_recursive", f"{{.model = {model}{behind}}}")
        methods = {method.name: f"&{method_of(constants, method)}" for method in library.methods}
        labels = constants.texts(library.labels) if library.labels else ""
        body = [
            cpu_check(library.name, library.features),
            opening(library.name, exported, "_recursive"),
            _run(library),
            *(_function(library.name, name, kind, methods.get(name)) for name, kind, _ in library.outputs),
            *([_labels(library, labels)] if labels else []),
        ]
        head = [
            *preamble(library.name, ["exported/recursive.h"]),
            *(f"extern kernel_function {name};" for name in known.values()),
            "",
        ]
        return "\n".join([*head, *constants.lines, "", *body]) + "\n"


def _name(number: int, function: str) -> str:
    """Return the library's name of a function of a recursive model's kernels."""
    return f"hbtvm_recursive_{number}_{function}"


def _run(library: RecursiveLibrary) -> str:
    """Return the C function that all functions of outputs call."""
    name = library.name
    names = input_names(library.entry)
    fields = ", ".join(f"given ? given->{input_} : NULL" for input_ in names) or "NULL"
    return f"""static int run(const {name}_model *model, const struct method *method,
    const {name}_structures *given, void *out, int64_t *results, int threads, {name}_error *error) {{
  const void *const inputs[] = {{{fields}}};
  struct recursive_batch batch = {{.inputs = inputs}};
  if (given) {{
    batch.structures = given->structures;
    batch.nodes = given->nodes;
    batch.edges = given->edges;
    batch.starts = given->starts;
    batch.first = given->first;
    batch.child = given->child;
  }}
  struct exported_place place;
  int code = exported_recursive_run(model ? &model->opened : NULL, method, given ? &batch : NULL, out,
                                    results, threads, &place);
  if (error) *error = ({name}_error){{place.code, place.structure, place.node, place.input}};
  return code;
}}
"""


def _function(name: str, output: str, kind: str, method: str | None) -> str:
    return f"""int {name}_{output}(const {name}_model *model, const {name}_structures *structures,
    {kind} *out, int64_t *results, int threads, {name}_error *error) {{
  return run(model, {method or "NULL"}, structures, out, results, threads, error);
}}
"""


def _labels(library: RecursiveLibrary, labels: str) -> str:
    name, count = library.name, len(library.labels)
    return f"""int64_t {name}_classes(void) {{ return {count}; }}

const char *{name}_class_name(int64_t position) {{
  return position < 0 || position >= {count} ? NULL : {labels}[position];
}}
"""
