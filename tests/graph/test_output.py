"""`OutputSpec`: ties, types, shapes, JSON, and what is not offered."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.codec import CodecError
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.outputs.output import Output, OutputSpec, likeliest
from hbtvm.operators.base import Input, Node, constant, in_order
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.formulas import float32_sigmoid, sigmoid, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select
from tests.models import ZOO, data
from tests.oracle import margins

NAMES = np.array(["no", "yes"])


def _column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)[:, None]


@pytest.mark.parametrize("name", ZOO)
def test_json_gives_an_equal_specification(name: str) -> None:
    graph = from_object(ZOO[name]())
    text = json.dumps(codec.write(graph.output))
    found = codec.read(OutputSpec, json.loads(text))
    assert json.dumps(codec.write(found)) == text
    for ours, theirs in zip(found.classes, graph.output.classes, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    raw = margins(graph, data()[0][:5])
    np.testing.assert_array_equal(found.compute(None, raw), graph.output.compute(None, raw))


@pytest.mark.parametrize("name", ZOO)
def test_one_row_and_none(name: str) -> None:
    graph = from_object(ZOO[name]())
    output = graph.output
    raw = margins(graph, data()[0][:4])
    for method in (None, *output.outputs):
        whole, one, none = (output.compute(method, rows) for rows in (raw, raw[:1], raw[:0]))
        if not isinstance(whole, list):
            whole, one, none = [whole], [one], [none]
        for some, single, empty in zip(whole, one, none, strict=True):
            np.testing.assert_array_equal(some[:1], single)
            assert empty.shape == (0, *some.shape[1:])
            assert empty.dtype == some.dtype


def test_ties_of_many_classes_take_the_first() -> None:
    raw = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    for response in (Input(3), softmax(Input(3)), sigmoid(Input(3))):
        output = OutputSpec("classifier", 3, likeliest(response), (np.array(["a", "b", "c"]),))
        assert output.compute(None, raw).tolist() == ["a", "b", "a"]


def test_two_classes_that_are_as_likely_take_the_first() -> None:
    output = OutputSpec("classifier", 1, likeliest(sigmoid(Input(1))), (NAMES,))
    assert output.compute(None, _column(-1, -0.0, 0.0, 1)).tolist() == ["no", "no", "no", "yes"]


def test_extreme_scores_give_no_warning() -> None:
    raw = _column(-1e4, -800, 800, 1e4)
    for node in (sigmoid(Input(1)), apply("exp", Input(1)), float32_sigmoid(Input(1))):
        for response, dtype in ((node, "float64"), (apply("round_float32", node), "float32")):
            found = OutputSpec("regressor", 1, {"response": response}).compute(None, raw)
            assert found.dtype == dtype
            assert not np.isnan(found).any()
    wide = OutputSpec("booster", 2, {"response": apply("round_float32", softmax(Input(2)))})
    np.testing.assert_array_equal(wide.compute(None, np.array([[1e4, -1e4]])), [[1, 0]])


def test_outputs_that_a_model_lacks_are_named() -> None:
    output = OutputSpec("regressor", 1, dict.fromkeys(("response", "raw"), Input(1)))
    lacking: tuple[Output, ...] = ("proba", "label", "decision", "score")
    for method in lacking:
        with pytest.raises(InputError, match=r"this regressor has no .*; it has: raw\."):
            output.compute(method, _column(1))
    with pytest.raises(InputError, match="it has: only its prediction"):
        OutputSpec("regressor", 1, {"response": Input(1)}).compute("raw", _column(1))


_NODES = (
    apply("exp", Input(2)),
    select(Input(2), [1]),
    concat([Input(2), constant(0.5)]),
    reduce("argmax", Input(2)),
    Coupling(Input(1), 2),
)


@pytest.mark.parametrize("node", _NODES, ids=[node.kind for node in _NODES])
def test_nodes_of_damaged_packages(node: Node) -> None:
    """A field that is of another type, out of range, unknown or missing is refused."""
    width = next(one.width for one in in_order(node) if isinstance(one, Input))
    whole = codec.write(OutputSpec("booster", width, {"response": node}))
    for at, one in enumerate(whole["shared"]):
        for name in one:
            for bad in ([], -1, 10**6, "open", None, [0, 9], [7]):
                if one[name] == bad or (name == "values" and bad in ([0, 9], [7])):
                    continue
                shared = [*whole["shared"]]
                shared[at] = {**one, name: bad}
                with pytest.raises(CodecError):
                    codec.read(OutputSpec, {**whole, "shared": shared})
            del shared[at][name]
            with pytest.raises(CodecError):
                codec.read(OutputSpec, {**whole, "shared": shared})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "oracle"),
        ("nodes", {"response": 9}),
        ("nodes", {"fortune": 0}),
        ("n_outputs", 0),
        ("n_outputs", 2),
        ("n_outputs", "two"),
        ("classes", [["|O", "text"]]),
        ("classes", [["no type", []]]),
        ("classes", [["V8", []]]),
        ("classes", [["<U5,<U5", ["a"]]]),
        ("classes", [["<i8", ["a"]]]),
        ("classes", [["|u1", [256]]]),
        ("label_dtype", "text"),
        ("label_dtype", "M8[s]"),
        ("selects", [0, 1]),
        ("finite", 1),
        ("extra", 1),
    ],
)
def test_json_that_cannot_be(name: str, value: object) -> None:
    data_ = codec.write(OutputSpec("regressor", 1, {"response": Input(1)}))
    data_[name] = value
    with pytest.raises(CodecError, match="selected" if name == "selects" else "nodes|" + name):
        codec.read(OutputSpec, data_)


def test_classes_that_do_not_fit() -> None:
    two = Input(2)
    for nodes in ({"index": two}, {"index": reduce("argmax", two), "proba": two}):
        spec = OutputSpec("classifier", 2, nodes, (NAMES, NAMES, NAMES))
        with pytest.raises(CodecError, match="nodes: index"):
            codec.read(OutputSpec, codec.write(spec))


def test_json_that_lacks_a_field() -> None:
    data_ = codec.write(OutputSpec(kind="regressor", n_outputs=1))
    del data_["n_outputs"]
    with pytest.raises(CodecError, match="n_outputs"):
        codec.read(OutputSpec, data_)
