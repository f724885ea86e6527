"""What the commands' parsers share: kinds of arguments, and one sentence for each mistake."""

from __future__ import annotations

import argparse
import math
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from hbtvm.cli.show import fold, print_line
from hbtvm.errors import HbtvmError, InputError
from hbtvm.names import ALL_STRATEGIES, STRATEGIES
from hbtvm.runtime.trust import Trust

DEFAULT_LOG = "hbtvm-tuning.jsonl"
"""Tuning log in the current folder, so that every model tuned there learns from the others."""


_WIDEST = 100
"""Characters of a line of help, at most."""
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
"""Letters of sizes, and the power of two that each stands for."""


class UsageError(HbtvmError):
    """What was typed can't be done: a file is missing, or an output can't be written."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and where to read more.

    Options can't be abbreviated: a new option must not break what scripts say.
    """

    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", _Help)
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        print_line(f"hbtvm: error: {message}", sys.stderr)
        print_line(f"Try '{self.prog} --help'.", sys.stderr)
        self.exit(2)


class _Help(argparse.HelpFormatter):
    """Help that fits the terminal and is never broken inside a word; no wider than people read with ease."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(prog, max_help_position=30, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Descriptions and epilogs: each line is a paragraph, or a command of an example."""
        return "\n".join(
            _fold_command(line, width) if line.startswith("  hbtvm ") else fold(indent + line, width)
            for line in text.splitlines()
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return fold(" ".join(text.split()), width).split("\n")


def _fold_command(line: str, width: int) -> str:
    """Break a command line between its arguments, so that it still can be copied to a shell."""
    if len(line) <= width:
        return line
    lines = ["  hbtvm"]
    for word in shlex.split(line)[1:]:
        quoted = shlex.quote(word) if any(c in word for c in " {\"'") else word
        if len(lines[-1]) + len(quoted) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(f"      {quoted}")
        else:
            lines[-1] += f" {quoted}"
    return "\n".join(lines)


def examples(*lines: tuple[str, str], footer: str = "") -> str:
    """Write a parser's epilog.

    Parameters
    ----------
    lines
        Commands, and what each is for.
    footer
        What else there is to know.
    """
    body = "\n".join(f"  {command}\n      {meaning}" for command, meaning in lines)
    return f"examples:\n{body}\n" + (f"\n{footer}\n" if footer else "")


def paragraphs(text: str) -> str:
    """A description's paragraphs, each on one line; the parser breaks them to fit the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def whole(least: int) -> Callable[[str], int]:
    """Make the reader of a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text!r}")
        return number

    return read


def seconds(text: str) -> float:
    """Read a positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, such as 600, not {text!r}")
    return number


def size(text: str) -> int:
    """Read a number of bytes, with K, M, G or T for binary thousands."""
    number, unit = (text[:-1], text[-1:].upper()) if text[-1:].upper() in _UNITS else (text, "")
    if not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise argparse.ArgumentTypeError(f"expected a size such as 500M or 8G, not {text!r}")
    return int(number) << _UNITS.get(unit, 0)


def batch_sizes(text: str) -> tuple[int, ...]:
    """Read positive whole numbers with commas between, duplicates dropped, in rising order."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            f"expected numbers of rows of at least 1 with commas between, such as 1,100,10000, not {text!r}"
        )
    return tuple(sorted(set(sizes)))


class _BatchSizes(argparse.Action):
    """Joins the sizes of repeated options."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, tuple(sorted({*(getattr(namespace, self.dest) or ()), *values})))


def strategies(text: str) -> tuple[str, ...]:
    """Read names of strategies with commas between."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in ALL_STRATEGIES:
            known = ", ".join(ALL_STRATEGIES)
            raise argparse.ArgumentTypeError(f"there is no strategy {name!r}; there are {known}")
    return names


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Options that say what is built: of ``tune`` and ``compile``."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="file of a trained model: .pkl .joblib .json .ubj .txt .onnx; .rec of a recursive model, .pt2 "
        "of its cell",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="MODEL.tar",
        help="package to write (default: the model's name with .tar, in the current folder)",
    )
    parser.add_argument(
        "--target",
        default="cpu",
        help="what to compile for: cpu is this machine, cuda its GPU; or a TVM target as JSON "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="which of this machine's GPUs --target cuda is, such as cuda:1 (default: the first)",
    )
    parser.add_argument(
        "--batch-size",
        type=batch_sizes,
        action=_BatchSizes,
        metavar="ROWS",
        help="rows per call to be fast at, with commas between, or the option several times; each gets code "
        "of its own, and predict picks by row count; of recursive models, structures per call (default: "
        "1,100,10000; structures: 1,10)",
    )
    parser.add_argument(
        "--threads", type=whole(1), metavar="N", help="threads of a call (default: all of the machine's)"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        metavar="TYPE",
        help="type of the leaf values, and of radial kernels for float32 rows: with float32 scores are "
        "within 1e-5 of the library's, with float64 within 1e-12, and slower; rows end in the same leaves "
        "either way "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--strategy",
        type=strategies,
        metavar="NAMES",
        help=f"consider only these, with commas between: {', '.join(STRATEGIES)} (default: all that fit); "
        "recursive models have levels alone, which goes through all structures of a call level by level",
    )
    add_reading(parser)


def build_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of `add_build_options`, as keywords of `hbtvm.search` and `hbtvm.compile`."""
    return {
        "target": arguments.target,
        "device": arguments.device,
        "batch_sizes": arguments.batch_size,
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "strategies": arguments.strategy,
        "max_bytes": arguments.max_size,
    }


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Options that say which packages may be loaded; `trust_of` reads them."""
    group = parser.add_argument_group("trust", "a package is machine code, which does what its author wants")
    group.add_argument("--sha256", metavar="HEX", help="the hash that the package's file has to have")
    add_allowed_signers(group)


def add_allowed_signers(group: argparse._ArgumentGroup) -> None:
    """The option that demands signatures."""
    group.add_argument(
        "--allowed-signers",
        metavar="FILE",
        help="keys, one of which has to have signed the package, as ssh-keygen reads them; the signature is "
        "MODEL.tar.sig (ssh-keygen -Y sign -n hbtvm -f KEY MODEL.tar)",
    )


def trust_of(sha256: str | None, allowed_signers: str | None) -> Trust:
    """What a package has to be to be loaded.

    Raises
    ------
    UsageError
        If the hash is none.
    """
    try:
        return Trust(sha256, allowed_signers)
    except InputError as error:
        raise UsageError(f"--{error}".rstrip(".")) from None


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Options of reading a model file."""
    parser.add_argument(
        "--max-size",
        type=size,
        metavar="SIZE",
        help="size to which a compressed pickle may expand, such as 8G (default: 4G)",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="no longer needed, and ignored: pickles are read as data, nothing in them is run",
    )
