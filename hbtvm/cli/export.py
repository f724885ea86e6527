"""``hbtvm export``: a package as a library for C, C++ and whatever has an interface to C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hbtvm.cli import files
from hbtvm.cli.arguments import examples, paragraphs
from hbtvm.cli.show import print_facts

_DESCRIPTION = """
Write a package as a library for C: libNAME.so and libNAME.a hold the whole model and need nothing but libc,
libm and threads; NAME.h tells how they are used, and example.c uses them. They compute what the package
computes in Python, bit for bit.

The header declares NAME_open and NAME_close, and for each of Python's methods (predict, predict_proba,
decision_function, transform, ...) one function for rows of float and one for rows of double. String labels
come as positions (NAME_predict_class) with their names (NAME_class_name). What reads categories, texts or
steps that no kernel computes has functions for batches of Arrow (its C data interface) beside these, or in
their place. Models may be used from several threads at once, and several libraries in one program.

Of a recursive model, functions take structures as arrays (NAME_structures), and NAME_readout gives what the
layers behind read; these arrays are those of Python's Structures.

Transformers without kernels are refused, and so are packages for GPUs, and packages of releases before this
command: compile the model again for these.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "export",
        help="write a package as a library for C",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            (
                "hbtvm export churn.tar -o lib",
                "writes libchurn.so, libchurn.a, churn.h and example.c to lib/",
            ),
            ("hbtvm export model.tar -o lib --name churn", "the same names, whatever the package is called"),
            ("hbtvm export churn.tar -o lib --force", "replaces these files"),
            ("hbtvm export sentiment.tar -o lib", "a recursive model"),
        ),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that compile or tune wrote")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="what the library is called and its functions' names begin with (default: the package's name)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there already")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    package, out = files.existing(arguments.package, "a package"), Path(arguments.out)

    from hbtvm.compiler.exporting.export import export

    made = export(package, out, arguments.name, force=arguments.force)
    facts = {one.name: f"{one} ({_size(one)})" for one in made.files}
    facts["functions"] = ", ".join(f"{made.name}_{name}" for name in made.functions)
    if made.lacking:
        facts["not in C"] = ", ".join(made.lacking)
    library = out / f"lib{made.name}.a"
    facts["build"] = f"{made.compiler} {out / 'example.c'} {library} -lm -pthread -o example"
    print_facts(facts)
    return 0


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{size / 2**10:.0f} kB"
