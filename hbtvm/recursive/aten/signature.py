"""How a node's module is called: which arguments are states of children, and in which form."""

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
"""An argument: states of all children (batch, child, ...); of one child, their sum or maximum (batch, ...);
or what comes with the node."""


@dataclass(frozen=True)
class Convention:
    """What the user says about a module's arguments."""

    children: int | None  # places for children; None for any number
    states: tuple[str, ...]  # names, in the order of results
    inputs: tuple[str, ...] | None = None  # names of the other arguments, in order; None for the module's own
    # ``"sum"`` or ``"max"``, if the module gets the children's states so; None if it gets them one by one
    reduce: Literal["sum", "max"] | None = None
    # Whether each child's state is an argument of its own; None: with one child, if it has no axis for it
    apart: bool | None = None
    optional: frozenset[str] = field(default=frozenset())  # inputs of numbers that a node may come without

    def __post_init__(self) -> None:
        one = self.children
        if one is not None and (type(one) is not int or not 1 <= one <= MOST_CHILDREN):
            raise ModelError(f"children is {one!r}; expected a number from 1 to {MOST_CHILDREN}, or None")
        if not self.states or len({*self.states, *(self.inputs or ())}) != len(self.states) + len(
            self.inputs or ()
        ):
            raise ModelError(f"states {self.states} and inputs {self.inputs} should have names of their own")
        if self.reduce not in (None, "sum", "max"):
            raise ModelError(f"reduce is {self.reduce!r}; expected 'sum', 'max' or None")
        if self.apart and (self.reduce or one is None):
            raise ModelError("apart goes with a fixed number of children, and not with reduce")


@dataclass(frozen=True)
class Role:
    """What an argument is."""

    form: Form
    name: str
    place: int = 0


@dataclass(frozen=True)
class Signature:
    """What all arguments of a graph are, in order, and what follows for the cell."""

    roles: tuple[Role, ...]
    states: Mapping[str, Shape]
    inputs: Mapping[str, Input]


def signature(graph: Graph, how: Convention) -> Signature:
    """What the arguments of a node's module are.

    Raises `ModelError` if they are not as the convention says.
    """
    arguments = list(graph.arguments)
    apart = how.apart if how.apart is not None else how.children == 1 and how.reduce is None
    each = (how.children or 1) if apart else 1
    if {*how.states} <= {one.label for one in arguments} and each == 1:
        given = [next(one for one in arguments if one.label == name) for name in how.states]
        rest = [one for one in arguments if one.label not in how.states]
    else:
        given, rest = arguments[: each * len(how.states)], arguments[each * len(how.states) :]
        if len(given) < each * len(how.states):
            raise ModelError(
                f"the module has {len(arguments)} arguments; expected {each * len(how.states)} for its "
                "states, and then its inputs"
            )
    roles: dict[str, Role] = {}
    states: dict[str, Shape] = {}
    for at, one in enumerate(given):
        name, place = how.states[at // each], at % each
        form, shape = _state(one, name, how, apart)
        if states.setdefault(name, shape) != shape:
            raise ModelError(f"state {name!r} is {states[name]} of one child and {shape} of another")
        roles[one.name] = Role(form, name, place)
    inputs = _inputs(rest, how.inputs, how.optional, roles)
    return Signature(tuple(roles[one.name] for one in arguments), states, inputs)


def leaf_signature(graph: Graph, how: Convention) -> Signature:
    """As `signature`, of a module for nodes without children, which takes inputs alone.

    They are known by their names, or, if there are as many as of the other module by other names, in order.
    """
    roles: dict[str, Role] = {}
    labels = [one.label for one in graph.arguments]
    by_label = how.inputs is None or {*labels} <= {*how.inputs} or len(labels) != len(how.inputs)
    inputs = _inputs(list(graph.arguments), None if by_label else how.inputs, how.optional, roles)
    return Signature(tuple(roles[one.name] for one in graph.arguments), {}, inputs)


def _state(one: Argument, name: str, how: Convention, apart: bool) -> tuple[Form, Shape]:
    where = f"state {shown(name)!r}"
    _check_batch(one, where)
    if one.dtype != "float32":
        raise ModelError(f"{where} is {one.dtype}; expected float32 (call float() of the module first)")
    tail = one.sizes[1:]
    if how.reduce:
        return ("total" if how.reduce == "sum" else "most"), _shape(tail, where)
    has_axis = how.apart is False or (len(tail) > 1 and tail[0] == 1)
    if apart and not (how.children == 1 and has_axis):
        return "child", _shape(tail, where)
    wrong = not isinstance(tail[0], str) if how.children is None and tail else tail[:1] != (how.children,)
    if not tail or wrong:
        count = "a size that varies (dynamic)" if how.children is None else how.children
        raise ModelError(
            f"{where} is {_sizes(one)}; expected (batch, child, ...) with {count} for the children, or "
            "reduce or apart to be given"
        )
    return "children", _shape(tail[1:], where)


def _inputs(
    rest: Sequence[Argument],
    names: Sequence[str] | None,
    optional: Collection[str],
    roles: dict[str, Role],
) -> dict[str, Input]:
    """Inputs by name; what each argument is goes into `roles`."""
    own = [one.label for one in rest] if names is None else list(names)
    if len(own) != len(rest):
        raise ModelError(
            f"the module has {len(rest)} arguments for inputs ({', '.join(one.label for one in rest)}); "
            f"expected {len(own)} ({', '.join(own)})"
        )
    found: dict[str, Input] = {}
    for name, one in zip(own, rest, strict=True):
        where = f"input {shown(name)!r}"
        _check_batch(one, where)
        roles[one.name] = Role("input", name)
        if one.dtype in ("int64", "int32"):
            if any(size != 1 for size in one.sizes[1:]):
                raise ModelError(f"{where} is {_sizes(one)}; expected (batch,), a number for each node")
            found[name] = Input("number", 0, name in optional)
        elif one.dtype == "float32" and len(one.sizes) == 2:
            found[name] = Input("vector", _shape(one.sizes[1:], where)[0])
        else:
            raise ModelError(
                f"{where} is {one.dtype} {_sizes(one)}; expected whole numbers (batch,) or float32 "
                "(batch, size), unless it is one of the states"
            )
    return found


def _check_batch(one: Argument, where: str) -> None:
    if not one.sizes or not isinstance(one.sizes[0], str):
        raise ModelError(
            f"{where} is {_sizes(one)}; expected (batch, ...), exported with a batch that varies "
            "(dynamic_shapes)"
        )


def _shape(sizes: Sequence[int | str], where: str) -> Shape:
    found = tuple(one for one in sizes if isinstance(one, int))
    if not 1 <= len(sizes) <= 2 or len(found) != len(sizes):
        raise ModelError(
            f"{where} is ({', '.join(map(shown, sizes))}) of a node; expected a vector or a matrix"
        )
    return found


def _sizes(one: Argument) -> str:
    return f"({', '.join(shown(size) for size in one.sizes)})"
