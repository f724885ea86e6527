"""Determine the arguments of a node's torch module by trial calls with candidate sizes. Imports torch."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.graph import Graph
from hbtvm.recursive.aten.signature import Convention
from hbtvm.recursive.cell import Shape
from hbtvm.words.printable import shown

MOST_TRIALS = 20_000  # most combinations of sizes to try
Kind = int | str  # an input's: a vector's size, or ``"number"``


@dataclass(frozen=True)
class Call:
    """A module and sample arguments."""

    module: torch.nn.Module  # takes positional arguments, and returns a tuple
    labels: tuple[str, ...]  # names of the arguments
    arguments: tuple[torch.Tensor, ...]  # zeros
    # Each argument's axes for the batch (``"b"``) and an open number of children (``"c"``)
    varying: tuple[dict[int, str], ...]
    inputs: Mapping[str, Kind]  # the arguments that are inputs
    shapes: Mapping[str, Shape]  # shapes of states

    def labelled(self, graph: Graph) -> Graph:
        """Return a graph of this call with the arguments' labels."""
        pairs = zip(graph.arguments, self.labels, strict=True)
        return replace(graph, arguments=tuple(replace(argument, label=label) for argument, label in pairs))


class _Node(torch.nn.Module):  # type: ignore[misc]
    """A module or a method of it, called by position or by its parameters' names."""

    def __init__(self, module: Any, names: Sequence[str], states: Sequence[str], method: str = "") -> None:
        super().__init__()
        self.module = module
        self._names, self._states, self._method = tuple(names), tuple(states), method

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        function = getattr(self.module, self._method) if self._method else self.module
        if self._names:
            results = function(**dict(zip(self._names, arguments, strict=True)))
        else:
            results = function(*arguments)
        if isinstance(results, Mapping):
            return tuple(results[name] for name in self._states)
        return tuple(results) if isinstance(results, tuple | list) else (results,)


def working_call(
    module: Any, how: Convention, sizes: Mapping[str, int | Shape | None], inputs: Mapping[str, Any]
) -> Call:
    """Return the call of a module.

    `sizes`: sizes of states, None if unknown; states of unknown size are vectors of one size.
    `inputs`: kinds by name, None if unknown; empty for the inputs that ``forward`` names.
    Raises `ModelError` if the module runs with no sizes, or with several.
    """
    forms = [bool(how.apart)]
    if how.apart is None and how.children == 1 and how.reduce is None:
        forms = [True, False]
    known = _sizes(module)
    # Weights may have the rows of several gates, or the columns of all children.
    parts = (1, 2, 3, 4, 5, how.children or 1)
    hidden = sorted({size // part for size in known for part in parts if size % part == 0})
    trials: list[Iterator[tuple[Call, Exception | None]]] = []
    for apart in forms:
        names, labels, free = _arguments(module, how, apart, inputs)
        node = _Node(module, names, how.states)
        for size in hidden if None in sizes.values() else [0]:
            shapes = {name: _shape(size if size_ is None else size_) for name, size_ in sizes.items()}
            samples = _samples(shapes, how, apart, [*known, *hidden])
            kinds = {name: inputs.get(name) for name in free}
            trials.append(_trials(node, labels, samples, kinds, shapes, known, _unlike([*known, *hidden])[0]))
    return _only(itertools.chain(*trials), "the module")


def leaf_call(module: Any, leaf: Any, call: Call, inputs: Mapping[str, Any]) -> Call:
    """Return the call of a module or method for nodes without children.

    `call`: the main module's call.
    `inputs`: as in `working_call`.
    Raises `ModelError` if it is neither, or can't be called.
    """
    is_method = isinstance(leaf, str) and callable(getattr(module, leaf, None))
    if not is_method and not isinstance(leaf, torch.nn.Module):
        raise ModelError(f"leaf is {shown(repr(leaf))}; expected a torch.nn.Module, or the name of a method")
    known = {**inputs, **call.inputs}
    parameters = _parameters(getattr(module, leaf) if is_method else leaf.forward)
    labels = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty or parameter.name in known
    ]
    node = _Node(module if is_method else leaf, labels, list(call.shapes), leaf if is_method else "")
    kinds = {name: known.get(name) for name in labels}
    sizes = _sizes(node)
    trials = _trials(node, labels, {}, kinds, call.shapes, sizes, _unlike(sizes)[0])
    return _only(trials, "the module for leaves")


def _only(trials: Iterable[tuple[Call, Exception | None]], title: str) -> Call:
    """Return the only call that works; raises `ModelError` if there is none, or several."""
    right: list[Call] = []
    errors: list[Exception] = []
    for call, error in itertools.islice(trials, MOST_TRIALS):
        if error is not None:
            errors.append(error)
        else:
            right.append(call)
    if len(right) == 1:
        return right[0]
    if right:
        raise ModelError(
            f"{title} runs with states and inputs of several sizes; give them, such as state={{'h': 64}}, "
            "inputs={'x': 32}"
        )
    if len(errors) == 1:
        raise ModelError(f"{title} can't be called with its states and inputs ({_text(errors[0])})")
    raise ModelError(
        f"{title} can't be called with states and inputs of any of its weights' sizes; give them, such as "
        f"state={{'h': 64}}, inputs={{'x': 32}} (last error: {_text(errors[-1]) if errors else 'none'})"
    )


def _trials(
    node: torch.nn.Module,
    labels: Sequence[str],
    states: Mapping[str, tuple[torch.Tensor, dict[int, str]]],
    kinds: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    known: Sequence[int],
    batch: int,
) -> Iterator[tuple[Call, Exception | None]]:
    """Yield calls with inputs of all kinds, and their errors."""
    choices = [[*known, "number"] if kind is None else [kind] for kind in kinds.values()]
    for chosen in itertools.product(*choices):
        inputs: dict[str, Kind] = dict(zip(kinds, chosen, strict=True))
        samples = dict(states)
        for name, kind in inputs.items():
            size = (batch,) if kind == "number" else (batch, *_shape(kind))
            dtype = torch.int64 if kind == "number" else torch.float32
            samples[name] = torch.zeros(size, dtype=dtype), {0: "b"}
        arguments, varying = zip(*(samples[label] for label in labels), strict=True) if labels else ((), ())
        # Separate tensors: torch.export merges arguments that share a tensor.
        separate = tuple(argument.clone() for argument in arguments)
        call = Call(node, tuple(labels), separate, varying, inputs, shapes)
        yield call, _fault(call, batch)


def _samples(
    shapes: Mapping[str, Shape], how: Convention, apart: bool, known: Sequence[int]
) -> dict[str, tuple[torch.Tensor, dict[int, str]]]:
    """Return zeros for children's states, and their dynamic axes."""
    batch, many = _unlike(known)
    places: Shape = () if apart or how.reduce else (many if how.children is None else how.children,)
    axes = {0: "b", 1: "c"} if places and how.children is None else {0: "b"}
    return {name: (torch.zeros((batch, *places, *shape)), axes) for name, shape in shapes.items()}


def _sizes(module: Any) -> list[int]:
    """Return the sizes of a module's weights."""
    return sorted({size for array in module.state_dict().values() for size in array.shape})


def _unlike(known: Sequence[int]) -> list[int]:
    """Return two sizes that no weight has, for the batch and for children."""
    return list(itertools.islice((size for size in itertools.count(7) if size not in known), 2))


def _arguments(
    module: Any, how: Convention, apart: bool, inputs: Mapping[str, Any]
) -> tuple[list[str], list[str], list[str]]:
    """Return names of parameters to call by (none: by position), labels of all arguments, and of inputs."""
    parameters = _parameters(module.forward)
    copies = (how.children or 1) if apart else 1
    stated = [name for name in how.states for _ in range(copies)]
    named = [parameter.name for parameter in parameters]
    wanted = {*how.states, *inputs}
    if {*how.states} <= {*named} and copies == 1:
        used = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty or parameter.name in wanted
        ]
        rest = [name for name in used if name not in how.states]
        # Other names of inputs rename parameters, or belong to inputs of leaves only.
        renames = {} if {*rest} <= {*inputs} else dict(zip(rest, inputs, strict=False))
        labels = [renames.get(name, name) for name in used]
        return used, labels, [label for label in labels if label not in how.states]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty or parameter.name in inputs
    ]
    count = len(required) - len(stated)
    free = list(inputs)[:count] or required[len(stated) :]
    return [], [*stated, *free], free


def _parameters(function: Any) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind in kinds
    ]


def _fault(call: Call, batch: int) -> Exception | None:
    """Return the error of a call, or None."""
    try:
        with torch.no_grad():
            results = call.module(*call.arguments)
    except Exception as error:  # torch raises errors of many types
        return error
    shapes = [tuple(getattr(result, "shape", ())) for result in results]
    expected = [(batch, *shape) for shape in call.shapes.values()]
    if shapes != expected:
        return ModelError(
            f"it returns results of shapes {shapes}; expected {expected}, a batch of {batch} states"
        )
    return None


def _shape(size: Any) -> Shape:
    shape = (size,) if isinstance(size, int) else tuple(size) if isinstance(size, Iterable) else ()
    if not shape or not all(type(size) is int and size >= 0 for size in shape):
        raise ModelError(
            f"{shown(repr(size))} is not a size; expected a number, a shape, or 'number' of an input"
        )
    return shape


def _text(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return shown(lines[0] if lines else type(error).__name__, most=300)
