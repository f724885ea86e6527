"""``hbtvm inspect``: describe a package or a model file."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, add_reading, add_trust, examples, paragraphs, trust_of
from hbtvm.cli.show import print_facts, print_json, print_line, print_table
from hbtvm.cli.structures.options import add_cell_options, model_of, refuse_cell
from hbtvm.words.names import CONTAINERS

if TYPE_CHECKING:
    from hbtvm.graph.graph import Graph
    from hbtvm.graph.networks.network import Linear
    from hbtvm.graph.stages import Stage
    from hbtvm.graph.trees.ensemble import TreeEnsemble
    from hbtvm.runtime.package.file import KernelEntry
    from hbtvm.runtime.package.trust import Trust

_DESCRIPTION = """
Describe a package or a model file. A package's code is read but never run: the output has the model, the
strategy, schedule and measured times of each batch size (of the kernel, and of whole calls), the machines
that it runs on, and its SHA-256. For a
model file: its size and shape, and the strategies that support it.
"""

_KERNEL = ("rows", "dtype", "value_dtype", "strategy", "config", "threads", "parallel", "seconds")
"""Fields of kernels in the JSON output."""

_NUMBERS = (
    "rows", "structures", "kernel", "kernels", "per row", "per structure", *CONTAINERS.values(),
)  # fmt: skip
"""Headings of numeric columns."""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "inspect",
        help="describe a package or a model file",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm inspect model.tar", "a package: what was tuned, for what, and how fast it was"),
            ("hbtvm inspect model.pkl", "a model: its size, and the strategies that support it"),
            ("hbtvm inspect sentiment.rec", "a recursive model: its cell, states, inputs and weights"),
            ("hbtvm inspect cell.pt2 --children 2 --state h,c", "a torch module as a recursive model's cell"),
            ("hbtvm inspect model.tar --json", "for another program"),
        ),
    )
    parser.add_argument("path", metavar="MODEL", help="package (.tar), or file of a trained model")
    parser.add_argument("--json", action="store_true", help="write JSON")
    add_reading(parser)
    add_cell_options(parser)
    add_trust(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path = files.existing(arguments.path, "a package or a trained model")
    if path.suffix.lower() == ".tar":
        refuse_cell(arguments, str(path))
        return _package(path, arguments.json, trust_of(arguments.sha256, arguments.allowed_signers))
    if arguments.sha256 or arguments.allowed_signers:
        raise UsageError("--sha256 and --allowed-signers need a package (.tar)")
    recursive = model_of(arguments, str(path))
    if recursive is not None:
        from hbtvm.cli.structures.inspect import inspect

        return inspect(recursive, path, arguments.json)
    from hbtvm.frontends import load_model

    facts, strategies = describe(load_model(path, max_bytes=arguments.max_size))
    if arguments.json:
        print_json({"file": str(path), **facts, "strategies": strategies})
        return 0
    print_facts(
        {"file": str(path), **{name.replace("_", " "): _text(value) for name, value in facts.items()}}
    )
    print_line()
    rows = [(name, "no" if reason else "yes", reason or "") for name, reason in strategies.items()]
    print_table(("strategy", "fits", "why not"), rows)
    return 0


def describe(model: Graph) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return facts about a model, and why each strategy refuses it; None for those that support it."""
    from hbtvm.graph.columns_anchor import Columns
    from hbtvm.graph.networks.network import Linear, Network
    from hbtvm.graph.trees.ensemble import TreeEnsemble
    from hbtvm.runtime.package.summary import anchor_words
    from hbtvm.strategies import (
        Operand,
        make_forest,
        make_linear,
        make_network,
        strategies_on,
        workload_of,
    )

    anchor, spec = model.anchor, model.input
    operand: Operand | None = None
    if isinstance(anchor, TreeEnsemble):
        size, more = _tree_facts(anchor)
        operand = make_forest(anchor, "float32", "float32")
    elif isinstance(anchor, Columns):
        size, more = {"columns": anchor.n_outputs}, {}
    elif isinstance(anchor, Network):
        size, more = {"network": anchor_words(anchor.facts())["network"]}, {}
        operand = make_network(anchor, "float64")
    elif isinstance(anchor, Linear):
        size, more = _linear_facts(anchor), {}
        operand = make_linear(anchor, "float64")
    facts = {
        "library": model.library,
        "class": model.model,
        "kind": model.output.kind,
        **({"steps": [f"{name} ({kind})" for name, kind in model.steps]} if model.steps else {}),
        **({"folded": list(model.rewrites)} if model.rewrites else {}),
        **({"kernels_before": [_words(stage) for stage in model.stages]} if model.stages else {}),
        **size,
        "features": spec.n_features,
        "feature_names": None if spec.feature_names is None else list(spec.feature_names),
        **more,
        "missing_values": _takes(model, "allow_nan"),
        "infinite_values": _takes(model, "allow_inf"),
        "compares_in": anchor.compare_dtype,
        "outputs": anchor.n_outputs,
        "classes": [labels.tolist() for labels in model.output.classes],
        "predicts": [
            "predict",
            *model.output.outputs,
            *(["transform"] if model.transform is not None else []),
        ],
    }
    if operand is None:
        return facts, {}
    workload = workload_of(operand, 1)
    strategies = strategies_on({"kind": "llvm"}, operand.family)
    return facts, {name: strategy.refuse(workload) for name, strategy in strategies.items()}


def _words(stage: Stage) -> str:
    """Describe a kernel that runs before the last one."""
    from hbtvm.runtime.package.file import anchor_facts
    from hbtvm.runtime.package.summary import anchor_words

    return "; ".join(f"{name}: {text}" for name, text in anchor_words(anchor_facts(stage.anchor)).items())


def _takes(model: Graph, name: str) -> bool:
    """Whether a numeric column may have NaN (``allow_nan``) or infinities (``allow_inf``)."""
    numbers = [feed for feed in model.feeds if feed.encoder is None]
    return any(getattr(feed, name) for feed in numbers) if model.feeds else bool(getattr(model.input, name))


def _tree_facts(trees: TreeEnsemble) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the size of trees, and their categorical features."""
    leaves = trees.leaves_per_tree()
    size = {
        "trees": trees.n_trees,
        "depth": trees.max_depth(),
        "leaves": int(leaves.sum()),
        "most_leaves_of_a_tree": int(leaves.max()),
    }
    categorical = sorted({int(f) for f in trees.feature[trees.category_set >= 0]})
    return size, {"categorical_features": categorical}


def _linear_facts(linear: Linear) -> dict[str, Any]:
    """Return the size of a linear model."""
    facts = linear.facts()
    return {
        "weighted_numbers": facts["numbers"],
        "tables_of_categories": facts["categories"],
        "table_entries": facts["entries"],
    }


def _package(path: Path, as_json: bool, trust: Trust) -> int:
    # The package's code never runs: it may be for another machine, or from an untrusted source.
    from hbtvm.runtime.package.file import content, from_bytes
    from hbtvm.runtime.package.summary import facts, kernel_tables, tuning_facts
    from hbtvm.runtime.recursive.words import recursion_json

    data, name = content(path, trust)
    package, digest = from_bytes(data, name), hashlib.sha256(data).hexdigest()
    if not as_json:
        print_facts({"file": str(path), "sha256": digest, **facts(package)})
        tables = kernel_tables(package)
        for title, heads, rows in tables:
            print_line()
            if len(tables) > 1:
                print_line(f"{title}:")
            print_table(heads, rows, numbers=_NUMBERS)
        if package.tuning:
            print_line()
            print_facts({f"tuning: {name}": text for name, text in tuning_facts(package).items()})
        return 0
    print_json(
        {
            "file": str(path),
            "sha256": digest,
            "library": package.library,
            "class": package.model,
            "kind": package.output.kind,
            "features": package.input.n_features,
            "feature_names": None
            if package.input.feature_names is None
            else list(package.input.feature_names),
            "classes": [labels.tolist() for labels in package.output.classes],
            "predicts": ["predict", *package.output.outputs],
            **({"views": list(package.views)} if package.views else {}),
            "forest": dict(package.forest),
            "steps": [list(step) for step in package.steps],
            "told": list(package.rewrites),
            "python": [{"name": step.name, "imports": step.kind} for step in package.python],
            "target": dict(package.target),
            "hbtvm": package.hbtvm_version,
            "tvm": package.tvm_version,
            **({"cuda": package.cuda_version} if package.cuda_version else {}),
            "tuning": dict(package.tuning),
            "stages": [
                {
                    "columns": list(stage.columns),
                    "forest": dict(stage.facts),
                    "kernels": _kernels(stage.kernels),
                }
                for stage in package.stages
            ],
            "kernels": _kernels(package.kernels),
            "calls": [{"rows": call.rows, "seconds": dict(call.seconds)} for call in package.calls],
            **({} if package.recursion is None else {"recursion": recursion_json(package.recursion)}),
        }
    )
    return 0


def _kernels(kernels: Sequence[KernelEntry]) -> list[dict[str, Any]]:
    return [{name: getattr(kernel, name) for name in _KERNEL} for kernel in kernels]


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "accepted" if value else "refused"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        if all(isinstance(item, list) for item in value):
            return "; ".join(map(_text, value))
        some = ", ".join(map(str, value[:12]))
        return some if len(value) <= 12 else f"{some}, ... ({len(value):,} in all)"
    return str(value)
