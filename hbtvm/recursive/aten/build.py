"""A cell from a graph of ATen operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.graph import Constant, Graph, Node, Ref, needed
from hbtvm.recursive.aten.operators import IGNORED, OPERATORS, SIZES
from hbtvm.recursive.aten.signature import Convention, Role, Signature, leaf_signature, signature
from hbtvm.recursive.aten.tensors import Axis, Tensor, axis_of, tensor
from hbtvm.recursive.aten.values import Values
from hbtvm.recursive.cell import Cell, Input, Shape, Value
from hbtvm.recursive.validate import check
from hbtvm.words.printable import shown

MOST_RESULTS = 1 << 28  # most numbers of all tensors of a graph together, for one node


def cell_of(name: str, graph: Graph, how: Convention, leaf: Graph | None = None) -> Cell:
    """The cell that a node's module computes.

    `how`: what the module's arguments are.
    `leaf`: of another module for nodes without children, called with inputs only; without one, nodes without
        children get the states that the module gives for children's states of zeros (of any number of
        children: for no child).
    Raises `ModelError` if an operator is one that cells lack, or nodes of the batch would depend on one
    another.
    """
    call = signature(graph, how)
    leaf_call = None if leaf is None else leaf_signature(leaf, how)
    inputs = _all_inputs(call, leaf_call)
    unknown = sorted(how.optional - {key for key, one in inputs.items() if one.kind == "number"})
    if unknown:
        raise ModelError(f"optional names {', '.join(unknown)}, which is no input of whole numbers")
    values = Values(how.children, inputs)
    inner = _Run(values, graph, call, call.states).outputs()
    outputs = [inner]
    if leaf is not None and leaf_call is not None:
        outputs.append(_Run(values, leaf, leaf_call, call.states).outputs())
    kept, numbered = values.pruned(*outputs)
    for key, one in values.inputs.items():
        if not one.size:
            raise ModelError(f"input {shown(key)!r} is never read; leave it out of the module")
    used = {value.name for value in kept if value.op in ("weight", "embed")}
    weights = {key: array for key, array in values.weights.items() if key in used}
    made = Cell(
        name, how.children, dict(call.states), values.inputs, weights, kept, numbered[0],
        numbered[1] if leaf is not None else None,
    )  # fmt: skip
    check(made)
    return made


def _all_inputs(call: Signature, leaf: Signature | None) -> dict[str, Input]:
    found = dict(call.inputs)
    for name, one in (leaf.inputs if leaf else {}).items():
        if found.setdefault(name, one) != one:
            raise ModelError(f"input {shown(name)!r} differs between the module and that for leaves")
    both = [name for name in found if name in call.states]
    if both:
        raise ModelError(
            f"{shown(both[0])!r} is the name of a state and of an input; give inputs other names"
        )
    return found


class _Run:
    """A graph's results, node by node of the graph."""

    def __init__(self, values: Values, graph: Graph, call: Signature, states: Mapping[str, Shape]) -> None:
        self._values = values
        self._graph = graph
        self._states = states
        self._found: dict[str, Any] = {}
        self._numbers = 0
        for argument, role in zip(graph.arguments, call.roles, strict=True):
            self._found[argument.name] = self._given(role, len(argument.sizes))

    def outputs(self) -> dict[str, int]:
        """The number of the value of each state."""
        for node in needed(self._graph):
            self._compute(node)
        if len(self._graph.outputs) != len(self._states):
            raise ModelError(
                f"the module gives {len(self._graph.outputs)} results; expected one for each of its states: "
                f"{', '.join(self._states)}"
            )
        return {
            name: self._output(name, shape, self._value(Ref(found)))
            for (name, shape), found in zip(self._states.items(), self._graph.outputs, strict=True)
        }

    def _given(self, role: Role, axes: int) -> Tensor:
        values = self._values
        if role.form == "input":
            one = values.inputs[role.name]
            at = list(values.inputs).index(role.name)
            if one.kind == "number":
                return Tensor(np.zeros(1, np.int64), (("b",), *((),) * (axes - 1)), number=at)
            number = values.put(Value("input", shape=(one.size,), name=role.name))
            return tensor(values.refs(number), (("b",), axis_of(one.size)))
        shape = self._states[role.name]
        own = [axis_of(one) for one in shape]
        if role.form == "child" or (role.form == "children" and values.places == 1):
            number = values.put(Value("child", shape=shape, name=role.name, start=role.place))
            middle: list[Axis] = [()] if role.form == "children" else []
            return tensor(values.refs(number), (("b",), *middle, *own))
        number = values.put(Value("children", shape=shape, name=role.name, per_child=True))
        if role.form == "children":
            return tensor(values.refs(number), (("b",), ("c",), *own))
        return tensor(values.refs(values.apply(role.form, (number,))), (("b",), *own))

    def _compute(self, node: Node) -> None:
        said = f"{shown(node.op)} ({node.where})" if node.where else shown(node.op)
        kind, _, name = node.op.partition(".")
        function = {"aten": OPERATORS, "operator": SIZES}.get(kind, {}).get(name)
        if function is None:
            more = "" if self._graph.decomposed else "; export.run_decompositions() may replace it"
            raise ModelError(f"{said} is no operator that a cell can have{more}")
        try:
            given = {key: self._value(one) for key, one in node.arguments.items() if key not in IGNORED}
            if kind == "aten":
                given = {"x" if key in ("self", "input") else key: one for key, one in given.items()}
            result = function(self._values, **given)
        except ModelError as error:
            raise ModelError(f"{said} {error}") from None
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"{said} has arguments that a cell can't have ({type(error).__name__}: {shown(error)})"
            ) from error
        results = [result] if node.single else result
        if not isinstance(results, Sequence) or len(results) != len(node.outputs):
            raise ModelError(f"{said} should give {len(node.outputs)} results, and does not")
        for key, one in zip(node.outputs, results, strict=True):
            if key is not None:
                self._found[key] = one
            self._numbers += one.data.size if isinstance(one, Tensor) else 0
        if self._numbers > MOST_RESULTS:
            raise ModelError(f"{said} makes the module too large; expected at most {MOST_RESULTS} numbers")

    def _value(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._value(one) for one in given]
        if not isinstance(given, Ref):
            return given
        if given.name in self._graph.constants and given.name not in self._found:
            self._found[given.name] = _constant(self._graph.constants[given.name])
        if self._found.get(given.name) is None:
            raise ModelError(f"reads {shown(given.name)!r}, which nothing computes")
        return self._found[given.name]

    def _output(self, name: str, shape: Shape, found: Any) -> int:
        own = tuple(axis_of(one) for one in shape)
        known = isinstance(found, Tensor) and (
            found.axes == (("b",), *own) or (found.constant and found.axes in (own, ((), *own)))
        )
        if not known:
            raise ModelError(
                f"the module gives state {shown(name)!r} in another form than it takes it; expected "
                f"(batch, {', '.join(map(str, shape))})"
            )
        return self._values.value_of(self._values.referring(found), shape)


def _constant(one: Constant) -> Tensor:
    if one.array is None:
        raise ModelError(f"reads weight {shown(one.name)!r}, which is {one.dtype}; expected float32")
    axes = [axis_of(size) for size in one.array.shape]
    return Tensor(one.array.reshape([size for size in one.array.shape if size != 1]), tuple(axes), one.name)
