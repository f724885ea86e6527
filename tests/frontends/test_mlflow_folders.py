"""MLflow model folders where a model file goes, as MLflow writes them: in Python and in commands."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from hbtvm.cli.main import main
from hbtvm.errors import ModelError, ModelFileError
from hbtvm.frontends import load_model
from tests.by_reference import predict

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = (X[:, 0] > 0).astype(int)


def save(flavor: str, model: Any, folder: Path, **options: Any) -> Path:
    module = pytest.importorskip(f"mlflow.{flavor}")
    module.save_model(model, str(folder), pip_requirements=[], **options)
    return folder


@pytest.fixture(scope="module")
def boosted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(X, Y)
    return save("xgboost", model, tmp_path_factory.mktemp("mlruns") / "model")


@pytest.mark.parametrize("how", ["pickle", "cloudpickle", "skops"])
def test_scikit_learn(how: str, tmp_path: Path) -> None:
    if how == "skops":
        pytest.importorskip("skops")
    model = DecisionTreeClassifier(max_depth=3).fit(X, Y)
    trusted = {"skops_trusted_types": ["sklearn.tree._tree.Tree"]} if how == "skops" else {}
    folder = save("sklearn", model, tmp_path / "model", serialization_format=how, **trusted)
    np.testing.assert_array_equal(predict(load_model(folder), X), model.predict(X))


def test_lightgbm(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(X, Y)
    for name, saved in (("estimator", model), ("booster", model.booster_)):
        graph = load_model(save("lightgbm", saved, tmp_path / name))
        expected = saved.predict(X)
        np.testing.assert_allclose(predict(graph, X), expected, rtol=1e-6)


def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    model = LogisticRegression().fit(X, Y)
    folder = save("onnx", to_onnx(model, X[:1], options={"zipmap": False}), tmp_path / "model")
    assert load_model(folder).input.n_features == 3


def test_commands(
    boosted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", X, delimiter=",")
    assert main(["inspect", str(boosted)]) == 0
    assert "XGBClassifier" in capsys.readouterr().out
    # In a process, as users run it; the package gets the folder's name.
    compiled = [sys.executable, "-m", "hbtvm", "compile", str(boosted), "--strategy", "tree_traversal"]
    done = subprocess.run(
        [*compiled, "--batch-size", "100", "--threads", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert main(["predict", "model.tar", "rows.csv", "-o", "labels.csv"]) == 0
    expected = predict(load_model(boosted), X)
    np.testing.assert_array_equal(np.loadtxt("labels.csv", skiprows=1), expected)
    # XGBoost's own file needs no --trust.
    assert main(["check", "model.tar", "--model", str(boosted), "--data", "rows.csv"]) == 0
    capsys.readouterr()
    assert main(["predict", str(boosted), "rows.csv"]) == 2
    assert f"this is a model of MLflow, expected a package; compile it first: hbtvm compile {boosted}" in (
        capsys.readouterr().err
    )


def test_addresses_say_how_to_download(capsys: pytest.CaptureFixture[str]) -> None:
    expected = "models:/churn/1: "
    step = "mlflow artifacts download -u models:/churn/1 -d FOLDER"
    assert main(["compile", "models:/churn/1"]) == 2
    error = capsys.readouterr().err
    assert expected in error and step in error
    with pytest.raises(ModelFileError, match=re.escape(step)):
        load_model("models:/churn/1")


def refused(folder: Path, kind: type[ModelError] = ModelError) -> str:
    with pytest.raises(kind) as caught:
        load_model(folder)
    assert str(caught.value).startswith(str(folder)) and str(caught.value).isprintable()
    return str(caught.value)


def test_other_folders_say_what_to_pass(boosted: Path, tmp_path: Path) -> None:
    described = tmp_path / "MLmodel"
    described.write_text("flavors:\n  hbtvm:\n    data: model.tar\n  python_function:\n    data: model.tar\n")
    assert f"not a model; pass the package, {tmp_path / 'model.tar'}" in refused(tmp_path)
    described.write_text("flavors:\n  python_function:\n    loader_module: mlflow.pyfunc.model\nrun_id: 3\n")
    assert "of the flavour python_function; supported are sklearn, xgboost" in refused(tmp_path)
    described.write_text("flavors:\n  sklearn:\n    pickled_model: ../model.pkl\n")
    assert "'../model.pkl' is outside of the folder" in refused(tmp_path)
    described.write_text("flavors:\n  sklearn:\n    pickled_model: 'it''s.pkl'\n")
    assert "and there is no such file" in refused(tmp_path, ModelFileError)
    described.write_text("flavors: {}\n")
    assert "lists no flavours" in refused(tmp_path)
    described.write_bytes(b"\xff\xfe")
    assert "in UTF-8" in refused(tmp_path)
    # A run's folder, with the model in a folder of it.
    assert f"it is a folder; pass the model in it, {boosted}" in refused(boosted.parent, ModelFileError)


def test_damaged_descriptions(boosted: Path, tmp_path: Path) -> None:
    content, rng = (boosted / "MLmodel").read_bytes(), random.Random(3)
    for name in ("model.ubj", "model.xgb", "model.json"):
        if (boosted / name).exists():
            (tmp_path / name).write_bytes((boosted / name).read_bytes())
    read = 0
    for _ in range(200):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 3, 10))):
            at = rng.randrange(len(changed))
            changed[at : at + rng.choice((0, 1, 9))] = rng.choice(
                (b"", b"\n", b":", b" ", b"'", b"\x00", b"{")
            )
        (tmp_path / "MLmodel").write_bytes(changed)
        try:
            load_model(tmp_path)
            read += 1
        except ModelError as error:
            assert str(error).isprintable()
    assert 0 < read < 200
