"""Linear models in the shell: what is inside, compiling, predicting, and timing against the library."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.cli.main import main
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input
from hbtvm.operators.pointwise import apply
from hbtvm.strategies import make_linear, make_network, workload_of
from hbtvm.words.quantities import model_shape
from tests.models import data, targets
from tests.strategies.test_linear import random_linear


@pytest.fixture
def saved(tmp_path: Path) -> tuple[LogisticRegression, Path]:
    model = LogisticRegression().fit(data()[0], targets("names"))
    joblib.dump(model, tmp_path / "model.pkl")
    return model, tmp_path / "model.pkl"


def test_a_linear_model_from_file_to_predictions(
    saved: tuple[LogisticRegression, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, path = saved
    assert main(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["class"], told["weighted_numbers"], told["outputs"]) == ("LogisticRegression", 4, 3)
    assert told["strategies"] == {"linear": None}
    assert told["predicts"] == ["predict", "label", "proba", "decision"]
    assert main(["inspect", str(path)]) == 0
    assert "weighted numbers" in capsys.readouterr().out

    package = tmp_path / "model.tar"
    options = ["--strategy", "linear", "--batch-size", "100", "--threads", "1"]
    assert main(["compile", str(path), "-o", str(package), *options]) == 0
    capsys.readouterr()
    assert main(["inspect", str(package)]) == 0
    assert "4 weighted numbers" in capsys.readouterr().out
    assert main(["inspect", str(package), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forest"]["operator"] == "linear"
    loaded = hbtvm.load(package)
    np.testing.assert_array_equal(loaded.predict(data()[0]), model.predict(data()[0]))


def test_a_workload_in_words() -> None:
    operand = make_linear(random_linear(np.random.default_rng(0), 5, codes=2, outputs=3), "float64")
    told = model_shape(workload_of(operand, 10))
    assert told == "linear, 7 features, 5 numbers, 2 codes, 3 outputs"
    x = Input(4)
    network = Network(4, apply("exp", apply("add", apply("square", x), 1.0)))
    told = model_shape(workload_of(make_network(network, "float64"), 10))
    assert told == "4 features, 4 outputs, network of square constant add exp"
    deep = functools.reduce(lambda node, _: apply("exp", node), range(20), x)
    told = model_shape(workload_of(make_network(Network(4, deep), "float64"), 10))
    assert told == f"4 features, 4 outputs, network of {'exp ' * 8}and 12 more"
    assert model_shape({"rows": 3, "nodes": [5]}) == "nodes=[5]" and model_shape({}) == "-"
