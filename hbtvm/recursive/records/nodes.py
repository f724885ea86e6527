"""Parse a structure, text with brackets or a JSON value, into lists of its nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.recursive.packing import packed
from hbtvm.recursive.records.words import NodeInput, Words, some
from hbtvm.recursive.texts import Node, parse
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.words.printable import shown

_LABELLED = re.compile(r"\(\s*[^\s()]+\s*\(")  # a bracket that begins with a word and then holds a bracket


@dataclass(frozen=True)
class Nodes:
    """A structure."""

    children: list[list[int]]  # each node's children by place, -1 for an empty place
    # Values of each node, by name: whole numbers, or float32 arrays, shape (size,)
    inputs: dict[str, list[Any]]


class Reader:
    """Parses text and JSON.

    `children`: most children of a node; None for any number. With 1, texts and flat lists are sequences.
    `inputs`: the model's inputs of a node, by name.
    `words`: numbers of words.
    `labels`: what follows an opening bracket (see `hbtvm.runtime.recursive.vocabulary.Labels`).

    Errors begin with ``structure 0``. Nested nodes are numbered children first.

    `token`: the input that takes a node's word; None if the model has another kind of input, or several.
    """

    def __init__(
        self, children: int | None, inputs: Mapping[str, NodeInput], words: Words, labels: str = "none"
    ) -> None:
        self._children, self._inputs, self._words, self._labels = children, inputs, words, labels
        only = next(iter(inputs)) if len(inputs) == 1 else ""
        self.token = only if only and inputs[only].kind == "number" else None

    def of_text(self, text: str) -> Nodes:
        """Parse a line: a tree with brackets, or words in a row for sequences."""
        try:
            if self._children == 1 and "(" not in text and ")" not in text:
                return self._nodes([{self.token: word} for word in text.split()], _chain(len(text.split())))
            return self._nested(parse(text, 0, self._labels))
        except InputError as error:
            if self._labels != "none" or not _LABELLED.match(text):
                raise
            raise InputError(
                f"{error} Where each bracket begins with a label, as in treebanks, say --labels drop."
            ) from error

    def of_value(self, value: Any) -> Nodes:
        """Parse a JSON value.

        It is a tree of nested lists, of objects with their inputs by name and ``children``, or of both; or an
        object with ``children`` or ``parents``, a list with an item for each node, and ``inputs``.
        """
        if isinstance(value, dict):
            if "parents" in value or "inputs" in value or not self._inputs:
                return self._arrays(value)
        elif self._children == 1 and isinstance(value, list) and not any(map(_is_nested, value)):
            return self._nodes(
                [self._leaf_inputs(item, at) for at, item in enumerate(value)], _chain(len(value))
            )
        return self._nested(value)

    def _nested(self, tree: Any) -> Nodes:
        """Parse a nested tree without recursion, because it may be deep."""
        children_of: list[list[int]] = []
        inputs_of: list[Mapping[Any, Any]] = []
        results: list[int] = []  # nodes without a parent yet
        waiting: list[tuple[Any, int]] = [(tree, -1)]
        while waiting:
            subtree, count = waiting.pop()
            if count < 0:
                inputs, children = self._parts(subtree, len(children_of))
                waiting.append((inputs, len(children)))
                waiting += [(child, -1) for child in reversed(children)]
                continue
            inputs_of.append(subtree)
            children_of.append(results[len(results) - count :])
            del results[len(results) - count :]
            results.append(len(children_of) - 1)
        return self._nodes(inputs_of, children_of)

    def _parts(self, tree: Any, node: int) -> tuple[Mapping[Any, Any], Sequence[Any]]:
        """Return a node's inputs and children."""
        where = f"structure 0, node {node}"
        if isinstance(tree, Node):
            return ({} if tree.token is None else {self.token: tree.token}), tree.children
        if isinstance(tree, list):
            if not tree:
                raise InputError(f"{where}: it has neither a token nor children.")
            return {}, tree
        if not isinstance(tree, dict):
            return self._leaf_inputs(tree, node), ()
        children = tree.get("children", [])
        if not isinstance(children, list):
            raise InputError(f"{where}: its children are {shown(repr(children))}; expected a list.")
        return {name: value for name, value in tree.items() if name != "children"}, children

    def _leaf_inputs(self, value: Any, node: int) -> Mapping[Any, Any]:
        """Return the inputs of a leaf: a token, or its inputs by name."""
        if isinstance(value, dict):
            return value
        if self.token is None:
            raise InputError(
                f"structure 0, node {node}: it is {shown(repr(value))}; expected an object with the inputs "
                f"of the model by name, {some(self._inputs)}."
            )
        return {self.token: value}

    def _arrays(self, value: Mapping[str, Any]) -> Nodes:
        unknown = set(value) - {"children", "parents", "inputs"}
        if unknown or ("children" in value) == ("parents" in value):
            raise InputError(
                f"structure 0: it has {some(sorted(map(str, value)))}; expected 'children' or 'parents', and "
                "'inputs'."
            )
        lists = value.get("children", value.get("parents"))
        inputs = value.get("inputs", {})
        if not isinstance(lists, list) or not isinstance(inputs, dict):
            raise InputError(
                "structure 0: expected a list with an item for each node, and inputs as an object."
            )
        count = len(lists)
        children = _children(lists) if "children" in value else _of_parents(lists)
        for name, values in inputs.items():
            if not isinstance(values, list) or len(values) != count:
                size = f"has {len(values)} items" if isinstance(values, list) else f"is {shown(repr(values))}"
                raise InputError(
                    f"structure 0: its input {shown(repr(name))} {size}; expected a list of {count}, one for "
                    "each node."
                )
        return self._nodes([{name: inputs[name][at] for name in inputs} for at in range(count)], children)

    def _nodes(self, inputs_of: Sequence[Mapping[Any, Any]], children_of: list[list[int]]) -> Nodes:
        """Build the structure from nodes' inputs and children."""
        places = self._children
        for node, children in enumerate(children_of):
            if places is not None and len(children) > places:
                raise InputError(
                    f"structure 0, node {node}: it has {len(children)} children; the model takes {places} at "
                    "most."
                )
        known = self._inputs
        columns: dict[str, list[Any]] = {name: [] for name in known}
        for node, values in enumerate(inputs_of):
            if not values.keys() <= known.keys():
                extra = next(name for name in values if name not in known)
                raise InputError(
                    f"structure 0, node {node}: the model has no input {shown(repr(extra))}; it has "
                    f"{some(known)}."
                )
            for name, taken in known.items():
                columns[name].append(self._value(name, taken, values.get(name), node))
        return Nodes(children_of, columns)

    def _value(self, name: str, taken: NodeInput, value: Any, node: int) -> Any:
        where = f"structure 0, node {node}"
        if value is None and not (taken.kind == "number" and taken.optional):
            raise InputError(f"{where}: its input {name!r} is missing.")
        if taken.kind != "number":
            return _vector(value, taken.size, f"{where}: its input {name!r}")
        number = self._words.number(value, where)
        if not (-1 if taken.optional else 0) <= number < taken.size:
            raise InputError(
                f"{where}: its input {name!r} is {number}; expected a number from 0 to {taken.size - 1}"
                f"{', or -1 for none' if taken.optional else ''}."
            )
        return number


def structures_of(records: Sequence[Nodes], inputs: Mapping[str, NodeInput]) -> Structures:
    """Pack structures into arrays."""
    arrays: dict[str, np.ndarray] = {}
    for name, item in inputs.items():
        values = [value for record in records for value in record.inputs[name]]
        arrays[name] = (
            np.array(values, np.int32)
            if item.kind == "number"
            else np.array(values, np.float32).reshape(-1, item.size)
        )
    return packed([record.children for record in records], arrays)


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "children" in value)


def _chain(length: int) -> list[list[int]]:
    return [[at - 1] if at else [] for at in range(length)]


def _vector(value: Any, size: int, what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        array = np.empty(0)
    if array.shape != (size,) or array.dtype.kind not in "iuf":
        raise InputError(f"{what} is {shown(repr(value), 40)}; expected a list of {size} numbers.")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _children(lists: Sequence[Any]) -> list[list[int]]:
    children = []
    for node, places in enumerate(lists):
        if not isinstance(places, list):
            raise InputError(
                f"structure 0, node {node}: its children are {shown(repr(places))}; expected a list of "
                "numbers of nodes."
            )
        children.append(
            [_place(place, len(lists), f"structure 0, node {node}: its child") for place in places]
        )
    return children


def _of_parents(lists: Sequence[Any]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in lists]
    for node, parent_value in enumerate(lists):
        parent = _place(parent_value, len(lists), f"structure 0, node {node}: its parent")
        if parent >= 0:
            children[parent].append(node)
    return children


def _place(value: Any, count: int, what: str) -> int:
    """Return a node's number; -1 for none."""
    if value is None:
        return -1
    if type(value) is not int or not -1 <= value < count:
        raise InputError(f"{what} {shown(repr(value))} is not a node of this structure.")
    return value
