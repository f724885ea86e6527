"""Converters of trees, graphs and sequences to `Structures` of a batch.

Converters take a list of structures. A vocabulary (a mapping to numbers, a list of words in the order of
their numbers, or a model's) gives the number of each node's token; without a vocabulary, tokens are numbers.
Nodes without a token get the number -1, which an optional input turns into zeros. Children come before
parents, except in arrays and graphs, whose nodes keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hbtvm.errors import InputError
from hbtvm.recursive.checking import check
from hbtvm.recursive.graphs import child_arrays, dgl, networkx, parent_arrays
from hbtvm.recursive.packing import listed, packed
from hbtvm.recursive.texts import parse
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.runtime.recursive.vocabulary import Vocabulary as Words
from hbtvm.words.printable import shown

__all__ = [
    "Structures", "brackets", "check", "child_arrays", "dgl", "networkx", "nltk", "parent_arrays",
    "sequences", "trees",
]  # fmt: skip

Vocabulary = Mapping[Any, int] | Sequence[Any] | Words


def trees(
    items: Iterable[Any],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
) -> Structures:
    """Convert nested lists or tuples with tokens at their leaves: ``["not", ["very", "good"]]``.

    Parameters
    ----------
    vocabulary, unknown
        Numbers of tokens; `unknown` is the number of tokens that the vocabulary lacks.
    name
        The input for tokens.

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
    """Convert bracketed texts, one tree in each.

    Parameters
    ----------
    labels
        ``"drop"``: each bracket begins with a label to ignore, as in treebanks: ``(3 (2 It) (4 works))`` has
        three nodes; ``"words"``: each bracket begins with its node's token, followed by the children;
        ``"none"``: a bracket holds only children: ``(a (b c))`` has five nodes.
    vocabulary, unknown, name
        See `trees`; without a vocabulary, tokens are numbers in digits.

    Raises
    ------
    InputError
        As `trees`, and if a text is not a tree.
    """
    if labels not in ("drop", "words", "none"):
        raise InputError(f"labels is {labels!r}; expected 'drop', 'words' or 'none'")
    parsed = [parse(text, b, labels) for b, text in enumerate(listed(texts))]
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
    """Convert trees of ``nltk.Tree``: sequences of children with a method ``label``; leaves are tokens.

    With `labels` ``"drop"``, a node with a single token is a leaf, as in treebanks; with ``"words"``, labels
    are tokens of inner nodes. Other parameters as in `trees`.
    """

    def parts(tree: Any) -> tuple[Any, Sequence[Any]]:
        if not hasattr(tree, "label"):
            return tree, ()
        children = list(tree)
        if labels == "words":
            return tree.label(), children
        return (
            (children[0], ())
            if len(children) == 1 and not hasattr(children[0], "label")
            else (None, children or (None,))
        )

    return _nested(items, parts, vocabulary, unknown, name)


def sequences(
    items: Iterable[Iterable[Any]],
    vocabulary: Vocabulary | None = None,
    unknown: int | None = None,
    name: str = "word",
) -> Structures:
    """Convert sequences of tokens; each is the only child of the next. Empty sequences have no nodes."""
    look = _Lookup(vocabulary, unknown)
    structures: list[list[list[int]]] = []
    numbers: list[int] = []
    for b, item in enumerate(listed(items)):
        tokens = [look(token, b, at) for at, token in enumerate(item)]
        numbers += tokens
        structures.append([[at - 1] if at else [] for at in range(len(tokens))])
    return packed(structures, {name: np.array(numbers, np.int32)})


class _Lookup:
    """Numbers of tokens."""

    def __init__(self, vocabulary: Vocabulary | None, unknown: int | None) -> None:
        if isinstance(vocabulary, Words):
            unknown = vocabulary.unknown if unknown is None else unknown
            vocabulary = vocabulary.numbers
        elif vocabulary is not None and not isinstance(vocabulary, Mapping):
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
    """Convert trees without recursion; `parts` returns a node's token and children."""
    look = _Lookup(vocabulary, unknown)
    structures: list[list[list[int]]] = []
    numbers: list[int] = []
    for b, item in enumerate(listed(items)):
        children_of: list[list[int]] = []
        results: list[int] = []  # nodes without a parent yet
        waiting: list[tuple[Any, int]] = [(item, -1)]
        while waiting:
            tree, count = waiting.pop()
            if count < 0:
                token, children = parts(tree)
                children = list(children)
                if token is None and not children:
                    raise InputError(
                        f"structure {b}, node {len(children_of)}: it has neither a token nor children."
                    )
                waiting.append((token, len(children)))
                waiting += [(child, -1) for child in reversed(children)]
                continue
            numbers.append(look(tree, b, len(children_of)))
            children_of.append(results[len(results) - count :])
            del results[len(results) - count :]
            results.append(len(children_of) - 1)
        structures.append(children_of)
    return packed(structures, {name: np.array(numbers, np.int32)})
