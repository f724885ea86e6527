"""CatBoost's files without CatBoost: stored answers, hashes, refusals, tables that damaged files share."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.frontends.catboost.flatbuffers import Buffer
from hbtvm.frontends.catboost.model import from_bytes
from hbtvm.graph.columns.hashes import HashText
from tests.by_reference import predict
from tests.data.catboost.make import frame

FILES = Path(__file__).parents[2] / "data" / "catboost"
COUNTERS = (FILES / "1.2.10-counters.json").read_bytes()


@pytest.mark.parametrize("ending", ["cbm", "json"])
def test_stored_answers(ending: str, tmp_path: Path) -> None:
    """The bytes say what the file is, not its ending."""
    rows = frame()
    counters = load_model(FILES / f"1.2.10-counters.{ending}")
    assert (counters.library, counters.model) == ("catboost", "CatBoostRegressor")
    answers = np.load(FILES / "1.2.10-counters.npy")
    np.testing.assert_allclose(predict(counters, rows), answers, rtol=1e-12)
    (tmp_path / "model.bin").write_bytes((FILES / f"1.2.10-steps.{ending}").read_bytes())
    steps, numbers = load_model(tmp_path / "model.bin"), rows.drop(columns=["city", "shop"])
    raw = np.load(FILES / "1.2.10-steps.npy")
    np.testing.assert_allclose(predict(steps, numbers, "raw"), raw, rtol=1e-12)
    labels = predict(steps, numbers)
    assert labels.shape == (200, 1)
    assert labels[:, 0].tolist() == np.array(["high", "low", "mid"])[raw.argmax(axis=1)].tolist()


def test_hashes() -> None:
    """CityHash64's lower half, of texts of each length that it treats apart (values are CatBoost's)."""
    texts = ["x", "y", "z", "", "a", "abcd", "k0k0k0k0k", "é" * 10, "q" * 40, "q" * 64, "q" * 65, "w" * 300]
    hashes = [-784473192, 253272131, 476319382, 797982799, -805065478, 345588365, 1614289682, 1057439460]
    hashes += [31000323, -2065218029 + (1 << 32), 1806815843, -1084553500]
    step = HashText("column 0")
    result = step.hashes(texts)
    assert (result.astype(np.int64) & 0xFFFFFFFF).tolist() == [value & 0xFFFFFFFF for value in hashes]
    assert step.hashes([7, True, np.int8(-3), b"x"]).tolist() == step.hashes(["7", "1", "-3", "x"]).tolist()
    assert not len(step.hashes([]))


ROWS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "objects": lambda X: X.astype(object).to_numpy(),
    "lists": lambda X: X.to_numpy(object).tolist(),
    "dicts": lambda X: X.to_dict("records"),
    "string": lambda X: X.astype({"shop": "string", "day": "Int8"}),
    "category": lambda X: X.astype({"shop": "category", "city": "category", "day": "category"}),
    "text of numbers": lambda X: X.astype({"day": str}),
    "polars": lambda X: pytest.importorskip("polars").from_pandas(X),
    "polars categories": lambda X: ROWS["polars"](X).cast(
        {"shop": pytest.importorskip("polars").Categorical}
    ),
    "arrow": lambda X: pytest.importorskip("pyarrow").Table.from_pandas(X, preserve_index=False),
    "arrow categories": lambda X: ROWS["arrow"](ROWS["category"](X)),
    "one row": lambda X: X.iloc[:1],
    "one dict": lambda X: X.iloc[0].to_dict(),
    "no row": lambda X: X.iloc[:0],
}


@pytest.mark.parametrize("kind", ROWS)
def test_containers(kind: str) -> None:
    X = frame()
    answers = np.load(FILES / "1.2.10-counters.npy")
    result = predict(from_bytes(COUNTERS), ROWS[kind](X))
    np.testing.assert_allclose(result, answers[: len(result)], rtol=1e-12)
    assert len(result) == {"one row": 1, "one dict": 1, "no row": 0}.get(kind, len(X))


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        (
            "city",
            ["Bern", None, "Zug"],
            r"column 'city', row 1: expected a category, a text or an integer, got ",
        ),
        ("city", pd.Categorical(["Bern", "Zug", None]), r"column 'city', row 2: expected a category"),
        ("day", [1.0, 2.0, 3.0], r"column 'day', row 0: expected a category, .*, got 1\.0; convert"),
        ("day", np.array([1, 2.5, "x"], object), r"column 'day', row 1: .*, got 2\.5"),
        ("day", np.array([1, 2**63, 3], np.uint64), r"column 'day', row 1: .*, got 9223372036854775808"),
        ("amount", ["1", "2", "many"], r"expected a number, got 'many'"),
    ],
)
def test_refused_values(column: str, values: Any, sentence: str) -> None:
    graph, X = from_bytes(COUNTERS), frame(3)
    X[column] = values
    with pytest.raises(InputError, match=sentence):
        predict(graph, X)


def test_refused_rows() -> None:
    graph, X = from_bytes(COUNTERS), frame(3)
    with pytest.raises(InputError, match=r"column 'city', row 0: .*, got 1\.0"):
        predict(graph, np.ones((2, 4)))
    with pytest.raises(InputError, match="column 'shop' is missing"):
        predict(graph, X.rename(columns={"shop": "store"}))
    with pytest.raises(InputError, match="sparse"):
        predict(graph, pytest.importorskip("scipy.sparse").csr_matrix(np.ones((2, 4))))


def _document(**changes: Any) -> bytes:
    document = json.loads(COUNTERS)
    for path, value in changes.items():
        *into, last = path.split("__")
        at = document
        for key in into:
            at = at[key]
        at[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            _document(features_info__text_features=[{"flat_feature_index": 4}]),
            "reads text features; supported",
        ),
        (_document(features_info__embedding_features=[{}]), "reads embedding features; supported"),
        (_document(oblivious_trees=[]), "has no trees"),
        (
            _document(model_info__params__loss_function={"type": "MultiRMSE"}),
            "one of the model's targets; save",
        ),
    ],
)
def test_unsupported(content: bytes, sentence: str) -> None:
    with pytest.raises(UnsupportedModel, match=sentence):
        from_bytes(content)


def test_other_outputs_than_the_loss_has() -> None:
    with pytest.raises(UnsupportedModel, match="the CatBoostClassifier has the loss 'RMSE'"):
        from_bytes(COUNTERS, "CatBoostClassifier")


def test_a_tree_too_deep_or_short_of_leaves() -> None:
    leaves = {"leaf_values": [0.0] * (1 << 17), "splits": [{"split_index": 0}] * 17}
    with pytest.raises(ModelError, match="a tree has 17 levels"):
        from_bytes(_document(oblivious_trees=[leaves]))
    with pytest.raises(ModelError, match="a tree of 17 splits has 2 leaf values"):
        from_bytes(_document(oblivious_trees=[{**leaves, "leaf_values": [0.0, 1.0]}]))


def test_shared_vectors_are_not_read_without_end() -> None:
    """A thousand references to one vector of a megabyte would make a gigabyte."""
    size, count = 1 << 20, 1000
    vector = struct.pack("<I", size) + bytes(size)
    references = b"".join(struct.pack("<I", 4 * (count - i)) for i in range(count))
    buffer = Buffer(references + vector)
    with pytest.raises(ModelError, match="a part lies outside of it"):
        for i in range(count):
            buffer.vector(buffer.follow(4 * i), "u1")
