"""``hbtvm export``: write a package as a library for C, and for languages that call C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hbtvm.cli import files
from hbtvm.cli.arguments import examples, paragraphs
from hbtvm.cli.show import print_facts

_DESCRIPTION = """
Write a package as a library for C: libNAME.so and libNAME.a hold the whole model and need only libc, libm
and threads; NAME.h documents them, and example.c uses them. Results equal the package's in Python, bit for
bit.

The header declares NAME_open, NAME_close, and for each Python method (predict, predict_proba,
decision_function, transform, contributions, ...) a function for rows of float and one for rows of double.
String labels are positions (NAME_predict_class) with names (NAME_class_name). Models that read categories
or texts, or have steps without a kernel, have functions for Arrow batches (its C data interface), too or
instead. A model may be used from several threads, and a program may use several libraries.

For a recursive model, functions take structures as arrays (NAME_structures), laid out like Python's
Structures, and NAME_readout returns the input of the layers behind the recursion.

Transformers without kernels and packages for GPUs are refused.
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
            ("hbtvm export model.tar -o lib --name churn", "with the name churn instead of the package's"),
            ("hbtvm export churn.tar -o lib --force", "replaces these files"),
            ("hbtvm export sentiment.tar -o lib", "a recursive model"),
        ),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that compile or tune wrote")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of the library, and prefix of its functions (default: the package's name)",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    package, out = files.existing(arguments.package, "a package"), Path(arguments.out)

    from hbtvm.compiler.exporting.export import export

    made = export(package, out, arguments.name, force=arguments.force)
    facts = {path.name: f"{path} ({_size(path)})" for path in made.files}
    facts["functions"] = ", ".join(f"{made.name}_{name}" for name in made.functions)
    if made.lacking:
        facts["not in C"] = ", ".join(made.lacking)
    archive = out / f"lib{made.name}.a"
    facts["build"] = f"{made.compiler} {out / 'example.c'} {archive} -lm -pthread -o example"
    print_facts(facts)
    return 0


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{size / 2**10:.0f} kB"
