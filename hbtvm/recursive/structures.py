"""What people hold of trees, graphs and sequences, as `Structures` of a batch.

Converters take a list of structures. A token, what stands at a node, is looked up in a vocabulary (a mapping
to numbers, or a list of words in the order of their numbers); without one, tokens are numbers themselves.
Nodes without a token get the number -1, of which an optional input makes zeros. Children come before those
that they are children of, but for arrays and graphs, whose nodes keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hbtvm.errors import InputError
from hbtvm.printable import shown
from hbtvm.recursive.checking import check
from hbtvm.recursive.texts import parse
from hbtvm.runtime.recursive.structures import Structures

__all__ = [
    "Structures", "brackets", "check", "child_arrays", "dgl", "networkx", "nltk", "parent_arrays",
    "sequences", "trees",
]  # fmt: skip

Vocabulary = Mapping[Any, int] | Sequence[Any]
Edges = Literal["to_parent", "to_child"]


def trees(
    items: Iterable[Any],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
) -> Structures:
    """Trees as nested lists or tuples, tokens at their leaves: ``["not", ["very", "good"]]``.

    Parameters
    ----------
    vocabulary, unknown
        Numbers of tokens; `unknown` is that of tokens that the vocabulary lacks.
    name
        The input that tokens are.

    Raises
    ------
    InputError
        If a token is unknown, or a list is empty; it names structure and node.
    """
    return _nested(items, lambda tree: (None, tree) if isinstance(tree, list | tuple) else (tree, ()),
                   vocabulary, unknown, name)  # fmt: skip


def brackets(
    texts: Iterable[str],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
    labels: Literal["drop", "words", "none"] = "drop",
) -> Structures:
    """Trees as bracketed text, one a text.

    Parameters
    ----------
    labels
        ``"drop"``: each bracket begins with a label, which is left out, as in treebanks:
        ``(3 (2 It) (4 works))`` has three nodes; ``"words"``: it begins with the token of its node, whose
        children follow; ``"none"``: it holds its children only: ``(a (b c))`` has five nodes.
    vocabulary, unknown, name
        See `trees`; without a vocabulary, tokens are numbers in digits.

    Raises
    ------
    InputError
        As `trees`, and if a text is no tree.
    """
    if labels not in ("drop", "words", "none"):
        raise InputError(f"labels is {labels!r}; expected 'drop', 'words' or 'none'")
    parsed = [parse(text, b, labels) for b, text in enumerate(_list(texts))]
    if vocabulary is None:
        vocabulary = _Digits()
    return _nested(parsed, lambda node: (node.token, node.children), vocabulary, unknown, name)


def nltk(
    items: Iterable[Any],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
    labels: Literal["drop", "words"] = "drop",
) -> Structures:
    """Trees of ``nltk.Tree``: sequences of children with a method ``label``; leaves are tokens.

    With `labels` ``"drop"``, a node with one token only is one leaf, as in treebanks; with ``"words"``,
    labels are tokens of inner nodes. Otherwise as `trees`.
    """

    def parts(tree: Any) -> tuple[Any, Sequence[Any]]:
        if not hasattr(tree, "label"):
            return tree, ()
        own = list(tree)
        if labels == "words":
            return tree.label(), own
        return (own[0], ()) if len(own) == 1 and not hasattr(own[0], "label") else (None, own or (None,))

    return _nested(items, parts, vocabulary, unknown, name)


def sequences(
    items: Iterable[Iterable[Any]],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
) -> Structures:
    """Sequences of tokens: each is the only child of the one behind it; an empty one has no nodes."""
    look = _Lookup(vocabulary, unknown)
    owns: list[list[list[int]]] = []
    numbers: list[int] = []
    for b, item in enumerate(_list(items)):
        found = [look(token, b, at) for at, token in enumerate(item)]
        numbers += found
        owns.append([[at - 1] if at else [] for at in range(len(found))])
    return _packed(owns, {name: np.array(numbers, np.int32)})


def parent_arrays(parents: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Structures as arrays of each node's parent, -1 for roots; children are in the order of their numbers.

    Parameters
    ----------
    parents
        An array of whole numbers, shape (nodes,), for each structure.
    inputs
        By name, of all nodes of all structures, or a list with an array for each structure.
    """
    owns: list[list[list[int]]] = []
    for b, given in enumerate(_list(parents)):
        array = _whole(given, f"structure {b}", 1).tolist()
        own: list[list[int]] = [[] for _ in array]
        for node, parent in enumerate(array):
            if not -1 <= parent < len(array):
                raise InputError(
                    f"structure {b}, node {node}: its parent {parent} is no node of this structure."
                )
            if parent >= 0:
                own[parent].append(node)
        owns.append(own)
    return _packed(owns, _inputs(inputs, owns))


def child_arrays(children: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Structures as arrays of each node's children, shape (nodes, places), within the structure; -1 for none.

    `inputs` as in `parent_arrays`.
    """
    owns = [_whole(one, f"structure {b}", 2).tolist() for b, one in enumerate(_list(children))]
    return _packed(owns, _inputs(inputs, owns))


def networkx(
    graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent", place: str | None = None
) -> Structures:
    """Graphs of ``networkx.DiGraph``, nodes in their order.

    Parameters
    ----------
    inputs
        Names of inputs and of the node attributes that hold them: whole numbers, or vectors. A node without
        the attribute has -1.
    edges
        ``"to_parent"``: from a child to what is computed from it; ``"to_child"``: the other way, as in
        arborescences.
    place
        The edge attribute with a child's place; without it, children are in the order of edges.
    """
    owns: list[list[list[int]]] = []
    found: dict[str, list[Any]] = {name: [] for name in inputs}
    for b, graph in enumerate(_list(graphs)):
        number = {node: at for at, node in enumerate(graph.nodes)}
        pairs = [(number[u], number[v], data) for u, v, data in graph.edges(data=True)]
        own: list[list[int]] = [[] for _ in number]
        for u, v, data in pairs:
            child, parent = (u, v) if _upward(edges) else (v, u)
            if place is None:
                own[parent].append(child)
                continue
            at = data.get(place)
            if type(at) is not int or not 0 <= at < 2**16:
                raise InputError(f"structure {b}, node {parent}: the place of child {child} is {at!r}.")
            own[parent] += [-1] * (at + 1 - len(own[parent]))
            if own[parent][at] >= 0:
                raise InputError(f"structure {b}, node {parent}: two children are in place {at}.")
            own[parent][at] = child
        owns.append(own)
        for name, attribute in inputs.items():
            found[name] += [data.get(attribute, -1) for _, data in graph.nodes(data=True)]
    return _packed(owns, _inputs(found, owns))


def dgl(graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent") -> Structures:
    """Graphs of DGL, children in the order of edges; `inputs` names ``ndata``, otherwise as `networkx`."""
    owns: list[list[list[int]]] = []
    found: dict[str, list[Any]] = {name: [] for name in inputs}
    for graph in _list(graphs):
        own: list[list[int]] = [[] for _ in range(int(graph.num_nodes()))]
        source, target = (_numpy(one).tolist() for one in graph.edges())
        for u, v in zip(source, target, strict=True):
            child, parent = (u, v) if _upward(edges) else (v, u)
            own[parent].append(child)
        owns.append(own)
        for name, key in inputs.items():
            found[name].append(_numpy(graph.ndata[key]))
    return _packed(owns, _inputs(found, owns))


class _Lookup:
    """Numbers of tokens."""

    def __init__(self, vocabulary: Vocabulary | None, unknown: int | None) -> None:
        if vocabulary is not None and not isinstance(vocabulary, Mapping):
            vocabulary = {word: at for at, word in enumerate(vocabulary)}
        self._known, self._unknown = vocabulary, unknown

    def __call__(self, token: Any, structure: int, node: int) -> int:
        if token is None:
            return -1
        if self._known is None:
            try:
                return operator.index(token)
            except TypeError:
                raise InputError(
                    f"structure {structure}, node {node}: the token is {shown(repr(token))}; expected a "
                    "whole number, as there is no vocabulary."
                ) from None
        try:
            return int(self._known[token])
        except (KeyError, TypeError):
            if self._unknown is None:
                raise InputError(
                    f"structure {structure}, node {node}: {shown(repr(token))} is not in the vocabulary; "
                    "unknown= may say its number."
                ) from None
            return self._unknown


class _Digits(dict[str, int]):
    """The vocabulary of numbers in digits."""

    def __missing__(self, token: str) -> int:
        if not (token.isascii() and token.removeprefix("-").isdigit()) or len(token) > 10:
            raise KeyError(token)
        return int(token)


def _nested(
    items: Iterable[Any], parts: Any, vocabulary: Vocabulary | None, unknown: int | None, name: str
) -> Structures:
    """Trees of anything of which `parts` gives token and children, children first; without recursion."""
    look = _Lookup(vocabulary, unknown)
    owns: list[list[list[int]]] = []
    numbers: list[int] = []
    for b, item in enumerate(_list(items)):
        own: list[list[int]] = []
        results: list[int] = []  # nodes whose parent has not been made
        waiting: list[tuple[Any, int]] = [(item, -1)]
        while waiting:
            tree, count = waiting.pop()
            if count < 0:
                token, children = parts(tree)
                children = list(children)
                if token is None and not children:
                    raise InputError(f"structure {b}, node {len(own)}: it has neither a token nor children.")
                waiting.append((token, len(children)))
                waiting += [(child, -1) for child in reversed(children)]
                continue
            numbers.append(look(tree, b, len(own)))
            own.append(results[len(results) - count :])
            del results[len(results) - count :]
            results.append(len(own) - 1)
        owns.append(own)
    return _packed(owns, {name: np.array(numbers, np.int32)})


def _packed(owns: Sequence[Sequence[Sequence[int]]], inputs: Mapping[str, np.ndarray]) -> Structures:
    """`Structures` of lists of each node's children, numbered within their structure."""
    starts, first, child = [0], [0], []
    for b, own in enumerate(owns):
        base, size = starts[-1], len(own)
        for node, children in enumerate(own):
            for one in children:
                if not -1 <= one < size:
                    raise InputError(
                        f"structure {b}, node {node}: its child {one} is no node of this structure."
                    )
                child.append(one + base if one >= 0 else -1)
            first.append(len(child))
        starts.append(base + size)
    return Structures(
        np.array(starts, np.int64), np.array(first, np.int32), np.array(child, np.int32), dict(inputs)
    )


def _inputs(given: Mapping[str, Any], owns: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """Inputs by name, of all nodes behind one another."""
    count, found = sum(map(len, owns)), {}
    for name, one in given.items():
        is_parts = isinstance(one, list | tuple) and len(one) == len(owns) and len(one) and np.ndim(one[0])
        try:
            parts = [_numpy(part) for part in one] if is_parts else []
            whole = len(parts) == len(owns) and [len(part) for part in parts] == [len(own) for own in owns]
            array = np.concatenate(parts) if whole else _numpy(one)
        except ValueError:
            raise InputError(f"input {name!r}: its arrays differ in shape, or a node has none.") from None
        if array.dtype.kind not in "iufb" or array.ndim not in (1, 2) or len(array) != count:
            raise InputError(
                f"input {name!r} is {array.dtype} of shape {array.shape}; expected numbers or vectors of "
                f"{count} nodes."
            )
        found[name] = array.astype(np.int32 if array.ndim == 1 and array.dtype.kind in "iu" else np.float32)
    return found


def _upward(edges: str) -> bool:
    if edges not in ("to_parent", "to_child"):
        raise InputError(f"edges is {edges!r}; expected 'to_parent' or 'to_child'")
    return edges == "to_parent"


def _whole(given: Any, where: str, axes: int) -> np.ndarray:
    array = _numpy(given)
    if array.ndim != axes or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{where}: it is {array.dtype} of shape {array.shape}; expected whole numbers of {axes} axes."
        )
    return array


def _numpy(given: Any) -> np.ndarray:
    return np.asarray(given.numpy() if hasattr(given, "numpy") else given)


def _list(items: Any) -> list[Any]:
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InputError(
            f"structures are {shown(repr(items))}; expected a list with one item for each structure."
        )
    return list(items)
