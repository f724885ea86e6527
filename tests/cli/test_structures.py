"""Structures from files: every format gives the same arrays, and mistakes are told by line and node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.structures.structures_in import StructureFile, joined
from hbtvm.cli.structures.words_in import read_vocabulary
from hbtvm.errors import HbtvmError, InputError
from hbtvm.recursive.cell import Cell, Input
from hbtvm.recursive.checking import check
from hbtvm.recursive.records.words import Words, words_of
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from tests.recursive.random_cells import random_structures

LINES = ["not", "very", "good", "works", "it", "unk"]
WORDS = Vocabulary(tuple(LINES))
WORD = {"word": Input("number", 6, True)}
BOTH = {"word": Input("number", 6, True), "x": Input("vector", 2)}
TREES = [["not", ["very", "good"]], ["it", "works"], "good"]


def read(
    path: Path,
    text: str | None = None,
    children: int | None = 2,
    inputs: Any = WORD,
    words: Vocabulary | None = WORDS,
    labels: str = "none",
) -> Structures:
    """All of a file."""
    if text is not None:
        path.write_text(text)
    return joined([one.structures for one in StructureFile(path, children, inputs, words, labels).blocks()])


def assert_equal(found: Structures, expected: Structures) -> None:
    for name in ("starts", "first", "child"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    assert found.inputs.keys() == expected.inputs.keys()
    for name, one in expected.inputs.items():
        np.testing.assert_array_equal(found.inputs[name], one)


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("a.txt", "(not (very good))\n(it works)\ngood\n", "none"),
        ("a.trees", "(3 (2 not) (4 (1 very) (1 good)))\r\n(0 (1 it) (2 works))\r\n(3 good)\r\n\n", "drop"),
        ("a.json", json.dumps(TREES), "none"),
        ("a.jsonl", "\n".join(map(json.dumps, TREES)), "none"),
        (
            "b.jsonl",
            '{"children": [{"word": "not"}, {"word": null, "children": ["very", "good"]}]}\n'
            '{"parents": [2, 2, null], "inputs": {"word": ["it", 3, -1]}}\n'
            '{"children": [[]], "inputs": {"word": ["good"]}}\n',
            "none",
        ),
    ],
)
def test_the_same_trees_in_all_formats(name: str, text: str, labels: str, tmp_path: Path) -> None:
    found = read(tmp_path / name, text, labels=labels)
    assert_equal(found, rec.trees(TREES, LINES))


def test_words_of_inner_nodes(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", "(good (very it) (not works))", labels="words")
    assert_equal(found, rec.brackets(["(good (very it) (not works))"], LINES, labels="words"))


def test_sequences(tmp_path: Path) -> None:
    """Where a node has one child."""
    rows = [["it", "works"], ["very", "very", "good"]]
    text = "\n".join(" ".join(row) for row in rows)
    for name, given in (("a.txt", text), ("a.json", json.dumps(rows))):
        assert_equal(read(tmp_path / name, given, children=1), rec.sequences(rows, LINES))
    objects = '[[{"word": 1, "x": [1, 2]}, {"word": 2, "x": [0.5, -1]}]]'
    found = read(tmp_path / "b.json", objects, children=1, inputs=BOTH)
    np.testing.assert_array_equal(found.child, [0])
    np.testing.assert_array_equal(found.inputs["x"], np.array([[1, 2], [0.5, -1]], np.float32))


def _cell() -> Cell:
    return rec.cell(children=3, state={"h": 2}, inputs={"x": rec.vector(2)})(
        lambda node, w: {"h": node.x + rec.total(node.children.h)}
    ).bind({})


def test_arrays_and_records_of_graphs(tmp_path: Path) -> None:
    """Of random graphs, in blocks, back from what was written."""
    cell = _cell()
    given = random_structures(cell, 4, count=40)
    path = tmp_path / "a.npz"
    arrays = {"starts": given.starts, "first": given.first, "child": given.child, "x": given.inputs["x"]}
    np.savez(path, **arrays)
    assert_equal(read(path, children=3, inputs=cell.inputs), given)
    lines = []
    for b in range(len(given)):
        low, high = given.starts[b], given.starts[b + 1]
        own = [given.child[given.first[v] : given.first[v + 1]] for v in range(low, high)]
        children = [[int(one - low) if one >= 0 else None for one in children] for children in own]
        inputs = {"x": given.inputs["x"][low:high].tolist()}
        lines.append(json.dumps({"children": children, "inputs": inputs}))
    assert_equal(read(tmp_path / "a.jsonl", "\n".join(lines), children=3, inputs=cell.inputs), given)


def test_arrays_of_places_and_of_parents(tmp_path: Path) -> None:
    path, word = tmp_path / "a.npz", np.array([0, 1, -1, 3, 4, 5])
    table = np.array([[-1, -1], [-1, -1], [0, 1], [-1, -1], [3, -1], [-1, 4]])
    np.savez(path, child=table, starts=[0, 3, 6], word=word)
    found = read(path)
    expected = rec.child_arrays([table[:3], np.where(table[3:] < 0, -1, table[3:] - 3)], {"word": word})
    assert_equal(found, expected)
    parents = np.array([2, 2, -1, 4, 5, -1])
    np.savez(path, parent=parents, starts=[0, 3, 6], word=word)
    own = [parents[:3], np.where(parents[3:] < 0, -1, parents[3:] - 3)]
    assert_equal(read(path), rec.parent_arrays(own, {"word": word}))
    np.savez(path, parent=parents[:3], word=word[:3])
    assert len(read(path)) == 1


def test_blocks(tmp_path: Path) -> None:
    """Large files come in parts, which name places in the file."""
    path = tmp_path / "a.txt"
    path.write_text("(it works)\n" * 10_000)
    blocks = [*StructureFile(path, 2, WORD, WORDS).blocks()]
    assert [len(one.structures) for one in blocks] == [4096, 4096, 1808]
    assert blocks[1].places[:2] == ["line 4097", "line 4098"]
    assert len(joined([one.structures for one in blocks])) == 10_000
    count = 30_000
    np.savez(tmp_path / "a.npz", child=np.full((count, 2), -1), starts=np.arange(0, count + 1, 3),
             word=np.zeros(count, int))  # fmt: skip
    blocks = [*StructureFile(tmp_path / "a.npz", 2, WORD, WORDS).blocks()]
    assert [len(one.structures) for one in blocks] == [4096, 4096, 1808]
    assert blocks[2].places[0] == "structure 8192"
    # A structure is never parted, however large.
    np.savez(tmp_path / "b.npz", child=np.full((200_000, 1), -1), starts=[0, 190_000, 200_000],
             word=np.zeros(200_000, int))  # fmt: skip
    parts = [*StructureFile(tmp_path / "b.npz", 2, WORD, WORDS).blocks()]
    assert [one.places for one in parts] == [["structure 0"], ["structure 1"]]


def test_deep_trees(tmp_path: Path) -> None:
    depth = 20_000
    found = read(tmp_path / "a.txt", "(" * depth + "it" + ")" * depth, children=1)
    assert len(found.first) == depth + 2
    with pytest.raises(UsageError, match=r"a.jsonl: line 1 is not JSON"):
        read(tmp_path / "a.jsonl", "[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.txt", "(it works)\n(it foo)\n", "a.txt: line 2, node 1: 'foo' is not in the vocabulary; --unk"),
        ("a.txt", "(it works\n", "a.txt: line 1: 1 brackets are open at its end"),
        ("a.txt", "it\n(it works))", "a.txt: line 2, character 10: a bracket closes that was not opened"),
        ("a.txt", "it works\n", "a.txt: line 1, character 3: a second tree begins"),
        ("a.txt", "it\n\nit\n", "a.txt: line 2 is empty"),
        ("a.txt", "(3 (2 it) (4 works))\n", "line 1, node 7: it has 3 children; .* say --labels drop"),
        ("a.txt", "it\n(it it (it it) it)", "line 2, node 6: it has 4 children; the model takes 2 at most"),
        ("a.jsonl", '["it"]\n["it",', "a.jsonl: line 2 is not JSON"),
        ("a.jsonl", "[]", "a.jsonl: line 1, node 0: it has neither a token nor children"),
        ("a.jsonl", '["it", 6]', "node 1: its input 'word' is 6; expected a number from 0 to 5, or -1"),
        ("a.jsonl", '["it", 1.5]', "line 1, node 1: the token is 1.5; expected a word or a whole number"),
        ("a.jsonl", '["it", true]', "node 1: the token is True; expected a word"),
        ("a.jsonl", '["it", 99999999999]', "node 1: 99999999999 is out of range"),
        ("a.jsonl", '{"word": 1, "name": 2}', "node 0: the model has no input 'name'; it has 'word'"),
        ("a.jsonl", '{"word": 1, "children": 2}', "node 0: its children are 2; expected a list"),
        ("a.jsonl", '{"children": [[1], [2]], "inputs": {"word": [1, 2]}}', "node 1: its child 2 is not a"),
        ("a.jsonl", '{"parents": [1, "0"], "inputs": {}}', "node 1: its parent '0' is not a node of this"),
        ("a.jsonl", '{"children": [1], "inputs": {}}', "node 0: its children are 1; expected a list of num"),
        ("a.jsonl", '{"children": [[]], "inputs": {"word": []}}', "line 1: its input 'word' has 0 items; "),
        ("a.jsonl", '{"children": [[]], "inputs": {"word": "it"}}', "its input 'word' is 'it'; expected a "),
        ("a.jsonl", '{"children": [[]], "inputs": {"x": [1]}}', "node 0: the model has no input 'x'"),
        ("a.jsonl", '{"parents": [], "children": [], "inputs": {}}', "expected 'children' or 'parents', and"),
        ("a.jsonl", '{"parents": 3, "inputs": {}}', "expected a list with an item for each node"),
        ("a.json", '["it", ["it", "foo"]]', "a.json: structure 1, node 1: 'foo' is not in the vocabulary"),
        ("a.json", '["it"]\n["it"]', "a.json: this is not JSON .*for a structure in each line, call it"),
        ("a.csv", "1,2", "a.csv: structures with the suffix '.csv' can't be read; known are .txt, .trees"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(HbtvmError, match=sentence) as caught:
        read(tmp_path / name, text)
    assert str(caught.value).startswith(str(tmp_path / name)) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('{"word": 1}', "node 0: its input 'x' is missing"),
        ('{"x": [1], "word": 1}', "node 0: its input 'x' is .1.; expected a list of 2 numbers"),
        ('{"x": ["1", "2"]}', "node 0: its input 'x' is .'1', '2'.; expected a list of 2 numbers"),
        ('{"x": [[1], [1, 2]]}', "node 0: its input 'x' is .*; expected a list of 2 numbers"),
        ('["it", "works"]', "node 0: it is 'it'; expected an object with the inputs .* 'word', 'x'"),
    ],
)
def test_several_inputs(given: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(HbtvmError, match=f"line 1, {sentence}"):
        read(tmp_path / "a.jsonl", given, inputs=BOTH)
    with pytest.raises(UsageError, match=r"text has a word at a node, but the model takes word, x with each"):
        read(tmp_path / "a.txt", "it", inputs=BOTH)
    found = read(tmp_path / "a.jsonl", '{"x": [1, 1e39], "children": [{"x": [0, 2]}]}', inputs=BOTH)
    np.testing.assert_array_equal(found.inputs["x"], np.array([[0, 2], [1, np.inf]], np.float32))
    np.testing.assert_array_equal(found.inputs["word"], [-1, -1])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"word": [1]}, "there are 'word'; expected 'child' with 'first'"),
        ({"child": [[-1]], "parent": [-1], "word": [1]}, "expected 'child' with 'first'"),
        ({"first": [0, 0], "word": [1]}, "expected 'child' with 'first'"),
        ({"child": [-1], "word": [1]}, r"child is int64 of shape \(1,\); expected whole numbers of 2 axes"),
        ({"child": [[0.5]], "word": [1]}, "child is float64"),
        ({"child": [0], "first": [0, 2], "word": [1]}, "first should rise from 0 to 1"),
        ({"child": [[-2]], "word": [1]}, "child should hold numbers of nodes, and -1 for none"),
        ({"parent": [1], "word": [1]}, "parent should hold numbers of nodes"),
        ({"child": [[-1]], "starts": [0, 2], "word": [1]}, "starts should rise from 0 to 1, the number of n"),
        ({"child": [[-1]]}, "input 'word' is missing; the model's inputs are 'word'"),
        ({"child": [[-1]], "word": [1], "label": [1]}, "array 'label' is not an input"),
        ({"child": [[-1]], "word": [1, 2]}, r"'word' is of shape \(2,\); expected 1 nodes"),
    ],
)  # fmt: skip
def test_wrong_arrays(arrays: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{name: np.array(one) for name, one in arrays.items()})
    with pytest.raises(UsageError, match=rf"a.npz: .*{sentence}"):
        read(tmp_path / "a.npz")


def test_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.save(tmp_path / "one.npy", np.zeros(3))
    objects = np.array([{}], object)
    np.savez(tmp_path / "objects.npz", child=objects)
    contents = [b"", b"PK\x03\x04 no archive", (tmp_path / "one.npy").read_bytes()]
    for content in [*contents, (tmp_path / "objects.npz").read_bytes()]:
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"this is not a \.npz file of arrays of numbers"):
            read(path)


def test_vocabularies(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffit\r\nça va\r\n\u2028\r\n\r\n".encode())
    words = words_of(read_vocabulary(str(path), "it", "none", WORD))
    assert words.numbers == {"it": 0, "ça va": 1, "\u2028": 2} and words.unknown == 0
    assert words.number("foo", "here") == 0 and words.number("ça va", "here") == 1
    assert words_of(None).number("5", "here") == 5


@pytest.mark.parametrize(
    ("content", "unknown", "sentence"),
    [
        ("it\n\nworks", "error", "line 2 is empty"),
        ("it\nworks\nit", "error", "'it' is in line 1 and again in line 3"),
        ("a\nb\nc\nd\ne\nf\ng", "error", "there are 7 words; the model's 'word' has 6"),
        ("it", "unk", "--unknown unk: .*words.txt has no such word"),
    ],
)
def test_wrong_vocabularies(content: str, unknown: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text(content)
    with pytest.raises(UsageError, match=sentence):
        read_vocabulary(str(path), unknown, "none", WORD)


def test_vocabularies_that_nothing_takes(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"it")
    with pytest.raises(UsageError, match="takes no numbers"):
        read_vocabulary(str(path), "error", "none", {"x": Input("vector", 2)})
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        read_vocabulary(str(path), "error", "none", WORD)
    with pytest.raises(HbtvmError, match="'it' is not a number; --vocabulary names a file of words"):
        Words().number("it", "here")


def _random_json(rng: np.random.Generator, depth: int = 0) -> Any:
    """What may stand in a file, right or wrong."""
    kind = int(rng.integers(0, 5 if depth > 4 else 9))
    if kind < 5:
        return [None, int(rng.integers(-2, 8)), str(rng.choice([*LINES, "x", "7"])), 0.5, True][kind]
    items = [_random_json(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
    if kind < 8:
        return items
    names = rng.permutation(["children", "parents", "inputs", "word", "x", "other"])[: len(items)]
    return dict(zip(names.tolist(), items, strict=True))


def test_whatever_is_read_is_right_or_refused(tmp_path: Path) -> None:
    """With a sentence about the line, and never with structures that are wrong."""
    rng = np.random.default_rng(8)
    good = 0
    for trial in range(800):
        value = _random_json(rng)
        cell = rec.cell(children=(1, 2, None)[trial % 3], state={"h": 2}, inputs=INPUTS[trial % 2])(
            lambda node, w: {"h": rec.total(node.children.h)}
        )
        bound = cell.bind({"words": np.zeros((6, 2), np.float32)})
        assert bound.inputs.keys() <= {"word", "x"}
        path = tmp_path / "a.jsonl"
        try:
            found = read(path, json.dumps(value), bound.children, bound.inputs)
        except HbtvmError as error:
            assert str(error).startswith(f"{path}: line 1"), error
            continue
        good += 1
        try:
            check(found, bound)
        except InputError as error:
            assert "depends on itself" in str(error), error
    assert 40 < good < 760


INPUTS: tuple[Any, ...] = (
    {"word": rec.embedding("words", optional=True)},
    {"word": rec.embedding("words", optional=True), "x": rec.vector(2)},
)


def test_any_text_is_right_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    good = 0
    for trial in range(300):
        text = " ".join(rng.choice(["(", ")", "it", "3", "works", "foo"], int(rng.integers(1, 9))).tolist())
        for labels in ("none", "drop", "words"):
            try:
                found = read(tmp_path / "a.txt", text, (1, 2, None)[trial % 3], labels=labels)
            except HbtvmError as error:
                assert str(error).startswith(f"{tmp_path}/a.txt: line 1"), error
                continue
            good += 1
            assert len(found) == 1 and len(found.first) >= 2
            assert (found.inputs["word"] >= -1).all()
    assert good > 20
