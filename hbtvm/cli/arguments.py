"""Arguments that several commands share, and one sentence for each mistake."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli.parser import Parser
from hbtvm.errors import HbtvmError, InputError
from hbtvm.runtime.package.trust import Trust
from hbtvm.words.names import ALL_STRATEGIES, STRATEGIES
from hbtvm.words.similar import did_you_mean

if TYPE_CHECKING:
    from hbtvm.runtime.model import Model

DEFAULT_LOG = "hbtvm-tuning.jsonl"
"""The default tuning log, in the current folder: models tuned there learn from each other."""

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}  # powers of two of the units of sizes

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}  # seconds of the units of durations


class UsageError(HbtvmError):
    """The command line can't be run: a file is missing, or an output can't be written."""


def examples(*lines: tuple[str, str], footer: str = "") -> str:
    """Return a parser's epilog: commands with their purposes, and a footer."""
    body = "\n".join(f"  {command}\n      {meaning}" for command, meaning in lines)
    return f"examples:\n{body}\n" + (f"\n{footer}\n" if footer else "")


def paragraphs(text: str) -> str:
    """Join each paragraph of a description into a line, for the parser to fold."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""

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
    """Parse a positive duration: seconds, or numbers with units, such as ``30s``, ``5m`` or ``1h30m``."""
    parts = re.findall(r"([0-9.]+)([smhd])", text)
    try:
        if "".join(map("".join, parts)) == text:
            number = sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
        else:
            number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a time above 0, such as 600 (seconds), 30s, 5m or 2h, not {text!r}"
        )
    return number


def delimiter(text: str) -> str:
    """Parse the character between the fields of a line."""
    character = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(character) != 1 or character in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected a character such as ';', or tab, not {text!r}")
    return character


def names(text: str) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(text.split(","))


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a .csv file is written."""
    parser.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        metavar="WHEN",
        help="whether the first line of a .csv holds column names: yes, no or auto, which looks at the line "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--delimiter",
        type=delimiter,
        metavar="CHAR",
        help="character between the fields of a .csv, such as ';', or tab (default: a comma; a tab in .tsv)",
    )
    parser.add_argument(
        "--na",
        type=names,
        default=(),
        metavar="WORDS",
        help="fields of a .csv that are missing values, as empty fields are, such as NA,null",
    )


def size(text: str) -> int:
    """Parse a number of bytes, with the binary units K, M, G and T."""
    number, unit = (text[:-1], text[-1:].upper()) if text[-1:].upper() in _UNITS else (text, "")
    if not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise argparse.ArgumentTypeError(f"expected a size such as 500M or 8G, not {text!r}")
    return int(number) << _UNITS.get(unit, 0)


def batch_sizes(text: str) -> tuple[int, ...]:
    """Parse comma-separated positive whole numbers; sorted, without duplicates."""
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
    """Parse comma-separated names of strategies."""
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in chosen:
        if name not in ALL_STRATEGIES:
            known = ", ".join(ALL_STRATEGIES) + did_you_mean(name, ALL_STRATEGIES)
            raise argparse.ArgumentTypeError(f"there is no strategy {name!r}; there are {known}")
    return chosen


def add_build_options(parser: Parser) -> None:
    """Add the options of ``tune`` and ``compile`` that say what to build."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="file of a trained model: .pkl .joblib .skops .json .ubj .txt .cbm .onnx; a folder of MLflow, "
        "Spark or YDF; a recursive model (.rec) or its cell (.pt2)",
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
        help="what to compile for: cpu for this machine, cuda or opencl for its GPU, or a TVM target as JSON "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="this machine's GPU for --target cuda or opencl, such as cuda:1 (default: the first)",
    )
    parser.add_argument(
        "--batch-size",
        type=batch_sizes,
        action=_BatchSizes,
        metavar="ROWS",
        help="rows per call to optimise for, comma-separated or repeated; each size gets its own code, and "
        "predict picks by row count; for recursive models, structures per call (default: 1,100,10000; "
        "structures: 1,10)",
    )
    parser.add_argument(
        "--threads", type=whole(1), metavar="N", help="threads of a call (default: all of the machine's)"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        metavar="TYPE",
        help="type of leaf values, and of radial kernels for float32 rows: float32 scores are within 1e-5 of "
        "the library's, float64 scores within 1e-12, and slower; rows reach the same leaves with both "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also package contributions of columns (hbtvm explain), the leaf of each tree and each tree's "
        "scores (Model.apply, Model.predict_per_tree); predictions stay as fast",
    )
    group = parser.add_rare_group("details")
    group.add_argument(
        "--strategy",
        type=strategies,
        metavar="NAMES",
        help=f"strategies to consider, comma-separated: {', '.join(STRATEGIES)} (default: all that support "
        "the model); recursive models have only levels, which processes all structures of a call level by "
        "level",
    )
    add_reading(group)


def build_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of `add_build_options` as keywords of `hbtvm.search` and `hbtvm.compile`."""
    return {
        "target": arguments.target,
        "device": arguments.device,
        "batch_sizes": arguments.batch_size,
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "strategies": arguments.strategy,
        "max_bytes": arguments.max_size,
        "explain": arguments.explain,
    }


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the options that restrict which packages are loaded; `trust_of` reads them."""
    group = parser.add_argument_group("trust", "a package is machine code, which does what its author wants")
    group.add_argument("--sha256", metavar="HEX", help="required hash of the package's file")
    add_allowed_signers(group)


def add_allowed_signers(group: argparse._ArgumentGroup) -> None:
    """Add the option that requires signatures."""
    group.add_argument(
        "--allowed-signers",
        metavar="FILE",
        help="file of ssh-keygen's allowed signers, one of which must have signed the package; the signature "
        "is MODEL.tar.sig (ssh-keygen -Y sign -n hbtvm -f KEY MODEL.tar)",
    )


def trust_of(sha256: str | None, allowed_signers: str | None) -> Trust:
    """Return the requirements of packages; raises a `UsageError` if the hash is malformed."""
    try:
        return Trust(sha256, allowed_signers)
    except InputError as error:
        raise UsageError(f"--{error}".rstrip(".")) from None


def loaded(package: Path, trust: Trust, threads: int | None, device: str | None = None) -> Model:
    """Return the model of a package; errors and parameters as of `hbtvm.load`."""
    from hbtvm.runtime.model import load

    return load(package, threads, device, sha256=trust.sha256, allowed_signers=trust.allowed_signers)


def add_reading(parser: argparse._ActionsContainer) -> None:
    """Add the options of reading a model file."""
    parser.add_argument(
        "--max-size",
        type=size,
        metavar="SIZE",
        help="largest size of an expanded compressed pickle, such as 8G (default: 4G)",
    )
