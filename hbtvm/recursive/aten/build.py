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
    """Return the cell that a node's module computes.

    `how`: the module's arguments.
    `leaf`: graph of another module for nodes without children, called with inputs only; otherwise such nodes
        get the module's states for zeros as children's states (with any number of children: for no child).
    Raises `ModelError` if cells lack an operator, or nodes of the batch would depend on each other.
    """
    call = signature(graph, how)
    leaf_call = None if leaf is None else leaf_signature(leaf, how)
    inputs = _all_inputs(call, leaf_call)
    unknown = sorted(how.optional - {key for key, input_ in inputs.items() if input_.kind == "number"})
    if unknown:
        raise ModelError(f"optional names {', '.join(unknown)}, which is not an input of whole numbers")
    values = Values(how.children, inputs)
    inner = _Run(values, graph, call, call.states).outputs()
    outputs = [inner]
    if leaf is not None and leaf_call is not None:
        outputs.append(_Run(values, leaf, leaf_call, call.states).outputs())
    kept, numbered = values.pruned(*outputs)
    for key, input_ in values.inputs.items():
        if not input_.size:
            raise ModelError(f"input {shown(key)!r} is never read; leave it out of the module")
    used = {value.name for value in kept if value.op in ("weight", "embed")}
    weights = {key: array for key, array in values.weights.items() if key in used}
    cell = Cell(
        name, how.children, dict(call.states), values.inputs, weights, kept, numbered[0],
        numbered[1] if leaf is not None else None,
    )  # fmt: skip
    check(cell)
    return cell


def _all_inputs(call: Signature, leaf: Signature | None) -> dict[str, Input]:
    inputs = dict(call.inputs)
    for name, input_ in (leaf.inputs if leaf else {}).items():
        if inputs.setdefault(name, input_) != input_:
            raise ModelError(f"input {shown(name)!r} differs between the module and that for leaves")
    both = [name for name in inputs if name in call.states]
    if both:
        raise ModelError(
            f"{shown(both[0])!r} is the name of a state and of an input; give inputs other names"
        )
    return inputs


class _Run:
    """Evaluates a graph node by node."""

    def __init__(self, values: Values, graph: Graph, call: Signature, states: Mapping[str, Shape]) -> None:
        self._values = values
        self._graph = graph
        self._states = states
        self._by_name: dict[str, Any] = {}
        self._numbers = 0
        for argument, role in zip(graph.arguments, call.roles, strict=True):
            self._by_name[argument.name] = self._argument(role, len(argument.sizes))

    def outputs(self) -> dict[str, int]:
        """Return the number of each state's value."""
        for node in needed(self._graph):
            self._compute(node)
        if len(self._graph.outputs) != len(self._states):
            raise ModelError(
                f"the module returns {len(self._graph.outputs)} results; expected one per state: "
                f"{', '.join(self._states)}"
            )
        return {
            name: self._output(name, shape, self._value(Ref(output)))
            for (name, shape), output in zip(self._states.items(), self._graph.outputs, strict=True)
        }

    def _argument(self, role: Role, axes: int) -> Tensor:
        values = self._values
        if role.form == "input":
            input_ = values.inputs[role.name]
            at = list(values.inputs).index(role.name)
            if input_.kind == "number":
                return Tensor(np.zeros(1, np.int64), (("b",), *((),) * (axes - 1)), number=at)
            number = values.put(Value("input", shape=(input_.size,), name=role.name))
            return tensor(values.refs(number), (("b",), axis_of(input_.size)))
        shape = self._states[role.name]
        state_axes = [axis_of(input_) for input_ in shape]
        if role.form == "child" or (role.form == "children" and values.places == 1):
            number = values.put(Value("child", shape=shape, name=role.name, start=role.place))
            middle: list[Axis] = [()] if role.form == "children" else []
            return tensor(values.refs(number), (("b",), *middle, *state_axes))
        number = values.put(Value("children", shape=shape, name=role.name, per_child=True))
        if role.form == "children":
            return tensor(values.refs(number), (("b",), ("c",), *state_axes))
        return tensor(values.refs(values.apply(role.form, (number,))), (("b",), *state_axes))

    def _compute(self, node: Node) -> None:
        where = f"{shown(node.op)} ({node.where})" if node.where else shown(node.op)
        kind, _, name = node.op.partition(".")
        function = {"aten": OPERATORS, "operator": SIZES}.get(kind, {}).get(name)
        if function is None:
            more = "" if self._graph.decomposed else "; export.run_decompositions() may replace it"
            raise ModelError(f"{where} is not an operator that a cell can have{more}")
        try:
            arguments = {key: self._value(item) for key, item in node.arguments.items() if key not in IGNORED}
            if kind == "aten":
                arguments = {
                    "x" if key in ("self", "input") else key: item for key, item in arguments.items()
                }
            result = function(self._values, **arguments)
        except ModelError as error:
            raise ModelError(f"{where} {error}") from None
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"{where} has arguments that a cell can't have ({type(error).__name__}: {shown(error)})"
            ) from error
        results = [result] if node.single else result
        if not isinstance(results, Sequence) or len(results) != len(node.outputs):
            raise ModelError(f"{where} should give {len(node.outputs)} results, and does not")
        for key, item in zip(node.outputs, results, strict=True):
            if key is not None:
                self._by_name[key] = item
            self._numbers += item.data.size if isinstance(item, Tensor) else 0
        if self._numbers > MOST_RESULTS:
            raise ModelError(f"{where} makes the module too large; expected at most {MOST_RESULTS} numbers")

    def _value(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if not isinstance(value, Ref):
            return value
        if value.name in self._graph.constants and value.name not in self._by_name:
            self._by_name[value.name] = _constant(self._graph.constants[value.name])
        if self._by_name.get(value.name) is None:
            raise ModelError(f"reads {shown(value.name)!r}, which nothing computes")
        return self._by_name[value.name]

    def _output(self, name: str, shape: Shape, result: Any) -> int:
        axes = tuple(axis_of(length) for length in shape)
        known = isinstance(result, Tensor) and (
            result.axes == (("b",), *axes) or (result.constant and result.axes in (axes, ((), *axes)))
        )
        if not known:
            raise ModelError(
                f"the module returns state {shown(name)!r} in another shape than it takes; expected "
                f"(batch, {', '.join(map(str, shape))})"
            )
        return self._values.value_of(self._values.referring(result), shape)


def _constant(constant: Constant) -> Tensor:
    if constant.array is None:
        raise ModelError(
            f"reads weight {shown(constant.name)!r}, which is {constant.dtype}; expected float32"
        )
    axes = [axis_of(size) for size in constant.array.shape]
    return Tensor(
        constant.array.reshape([size for size in constant.array.shape if size != 1]),
        tuple(axes),
        constant.name,
    )
