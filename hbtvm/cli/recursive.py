"""What the commands share about recursive models: options, reading the model, and samples of structures."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError

if TYPE_CHECKING:
    from hbtvm.cli.words_in import Taken
    from hbtvm.recursive.model import Model
    from hbtvm.runtime.recursive.structures import Structures
    from hbtvm.runtime.recursive.vocabulary import Vocabulary

Over = Literal["roots", "nodes", "total", "mean", "most"]
_READ = ("roots", "nodes", "total", "mean", "most")
_CELL = {
    "children": None, "state": ("h",), "inputs": None, "optional": (), "reduce": None, "apart": False,
    "leaf": None, "readout": None,
}  # fmt: skip
"""Options of `add_cell_options`, and what they are if left out."""

_MOST_SAMPLED = 100_000
"""Nodes of a sample that are read; what comes behind is left out."""


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """Options that say how a ``.pt2`` file is the cell of a recursive model."""
    group = parser.add_argument_group(
        "cells (.pt2)",
        "how the module that torch.export.save wrote computes a node of a tree, graph or sequence; .rec "
        "files know",
    )
    group.add_argument(
        "--children", type=_children, metavar="N", help="places for a node's children; any for any number"
    )
    group.add_argument(
        "--state",
        type=_names,
        default=_CELL["state"],
        metavar="NAMES",
        help="the module's results, a node's states, with commas between (default: h)",
    )
    group.add_argument(
        "--inputs",
        type=_names,
        metavar="NAMES",
        help="names for the module's arguments behind the children's states (default: its own)",
    )
    group.add_argument(
        "--optional",
        type=_names,
        default=_CELL["optional"],
        metavar="NAMES",
        help="inputs of numbers that nodes may come without, which are then rows of zeros",
    )
    group.add_argument(
        "--reduce",
        choices=("sum", "max"),
        metavar="HOW",
        help="the module takes the sum or the maximum of the children's states: sum or max",
    )
    group.add_argument(
        "--apart", action="store_true", help="the module takes each child's state as an argument of its own"
    )
    group.add_argument("--leaf", metavar="LEAF.pt2", help="another module for nodes without children")
    group.add_argument(
        "--readout",
        type=_readout,
        metavar="NODES:STATE",
        help="what is predicted: a state of nodes that are nobody's child (roots:h), of all nodes (nodes:h), "
        "or over a structure's nodes (total:h, mean:h, most:h) (default: that of roots, of the first state)",
    )


def add_structure_options(parser: argparse.ArgumentParser, sample: bool) -> None:
    """Options of reading structures; `sample`: those to tune on."""
    group = parser.add_argument_group(
        "structures", "for recursive models, whose rows are trees, graphs or sequences"
    )
    if sample:
        group.add_argument(
            "--sample",
            metavar="FILE",
            help="structures such as the model will get, to measure on, in any format that hbtvm predict "
            "reads (default: random ones)",
        )
    kept = "; the package keeps them" if sample else " (default: those that the package knows)"
    group.add_argument(
        "--vocabulary",
        metavar="WORDS.txt",
        help=f"words of the structures, one in a line; a word's number is that of its line, from 0{kept}",
    )
    group.add_argument(
        "--unknown",
        default="error",
        metavar="WORD",
        help="which of these words stands for those that are not there (default: error, they are refused)",
    )
    group.add_argument(
        "--labels",
        choices=("none", "drop", "words"),
        metavar="HOW",
        help="what stands behind an opening bracket of text: none, only children; drop, a label to leave "
        "out, as in treebanks, (3 (2 It) (4 works)); words, the node's own word (default: as the package "
        "knows, else none)",
    )


def model_of(arguments: argparse.Namespace, path: str) -> Model | None:
    """The recursive model in a file; None if it is another kind of model.

    Raises
    ------
    UsageError
        If options don't go with the file.
    ModelError
        If it is damaged, or no cell of the kind that options say.
    """
    from hbtvm.frontends.files import recursive_kind

    kind = recursive_kind(path)
    if kind != "pt2":
        refuse_cell(arguments, path)
        if kind is None:
            return None
        from hbtvm.recursive.model import load

        return load(path)
    if arguments.children is None:
        raise UsageError(
            f"{path}: this is a module that torch exported; say how many children a node has, such as "
            "--children 2, or --children any"
        )
    if arguments.leaf is not None:
        files.existing(arguments.leaf, "a .pt2 file")
    from hbtvm.recursive.cell import Readout
    from hbtvm.recursive.model import Model
    from hbtvm.recursive.pt2 import read_pt2

    cell = read_pt2(
        path,
        children=arguments.children or None,
        state=arguments.state,
        inputs=arguments.inputs,
        reduce=arguments.reduce,
        apart=arguments.apart or None,
        leaf=arguments.leaf,
        optional=arguments.optional,
    )
    over, state = arguments.readout or ("roots", arguments.state[0])
    if state not in cell.states:
        raise UsageError(f"--readout {over}:{state}: the states are {', '.join(cell.states)}")
    return Model(cell, readout=Readout(state, cast(Over, over)))


def refuse_cell(arguments: argparse.Namespace, path: str) -> None:
    """Raise an error if something is said of a ``.pt2`` file, which this is not."""
    given = [name for name, usual in _CELL.items() if getattr(arguments, name) != usual]
    if given:
        raise UsageError(f"{path}: --{given[0]} is of .pt2 files, which this is not")


def with_words(arguments: argparse.Namespace, model: Model | None) -> Model | None:
    """The model with the words that options tell of, in place of its own."""
    if model is None:
        return None
    vocabulary = vocabulary_of(arguments, model.cell.inputs, model.vocabulary)
    if vocabulary is model.vocabulary:
        return model
    return type(model)(
        model.cell, readout=model.readout, layers=model.layers, classes=model.classes, vocabulary=vocabulary
    )


def data_name(model: Model | None) -> str:
    """What a file to predict may be called, in advice."""
    if model is None:
        return "DATA.csv"
    inputs = model.cell.inputs.values()
    return "STRUCTURES.txt" if [one.kind for one in inputs] == ["number"] else "STRUCTURES.jsonl"


def options_of(arguments: argparse.Namespace, model: Model | None) -> dict[str, Any]:
    """What `hbtvm.search` and `hbtvm.compile` are told of structures."""
    if model is None:
        refuse_structures(arguments, f"{arguments.model} is no recursive model, so it has no structures")
        return {}
    if arguments.sample is None:
        if arguments.labels is not None and model.vocabulary is None:
            raise UsageError(f"--labels {arguments.labels}: there is neither a --sample nor a --vocabulary")
        return {}
    return {"sample": sample_of(arguments, model)}


def refuse_structures(arguments: argparse.Namespace, why: str) -> None:
    """Raise an error if something is said of structures, where there are none."""
    usual = {"sample": None, "vocabulary": None, "unknown": "error", "labels": None}
    for name, default in usual.items():
        if getattr(arguments, name, default) != default:
            raise UsageError(f"--{name}: {why}")


def sample_of(arguments: argparse.Namespace, model: Model) -> Structures:
    """Structures to measure on, from the beginning of a file.

    Raises
    ------
    UsageError, InputError
        If they can't be read; it names file, line or structure, and node.
    """
    from hbtvm.cli.structures_in import StructureFile, joined

    path = files.existing(arguments.sample, "structures")
    blocks = []
    nodes = 0
    cell = model.cell
    for block in StructureFile(path, cell.children, cell.inputs, model.vocabulary, arguments.labels).blocks():
        blocks.append(block.structures)
        nodes += len(block.structures.first) - 1
        if nodes >= _MOST_SAMPLED:
            break
    if not nodes:
        raise UsageError(f"{path}: there are no structures to measure on")
    return joined(blocks)


def vocabulary_of(
    arguments: argparse.Namespace, inputs: Mapping[str, Taken], known: Vocabulary | None
) -> Vocabulary | None:
    """The words that options tell of, else those that are known.

    Raises
    ------
    UsageError
        If the file of words can't be read or does not fit, or options tell of words that are not there.
    """
    unknown, labels = arguments.unknown, arguments.labels
    if arguments.vocabulary is not None:
        from hbtvm.cli.words_in import read_vocabulary

        path = str(files.existing(arguments.vocabulary, "a file of words"))
        return read_vocabulary(path, unknown, labels or "none", inputs)
    if known is None:
        if unknown != "error":
            raise UsageError(f"--unknown {unknown}: without --vocabulary there are no words")
        return None
    if unknown != "error":
        if unknown not in known.numbers:
            raise UsageError(f"--unknown {unknown}: the model knows no such word")
        known = replace(known, unknown=known.numbers[unknown])
    return known if labels is None else replace(known, labels=labels)


def _children(text: str) -> int:
    """Read a number of children; 0 for any."""
    if text == "any":
        return 0
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number of children, such as 2, or any, not {text!r}")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"expected names with commas between, such as h,c, not {text!r}")
    return names


def _readout(text: str) -> tuple[str, str]:
    over, _, state = text.partition(":")
    if over not in _READ or not state:
        raise argparse.ArgumentTypeError(
            f"expected one of {', '.join(_READ)} and a state, such as roots:h, not {text!r}"
        )
    return over, state
