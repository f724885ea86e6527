"""The calling convention of a node's module: which arguments are children's states, and in which form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.graph import Argument, Graph
from hbtvm.recursive.cell import Input, Shape
from hbtvm.recursive.validate import MOST_CHILDREN
from hbtvm.words.printable import shown

Form = Literal["children", "child", "total", "most", "input"]
"""Forms of an argument: states of all children (batch, child, ...); a child's state, or the sum or maximum of
all children's (batch, ...); or the node's input."""


@dataclass(frozen=True)
class Convention:
    """The user's description of a module's arguments."""

    children: int | None  # places for children; None for any number
    states: tuple[str, ...]  # names, in the order of results
    inputs: tuple[str, ...] | None = None  # names of the other arguments, in order; None for the module's
    # ``"sum"`` or ``"max"`` if the module takes the children's states reduced; None if it takes each
    reduce: Literal["sum", "max"] | None = None
    # Whether each child's state is a separate argument; None: with one child, if it has no axis for children
    apart: bool | None = None
    optional: frozenset[str] = field(default=frozenset())  # numeric inputs that nodes may lack

    def __post_init__(self) -> None:
        children = self.children
        if children is not None and (type(children) is not int or not 1 <= children <= MOST_CHILDREN):
            raise ModelError(
                f"children is {children!r}; expected a number from 1 to {MOST_CHILDREN}, or None"
            )
        if not self.states or len({*self.states, *(self.inputs or ())}) != len(self.states) + len(
            self.inputs or ()
        ):
            raise ModelError(f"states {self.states} and inputs {self.inputs} should have names of their own")
        if self.reduce not in (None, "sum", "max"):
            raise ModelError(f"reduce is {self.reduce!r}; expected 'sum', 'max' or None")
        if self.apart and (self.reduce or children is None):
            raise ModelError("apart goes with a fixed number of children, and not with reduce")


@dataclass(frozen=True)
class Role:
    """The role of an argument."""

    form: Form
    name: str
    place: int = 0


@dataclass(frozen=True)
class Signature:
    """The roles of a graph's arguments, in order, and the cell's states and inputs."""

    roles: tuple[Role, ...]
    states: Mapping[str, Shape]
    inputs: Mapping[str, Input]


def signature(graph: Graph, how: Convention) -> Signature:
    """Return the roles of the arguments of a node's module.

    Raises `ModelError` if they contradict the convention.
    """
    arguments = list(graph.arguments)
    apart = how.apart if how.apart is not None else how.children == 1 and how.reduce is None
    copies = (how.children or 1) if apart else 1
    if {*how.states} <= {argument.label for argument in arguments} and copies == 1:
        state_arguments = [
            next(argument for argument in arguments if argument.label == name) for name in how.states
        ]
        rest = [argument for argument in arguments if argument.label not in how.states]
    else:
        state_arguments, rest = arguments[: copies * len(how.states)], arguments[copies * len(how.states) :]
        if len(state_arguments) < copies * len(how.states):
            raise ModelError(
                f"the module has {len(arguments)} arguments; expected {copies * len(how.states)} for its "
                "states, and then its inputs"
            )
    roles: dict[str, Role] = {}
    states: dict[str, Shape] = {}
    for at, argument in enumerate(state_arguments):
        name, place = how.states[at // copies], at % copies
        form, shape = _state(argument, name, how, apart)
        if states.setdefault(name, shape) != shape:
            raise ModelError(f"state {name!r} is {states[name]} of one child and {shape} of another")
        roles[argument.name] = Role(form, name, place)
    inputs = _inputs(rest, how.inputs, how.optional, roles)
    return Signature(tuple(roles[argument.name] for argument in arguments), states, inputs)


def leaf_signature(graph: Graph, how: Convention) -> Signature:
    """Return the signature of a module for nodes without children, which takes inputs only.

    Arguments match inputs by name or, if the names differ and there are equally many, in order.
    """
    roles: dict[str, Role] = {}
    labels = [argument.label for argument in graph.arguments]
    by_label = how.inputs is None or {*labels} <= {*how.inputs} or len(labels) != len(how.inputs)
    inputs = _inputs(list(graph.arguments), None if by_label else how.inputs, how.optional, roles)
    return Signature(tuple(roles[argument.name] for argument in graph.arguments), {}, inputs)


def _state(argument: Argument, name: str, how: Convention, apart: bool) -> tuple[Form, Shape]:
    where = f"state {shown(name)!r}"
    _check_batch(argument, where)
    if argument.dtype != "float32":
        raise ModelError(f"{where} is {argument.dtype}; expected float32 (call float() of the module first)")
    tail = argument.sizes[1:]
    if how.reduce:
        return ("total" if how.reduce == "sum" else "most"), _shape(tail, where)
    has_axis = how.apart is False or (len(tail) > 1 and tail[0] == 1)
    if apart and not (how.children == 1 and has_axis):
        return "child", _shape(tail, where)
    misfits = not isinstance(tail[0], str) if how.children is None and tail else tail[:1] != (how.children,)
    if not tail or misfits:
        count = "a size that varies (dynamic)" if how.children is None else how.children
        raise ModelError(
            f"{where} is {_sizes(argument)}; expected (batch, child, ...) with {count} for the children, or "
            "reduce or apart to be given"
        )
    return "children", _shape(tail[1:], where)


def _inputs(
    rest: Sequence[Argument],
    names: Sequence[str] | None,
    optional: Collection[str],
    roles: dict[str, Role],
) -> dict[str, Input]:
    """Return inputs by name, and add each argument's role to `roles`."""
    labels = [argument.label for argument in rest] if names is None else list(names)
    if len(labels) != len(rest):
        raise ModelError(
            f"the module has {len(rest)} arguments for inputs "
            f"({', '.join(argument.label for argument in rest)}); "
            f"expected {len(labels)} ({', '.join(labels)})"
        )
    inputs: dict[str, Input] = {}
    for name, argument in zip(labels, rest, strict=True):
        where = f"input {shown(name)!r}"
        _check_batch(argument, where)
        roles[argument.name] = Role("input", name)
        if argument.dtype in ("int64", "int32"):
            if any(size != 1 for size in argument.sizes[1:]):
                raise ModelError(f"{where} is {_sizes(argument)}; expected (batch,), a number for each node")
            inputs[name] = Input("number", 0, name in optional)
        elif argument.dtype == "float32" and len(argument.sizes) == 2:
            inputs[name] = Input("vector", _shape(argument.sizes[1:], where)[0])
        else:
            raise ModelError(
                f"{where} is {argument.dtype} {_sizes(argument)}; expected whole numbers (batch,) or float32 "
                "(batch, size), unless it is one of the states"
            )
    return inputs


def _check_batch(argument: Argument, where: str) -> None:
    if not argument.sizes or not isinstance(argument.sizes[0], str):
        raise ModelError(
            f"{where} is {_sizes(argument)}; expected (batch, ...), exported with a batch that varies "
            "(dynamic_shapes)"
        )


def _shape(sizes: Sequence[int | str], where: str) -> Shape:
    known = tuple(size for size in sizes if isinstance(size, int))
    if not 1 <= len(sizes) <= 2 or len(known) != len(sizes):
        raise ModelError(
            f"{where} is ({', '.join(map(shown, sizes))}) of a node; expected a vector or a matrix"
        )
    return known


def _sizes(argument: Argument) -> str:
    return f"({', '.join(shown(size) for size in argument.sizes)})"
