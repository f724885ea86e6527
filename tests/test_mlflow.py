"""MLflow's flavour, with MLflow itself and a store of files: saved, logged, registered, loaded, predicted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow.models import ModelSignature, infer_signature

import hbtvm
import hbtvm.mlflow
from hbtvm.errors import InputError
from tests.serving.models import CASES, frame, numbers, texts

NAMES = ("binary", "classes", "labels", "pipeline", "scaler", "words")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    for name in NAMES:
        CASES[name].write(folder / f"{name}.tar")
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tracking server of files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield
    mlflow.set_tracking_uri(before)


def same(found: Any, wanted: np.ndarray) -> None:
    if wanted.dtype.kind in "OU":
        assert np.asarray(found).tolist() == wanted.tolist()
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_saved_models_predict(packages: Path, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = tmp_path / "saved"
    hbtvm.mlflow.save_model(packages / f"{name}.tar", path)
    loaded, rows = mlflow.pyfunc.load_model(str(path)), case.rows()
    params: dict[str, dict[str, str] | None] = {
        "predict": None, "predict_proba": {"output": "proba"}, "raw_score": {"output": "raw"},
        "decision_function": {"output": "decision"}, "transform": None,
    }  # fmt: skip
    forms: list[Any] = [rows, pd.DataFrame(rows)]
    if isinstance(rows, np.ndarray):
        forms += [rows.astype(np.float32), pd.DataFrame(rows).astype({0: np.float32})]
    for output in case.outputs:
        if output in params:
            for one in forms:
                same(loaded.predict(one, params=params[output]), case.expected(output))
    with pytest.raises(InputError, match=r"nothing|does not predict"):
        loaded.predict(rows, params={"output": "nothing"})
    again = hbtvm.mlflow.load_model(str(path), threads=1)
    assert isinstance(again, hbtvm.Model) and again.threads == 1


def test_whole_numbers_missing_values_and_categories(packages: Path, tmp_path: Path) -> None:
    hbtvm.mlflow.save_model(hbtvm.load(packages / "pipeline.tar"), tmp_path / "saved")
    loaded, model = mlflow.pyfunc.load_model(str(tmp_path / "saved")), CASES["pipeline"].model
    X = frame().assign(age=range(9))
    same(loaded.predict(X), model.predict(X))
    X = frame().assign(pay=np.nan, job=[None, "law", "?"] * 3)[["job", "pay", "age"]]
    same(loaded.predict(X), model.predict(X))
    X = frame().assign(job=frame()["job"].astype("category"))
    same(loaded.predict(X), model.predict(frame()))
    same(loaded.predict(X, params={"output": "proba"}), model.predict_proba(frame()))
    hbtvm.mlflow.save_model(packages / "binary.tar", tmp_path / "other")
    whole = np.abs(numbers()).astype(np.int64)
    found = mlflow.pyfunc.load_model(str(tmp_path / "other")).predict(whole)
    same(found, CASES["binary"].model.predict(whole))


def test_what_is_saved(packages: Path, tmp_path: Path) -> None:
    hbtvm.mlflow.save_model(packages / "pipeline.tar", tmp_path / "saved", metadata={"team": "risk"})
    told = yaml.safe_load((tmp_path / "saved" / "MLmodel").read_text())
    assert told["flavors"]["hbtvm"] == {
        "hbtvm_version": hbtvm.__version__, "data": "model.tar", "library": "scikit-learn",
        "model": "LogisticRegression", "target": "llvm",
    }  # fmt: skip
    assert told["flavors"]["python_function"]["loader_module"] == "hbtvm.mlflow"
    assert told["metadata"] == {"team": "risk"}
    info = mlflow.models.get_model_info(str(tmp_path / "saved"))
    columns = {one["name"]: one["type"] for one in info.signature.inputs.to_dict()}
    assert columns == {"age": "any", "job": "any", "pay": "any"}
    assert info.signature.outputs.to_dict()[0]["tensor-spec"]["shape"] == (-1,)
    wanted = (tmp_path / "saved" / "requirements.txt").read_text().split()
    assert [one.partition("==")[0] for one in wanted] == ["mlflow-skinny", "hbtvm[pandas]"]
    pinned = yaml.safe_load((tmp_path / "saved" / "conda.yaml").read_text())["dependencies"][-1]["pip"]
    assert pinned == wanted
    assert yaml.safe_load((tmp_path / "saved" / "python_env.yaml").read_text())["dependencies"]
    assert (tmp_path / "saved" / "model.tar").read_bytes()[257:262] == b"ustar"


def test_own_signature(packages: Path, tmp_path: Path) -> None:
    own = infer_signature(numbers(), np.zeros(9))
    hbtvm.mlflow.save_model(
        packages / "classes.tar", tmp_path / "saved", signature=own, pip_requirements=["a==1"]
    )
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert isinstance(loaded.metadata.signature, ModelSignature)
    assert loaded.metadata.signature.inputs == own.inputs
    same(loaded.predict(numbers(), params={"output": "proba"}), CASES["classes"].expected("predict_proba"))
    assert (tmp_path / "saved" / "requirements.txt").read_text() == "a==1\n"


@pytest.mark.usefixtures("store")
def test_logged_and_registered(packages: Path) -> None:
    with mlflow.start_run():
        logged = hbtvm.mlflow.log_model(packages / "words.tar", "words", registered_model_name="reviews")
    for uri in (logged.model_uri, "models:/reviews/1"):
        same(mlflow.pyfunc.load_model(uri).predict(texts()), CASES["words"].expected("predict"))
        same(hbtvm.mlflow.load_model(uri).predict_proba(texts()), CASES["words"].expected("predict_proba"))


def test_refusals(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="is there already"):
            hbtvm.mlflow.save_model(packages / "words.tar", path)
    with pytest.raises(hbtvm.PackageNotFoundError):
        hbtvm.mlflow.save_model(tmp_path / "nothing.tar", tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    (tmp_path / "MLmodel").write_text("flavors:\n  other: {}\n")
    with pytest.raises(InputError, match="has no flavour hbtvm"):
        hbtvm.mlflow.load_model(str(tmp_path))


def test_training_libraries_are_not_needed(packages: Path, tmp_path: Path) -> None:
    hbtvm.mlflow.save_model(packages / "pipeline.tar", tmp_path / "saved")
    code = (
        "import sys\n"
        "for name in ('sklearn', 'lightgbm', 'xgboost', 'tvm', 'torch'): sys.modules[name] = None\n"
        "import mlflow.pyfunc, pandas\n"
        "X = pandas.DataFrame({'age': [1.0], 'job': ['law'], 'pay': [0.5]})\n"
        "print(mlflow.pyfunc.load_model('saved').predict(X)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() in ("stays", "leaves"), done.stderr
