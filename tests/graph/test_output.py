"""`OutputSpec`: ties, types, shapes, JSON, and what is not offered."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.codec import CodecError
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.outputs.output import OutputSpec
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
    assert found == graph.output
    assert hash(found) == hash(graph.output)
    assert json.dumps(codec.write(found)) == text
    for ours, theirs in zip(found.classes, graph.output.classes, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    raw = margins(graph, data()[0][:5])
    np.testing.assert_array_equal(found.predict(raw), graph.output.predict(raw))


@pytest.mark.parametrize("name", ZOO)
def test_one_row_and_none(name: str) -> None:
    graph = from_object(ZOO[name]())
    output = graph.output
    raw = margins(graph, data()[0][:4])
    for method in ("predict", *output.available()):
        function = getattr(output, {"label": "labels"}.get(method, method))
        whole, one, none = function(raw), function(raw[:1]), function(raw[:0])
        if not isinstance(whole, list):
            whole, one, none = [whole], [one], [none]
        for some, single, empty in zip(whole, one, none, strict=True):
            np.testing.assert_array_equal(some[:1], single)
            assert empty.shape == (0, *some.shape[1:])
            assert empty.dtype == some.dtype


def test_ties_of_two_classes() -> None:
    """Each library decides for itself about a row that is exactly in the middle."""
    common = {"kind": "classifier", "n_outputs": 1, "classes": (NAMES,), "outputs": ("label", "proba")}
    raw = _column(-1, -0.0, 0.0, 1)
    expected = {
        "raw_not_negative": ["no", "yes", "yes", "yes"],  # GradientBoosting
        "raw_positive": ["no", "no", "no", "yes"],  # HistGradientBoosting
        "above_half": ["no", "no", "no", "yes"],  # XGBoost
        "argmax": ["no", "no", "no", "yes"],  # LightGBM
    }
    for rule, labels in expected.items():
        output = OutputSpec(transform="sigmoid", label_rule=rule, **common)  # type: ignore[arg-type]
        assert output.predict(raw).tolist() == labels, rule


def test_ties_of_many_classes_take_the_first() -> None:
    names = np.array(["a", "b", "c"])
    raw = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    for rule, transform in (("raw_argmax", "softmax"), ("argmax", "softmax"), ("argmax", "class_index")):
        output = OutputSpec(
            kind="classifier",
            n_outputs=3,
            transform=transform,  # type: ignore[arg-type]
            label_rule=rule,  # type: ignore[arg-type]
            classes=(names,),
            outputs=("label", "proba"),
        )
        assert output.predict(raw).tolist() == ["a", "b", "a"]


def test_extreme_scores_give_no_warning() -> None:
    raw = _column(-1e4, -800, 800, 1e4)
    for dtype in ("float32", "float64"):
        for transform in ("sigmoid", "exp", "softplus"):
            output = OutputSpec(kind="regressor", n_outputs=1, transform=transform, dtype=dtype)  # type: ignore[arg-type]
            found = output.predict(raw)
            assert found.dtype == dtype
            assert not np.isnan(found).any()
    wide = OutputSpec(kind="booster", n_outputs=2, transform="softmax", dtype="float32")
    np.testing.assert_array_equal(wide.predict(np.array([[1e4, -1e4]])), [[1, 0]])


def test_outputs_that_a_model_lacks_are_named() -> None:
    output = OutputSpec(kind="regressor", n_outputs=1, outputs=("raw",))
    for method in ("proba", "labels", "decision", "score"):
        with pytest.raises(InputError, match=r"this regressor has no .*; it has: raw\."):
            getattr(output, method)(_column(1))
    with pytest.raises(InputError, match="it has: only its prediction"):
        OutputSpec(kind="regressor", n_outputs=1).raw(_column(1))


def test_unequal_specifications() -> None:
    output = OutputSpec(kind="classifier", n_outputs=1, classes=(NAMES,))
    assert output != OutputSpec(kind="classifier", n_outputs=1, classes=(NAMES[::-1],))
    assert output != "classifier"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "oracle"),
        ("transform", "cosine"),
        ("dtype", "float16"),
        ("label_rule", "coin"),
        ("outputs", ["fortune"]),
        ("n_outputs", 0),
        ("n_outputs", "two"),
        ("classes", [["|O", "text"]]),
        ("classes", [["no type", []]]),
        ("classes", [["V8", []]]),
        ("classes", [["<U5,<U5", ["a"]]]),
        ("classes", [["<i8", ["a"]]]),
        ("classes", [["|u1", [256]]]),
        ("scale", {"float": "nan"}),
        ("label_dtype", "text"),
        ("label_dtype", "M8[s]"),
        ("selects", [0, 1]),
        ("slices", {"proba": [0, 1]}),
        ("scale", "wide"),
        ("extra", 1),
    ],
)
def test_json_that_cannot_be(name: str, value: object) -> None:
    data_ = codec.write(OutputSpec(kind="regressor", n_outputs=1))
    data_[name] = value
    with pytest.raises(CodecError, match="selected" if name == "selects" else name):
        codec.read(OutputSpec, data_)


def test_json_that_lacks_a_field() -> None:
    data_ = codec.write(OutputSpec(kind="regressor", n_outputs=1))
    del data_["n_outputs"]
    with pytest.raises(CodecError, match="n_outputs"):
        codec.read(OutputSpec, data_)
