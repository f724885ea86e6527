"""``hbtvm inspect`` for a recursive model: its cell, inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbtvm.cli.show import print_facts, print_json, print_line, print_table
from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Input, Layer, RecursiveModel, Shape
from hbtvm.runtime.recursive.words import vocabulary_json, vocabulary_words
from hbtvm.words.quantities import count

_READ = {
    "roots": "of each node without a parent",
    "nodes": "of each node",
    "total": "summed over each structure's nodes",
    "mean": "as mean over each structure's nodes",
    "most": "as maximum over each structure's nodes",
}


def inspect(model: RecursiveModel, path: Path, as_json: bool) -> int:
    """Run the command."""
    reason = _refusal(model)
    if as_json:
        print_json({"file": str(path), **_facts(model), "strategies": {"levels": reason}})
        return 0
    print_facts({"file": str(path), **_words(model)})
    print_line()
    print_table(("strategy", "fits", "why not"), [("levels", "no" if reason else "yes", reason or "")])
    return 0


def _refusal(model: RecursiveModel) -> str | None:
    """Return why no kernels support a model, or None."""
    from hbtvm.strategies.recursive.levels import classes_of

    try:
        classes_of(model.cell)
    except ModelError as error:
        return str(error)
    return None


def _weights(model: RecursiveModel) -> dict[str, tuple[Shape, int]]:
    """Return the shape and size of each weight of the cell."""
    return {name: (weight.shape, weight.size) for name, weight in model.cell.weights.items()}


def _facts(model: RecursiveModel) -> dict[str, Any]:
    cell = model.cell
    return {
        "class": "recursive model",
        "cell": cell.name,
        "children": cell.children,
        "states": {name: list(shape) for name, shape in cell.states.items()},
        "inputs": {
            name: {"kind": item.kind, "size": item.size, "optional": item.optional}
            for name, item in cell.inputs.items()
        },
        "operators": dict(_operators(model)),
        "weights": {name: list(shape) for name, (shape, _) in _weights(model).items()},
        "numbers": _numbers(model),
        "leaf": cell.leaf is not None,
        "readout": {"state": model.readout.state, "over": model.readout.over},
        "layers": [_layer(item) for item in model.layers],
        "classes": list(model.classes),
        "vocabulary": None if model.vocabulary is None else vocabulary_json(model.vocabulary),
    }


def _words(model: RecursiveModel) -> dict[str, str]:
    cell = model.cell
    children = (
        "any number of children"
        if cell.children is None
        else f"up to {count(cell.children, 'child', 'children')}"
    )
    shape = _shape(cell.states[model.readout.state])
    leaves = ", separate equations for leaves" if cell.leaf is not None else ""
    operators = ", ".join(f"{number} {name}" for name, number in _operators(model).most_common())
    facts = {
        "model": "recursive",
        "cell": f"{cell.name}, {children}{leaves}",
        "states": ", ".join(f"{name} ({_shape(item)})" for name, item in cell.states.items()),
        "inputs": "; ".join(f"{name}: {_input(item)}" for name, item in cell.inputs.items()) or "none",
        "operators": operators or "none",
        "weights": f"{_numbers(model):,} numbers: {_listed(_weights(model))}",
        "readout": f"{model.readout.state} ({shape}) {_READ[model.readout.over]}",
        "layers": ", ".join(map(_layer, model.layers)) or "none",
    }
    if model.classes:
        facts["classes"] = ", ".join(map(str, model.classes))
    if model.vocabulary is not None:
        facts["words"] = vocabulary_words(model.vocabulary)
    return facts


def _operators(model: RecursiveModel) -> Counter[str]:
    """Count the cell's values by operator."""
    return Counter(value.op for value in model.cell.values if value.op not in ("weight", "constant", "input"))


def _numbers(model: RecursiveModel) -> int:
    """Return the size of all weights."""
    arrays = [*model.cell.weights.values()]
    arrays += [array for layer in model.layers for array in (layer.weight, layer.bias) if array is not None]
    return sum(array.size for array in arrays)


def _listed(weights: Mapping[str, tuple[Shape, int]]) -> str:
    return ", ".join(f"{name} ({_shape(shape)})" for name, (shape, _) in weights.items()) or "none"


def _input(input_: Input) -> str:
    if input_.kind == "vector":
        return f"{count(input_.size, 'number')} a node"
    return f"a number from 0 to {input_.size - 1:,}{', or none' if input_.optional else ''}"


def _layer(layer: Layer) -> str:
    return layer.op if layer.weight is None else f"{layer.op} ({_shape(layer.weight.shape)})"


def _shape(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "1"
