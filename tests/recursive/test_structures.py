"""What people hold of structures, and what is said of those that do not fit."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.errors import InputError
from hbtvm.recursive.cell import Input
from hbtvm.runtime.recursive.structures import Structures

WORDS = ["not", "very", "good"]


def lists(structures: Structures) -> list[list[int]]:
    first, child = structures.first.tolist(), structures.child.tolist()
    return [child[a:b] for a, b in pairwise(first)]


def test_trees_of_lists() -> None:
    found = rec.trees([["not", ["very", "good"]], "good"], WORDS)
    assert lists(found) == [[], [], [], [1, 2], [0, 3], []]
    assert found.inputs["word"].tolist() == [0, 1, 2, -1, -1, 2]
    assert found.starts.tolist() == [0, 5, 6] and len(found) == 2
    assert (found.starts.dtype, found.child.dtype) == (np.int64, np.int32)


def test_deep_trees() -> None:
    tree: object = 1
    for _ in range(5000):
        tree = [tree]
    assert len(rec.trees([tree]).first) == 5002
    assert len(rec.brackets(["(" * 5000 + "1" + ")" * 5000], labels="none").first) == 5002


def test_brackets() -> None:
    tree = rec.brackets(["(3 (2 not) (4 (2 very) (3 good)))"], WORDS)
    assert lists(tree) == [[], [], [], [1, 2], [0, 3]]
    assert tree.inputs["word"].tolist() == [0, 1, 2, -1, -1]
    plain = rec.brackets(["(not (very good))"], WORDS, labels="none")
    assert lists(plain) == lists(tree) and plain.inputs["word"].tolist() == [0, 1, 2, -1, -1]
    syntax = rec.brackets(["(not (very good))"], WORDS, labels="words")
    assert lists(syntax) == [[], [0], [1]] and syntax.inputs["word"].tolist() == [2, 1, 0]
    assert rec.brackets(["(0 (0 7) (0 -1))"]).inputs["word"].tolist() == [7, -1, -1]


class Tree(list):
    """As nltk's."""

    def __init__(self, label: str, children: list[object]) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> str:
        return self._label


def test_nltk() -> None:
    tree = Tree("S", [Tree("R", ["not"]), Tree("A", [Tree("R", ["very"]), Tree("A", ["good"])])])
    found = rec.nltk([tree], WORDS)
    assert lists(found) == [[], [], [], [1, 2], [0, 3]]
    assert found.inputs["word"].tolist() == [0, 1, 2, -1, -1]
    vocabulary = {"S": 3, "R": 4, "A": 5, "not": 0, "very": 1, "good": 2}
    both = rec.nltk([tree], vocabulary, labels="words")
    assert both.inputs["word"].tolist() == [0, 4, 1, 4, 2, 5, 5, 3]


def test_sequences() -> None:
    found = rec.sequences([["not", "good"], [], ["rather"]], WORDS, unknown=1)
    assert lists(found) == [[], [0], []] and found.starts.tolist() == [0, 2, 2, 3]
    assert found.inputs["word"].tolist() == [0, 2, 1]


def test_arrays() -> None:
    parents = rec.parent_arrays([[2, 2, -1], [-1]], {"word": [[5, 6, 7], [8]]})
    assert lists(parents) == [[], [], [0, 1], []] and parents.inputs["word"].tolist() == [5, 6, 7, 8]
    children = [np.array([[-1, -1], [-1, -1], [0, 1]]), np.array([[-1, -1]])]
    x = np.ones((4, 3))
    found = rec.child_arrays(children, {"x": x, "word": np.arange(4)})
    assert lists(found) == [[-1, -1], [-1, -1], [0, 1], [-1, -1]]
    assert found.inputs["x"].dtype == np.float32 and found.inputs["word"].dtype == np.int32


def test_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_node("a", word=4)
    graph.add_node("b")
    graph.add_edge("a", "b", place=1)
    graph.add_edge("c", "b", place=0)
    up = rec.networkx([graph, graph], {"word": "word"})
    assert lists(up) == [[], [0, 2], [], [], [3, 5], []]
    assert up.inputs["word"].tolist() == [4, -1, -1] * 2
    assert lists(rec.networkx([graph], {}, edges="to_child")) == [[1], [], [1]]
    assert lists(rec.networkx([graph], {}, place="place")) == [[], [2, 0], []]


def test_dgl() -> None:
    def tensor(*numbers: int) -> SimpleNamespace:
        return SimpleNamespace(numpy=lambda: np.array(numbers))

    graph = SimpleNamespace(
        num_nodes=lambda: 3, edges=lambda: (tensor(0, 1), tensor(2, 2)), ndata={"x": tensor(5, 6, 7)}
    )
    found = rec.dgl([graph, graph], {"word": "x"})
    assert lists(found) == [[], [], [0, 1], [], [], [3, 4]]
    assert found.inputs["word"].tolist() == [5, 6, 7, 5, 6, 7]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: rec.trees([["not"], ["not", "bad"]], WORDS), "structure 1, node 1: 'bad' is not in the"),
        (lambda: rec.trees([[1], [1, []]]), "structure 1, node 1: it has neither"),
        (lambda: rec.trees(["good"]), "structure 0, node 0: the token is 'good'"),
        (lambda: rec.trees("not good"), "expected a list"),
        (lambda: rec.brackets(["(0 1)", "(0 (1 2)"]), "structure 1: 1 brackets are open"),
        (lambda: rec.brackets(["(0 1))"]), "character 5: a bracket closes"),
        (lambda: rec.brackets(["(0 1) (0 1)"]), "a second tree"),
        (lambda: rec.brackets(["(0 1)", ""]), "structure 1: it is empty"),
        (lambda: rec.brackets(["(0)"]), "bracket is empty"),
        (lambda: rec.parent_arrays([[-1], [1, 2]], {}), "structure 1, node 1: its parent 2"),
        (lambda: rec.child_arrays([[[-1], [2]]], {}), "structure 0, node 1: its child 2"),
        (lambda: rec.child_arrays([[[-1]]], {"word": [1, 2]}), r"of shape \(2,\)"),
    ],
)
def test_mistakes(call: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()


MODEL = SimpleNamespace(children=2, inputs={"word": Input("number", 3), "x": Input("vector", 2)})


def given(starts=(0, 1, 4), first=(0, 0, 0, 1, 3), child=(1, 2, -1), word=(0, 1, 2, 0), x=None) -> Structures:
    vectors = np.zeros((4, 2), np.float32) if x is None else x
    arrays = [np.array(one) for one in (starts, first, child)]
    return Structures(*arrays, {"word": np.array(word), "x": vectors})


def test_structures_that_fit() -> None:
    rec.check(given(), MODEL)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"child": (1, 0, -1)}, "structure 1, node 2: a child is not a node"),
        ({"child": (3, 2, -1)}, "structure 1, node [12]: it depends on itself"),
        ({"child": (1, 3, -1)}, "structure 1, node 2: it depends on itself"),
        ({"first": (0, 0, 0, 0, 3)}, "structure 1, node 2: it has 3 places"),
        ({"first": (0, 0, 0, 0, 2)}, "should rise"),
        ({"starts": (0, 5, 4)}, "should rise"),
        ({"word": (0, 1, 3, 0)}, "structure 1, node 1: 'word' is 3; expected a number from 0 to 2"),
        ({"word": (-1, 1, 2, 0)}, "structure 0, node 0: 'word' is -1"),
        ({"word": (0, 1, 2)}, r"of shape \(3,\)"),
        ({"x": np.zeros((4, 3))}, r"expected numbers of shape \(4, 2\)"),
    ],
)
def test_structures_that_do_not_fit(change: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        rec.check(given(**change), MODEL)
