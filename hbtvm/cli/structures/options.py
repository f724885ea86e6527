"""Options, models and samples of structures of recursive models, for several commands."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.parser import Parser

if TYPE_CHECKING:
    from hbtvm.recursive.model import Model
    from hbtvm.recursive.records.words import NodeInput
    from hbtvm.runtime.recursive.structures import Structures
    from hbtvm.runtime.recursive.vocabulary import Vocabulary

Over = Literal["roots", "nodes", "total", "mean", "most"]
_READ = ("roots", "nodes", "total", "mean", "most")
_CELL = {
    "children": None, "state": ("h",), "inputs": None, "optional": (), "reduce": None, "apart": False,
    "leaf": None, "readout": None,
}  # fmt: skip
"""Defaults of `add_cell_options`."""

_MOST_SAMPLED = 100_000  # most nodes of a sample; the rest of the file is not read


def add_cell_options(parser: Parser) -> None:
    """Add the options that describe a ``.pt2`` file as the cell of a recursive model."""
    group = parser.add_rare_group(
        "cells (.pt2)",
        "how a module that torch.export.save wrote computes a node of a tree, graph or sequence; .rec "
        "files include this",
    )
    group.add_argument("--children", type=_children, metavar="N", help="most children of a node, or any")
    group.add_argument(
        "--state",
        type=_names,
        default=_CELL["state"],
        metavar="NAMES",
        help="names of the module's results, a node's states, comma-separated (default: h)",
    )
    group.add_argument(
        "--inputs",
        type=_names,
        metavar="NAMES",
        help="names of the module's arguments after the children's states (default: the module's)",
    )
    group.add_argument(
        "--optional",
        type=_names,
        default=_CELL["optional"],
        metavar="NAMES",
        help="numeric inputs that nodes may lack, which are then zeros",
    )
    group.add_argument(
        "--reduce",
        choices=("sum", "max"),
        metavar="HOW",
        help="the module takes the children's states reduced by sum or max",
    )
    group.add_argument(
        "--apart", action="store_true", help="the module takes each child's state as a separate argument"
    )
    group.add_argument("--leaf", metavar="LEAF.pt2", help="another module for nodes without children")
    group.add_argument(
        "--readout",
        type=_readout,
        metavar="NODES:STATE",
        help="prediction: a state of the roots (roots:h), of all nodes (nodes:h), or over a "
        "structure's nodes (total:h, mean:h, most:h) (default: the roots' first state)",
    )


def add_structure_options(parser: Parser, sample: bool) -> argparse._ArgumentGroup:
    """Add the options of reading structures, and return their group; `sample` adds those to tune on."""
    group = parser.add_rare_group(
        "structures", "for recursive models, whose rows are trees, graphs or sequences"
    )
    if sample:
        group.add_argument(
            "--sample",
            metavar="FILE",
            help="typical structures to measure on, in any format of hbtvm predict (default: random)",
        )
    kept = "; the package keeps them" if sample else " (default: the package's words)"
    group.add_argument(
        "--vocabulary",
        metavar="WORDS.txt",
        help=f"words of the structures, one per line; a word's number is its line, from 0{kept}",
    )
    group.add_argument(
        "--unknown",
        default="error",
        metavar="WORD",
        help="the word that replaces unknown words (default: error, which refuses them)",
    )
    group.add_argument(
        "--labels",
        choices=("none", "drop", "words"),
        metavar="HOW",
        help="what follows an opening bracket of text: none (only children), drop (a label to ignore, as in "
        "treebanks, (3 (2 It) (4 works))) or words (the node's word) (default: the package's, else none)",
    )
    return group


def model_of(arguments: argparse.Namespace, path: str) -> Model | None:
    """Return the recursive model in a file; None for other models.

    Raises `UsageError` if the options don't fit the file. Raises `ModelError` if the file is damaged, or not
    such a cell.
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
    from hbtvm.recursive.torch_modules.pt2 import read_pt2

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
    """Raise a `UsageError` if an option for ``.pt2`` files is set."""
    options = [name for name, usual in _CELL.items() if getattr(arguments, name) != usual]
    if options:
        raise UsageError(f"{path}: --{options[0]} needs a .pt2 file")


def with_words(arguments: argparse.Namespace, model: Model | None) -> Model | None:
    """Return the model with the vocabulary of the options."""
    if model is None:
        return None
    vocabulary = vocabulary_of(arguments, model.cell.inputs, model.vocabulary)
    if vocabulary is model.vocabulary:
        return model
    return type(model)(
        model.cell, readout=model.readout, layers=model.layers, classes=model.classes, vocabulary=vocabulary
    )


def data_name(model: Model | None) -> str:
    """Return an example name of a file to predict."""
    if model is None:
        return "DATA.csv"
    inputs = model.cell.inputs.values()
    return "STRUCTURES.txt" if [item.kind for item in inputs] == ["number"] else "STRUCTURES.jsonl"


def options_of(arguments: argparse.Namespace, model: Model | None) -> dict[str, Any]:
    """Return the keywords of `hbtvm.search` and `hbtvm.compile` about structures."""
    if model is None:
        refuse_structures(arguments, f"{arguments.model} is not a recursive model, so it has no structures")
        return {}
    if arguments.sample is None:
        if arguments.labels is not None and model.vocabulary is None:
            raise UsageError(f"--labels {arguments.labels}: there is neither a --sample nor a --vocabulary")
        return {}
    return {"sample": sample_of(arguments, model)}


def refuse_structures(arguments: argparse.Namespace, why: str) -> None:
    """Raise a `UsageError` if an option for structures is set."""
    usual = {"sample": None, "vocabulary": None, "unknown": "error", "labels": None}
    for name, default in usual.items():
        if getattr(arguments, name, default) != default:
            raise UsageError(f"--{name}: {why}")


def sample_of(arguments: argparse.Namespace, model: Model) -> Structures:
    """Read structures to measure on from the beginning of a file; errors name the place."""
    from hbtvm.cli.structures.structures_in import StructureFile, joined

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
    arguments: argparse.Namespace, inputs: Mapping[str, NodeInput], known: Vocabulary | None
) -> Vocabulary | None:
    """Return the vocabulary of the options, else the known one.

    Raises `UsageError` if the file of words can't be read or does not fit, or an option names an unknown
    word.
    """
    unknown, labels = arguments.unknown, arguments.labels
    if arguments.vocabulary is not None:
        from hbtvm.cli.structures.words_in import read_vocabulary

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
    """Parse a number of children; 0 for any."""
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
