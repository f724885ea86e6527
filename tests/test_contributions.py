"""The output ``contributions`` wherever outputs have names: services, MLflow, batches, queries, files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import hbtvm.mlflow
import hbtvm.polars
from hbtvm.cli.main import main
from hbtvm.errors import InputError
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.runtime.explaining.contributions import contribution_names
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.package.file import write
from hbtvm.streaming.scorer import Scorer
from tests.ensembles import random_ensemble
from tests.models import data
from tests.runtime_models import compiled, kernel, package, trained
from tests.serving.asgi import ask, run, service

ROWS = np.array(data()[0][:9], np.float32)


@cache
def explained(name: str, scores: int) -> Package:
    """Return a package with a view of random numbers in place of contributions."""
    graph = trained(name)[1]
    width = scores * 5
    view = replace(
        graph,
        anchor=random_ensemble(np.random.default_rng(4), trees=6 * width, groups=width),
        output=OutputSpec("booster", width, {"response": Input(width)}, keeps_axis=True, shape=(scores, 5)),
    )
    return replace(compiled(name), views={"reasons": package(view, kernel(view, 64))})


def wanted(name: str = "lgb_two", scores: int = 1) -> np.ndarray:
    result: np.ndarray = Model(explained(name, scores)).views["reasons"].predict(ROWS)
    return result


def test_names() -> None:
    columns = ["x0", "x1", "x2", "x3", "base_value"]
    names = contribution_names(Model(explained("xgb_three", 3)))
    assert names == [f"{score}_{column}" for score in "012" for column in columns]
    lightgbm = contribution_names(Model(explained("lgb_two", 1)))
    assert lightgbm[-1] == "base_value" and len(lightgbm) == 5
    with pytest.raises(InputError, match=r"has no contributions: it was compiled without explain=True"):
        contribution_names(Model(compiled("lgb_two")))
    reasoned = replace(compiled("lgb_two"), no_views={"reasons": "its trees have no covers"})
    with pytest.raises(InputError, match=r"has no contributions: its trees have no covers\."):
        contribution_names(Model(reasoned))


def test_served(tmp_path: Path) -> None:
    write(explained("xgb_three", 3), tmp_path / "three.tar")
    write(compiled("lgb_two"), tmp_path / "plain.tar")
    app = service({"three": tmp_path / "three.tar", "plain": tmp_path / "plain.tar"})

    def post(path: str, content: Any) -> Any:
        body = json.dumps(content).encode()
        headers = ((b"content-length", b"%d" % len(body)),)
        return run(ask(app, "POST", f"/v2/models/{path}", [body], headers))

    described = run(ask(app, "GET", "/v2/models/three")).document
    assert {"name": "contributions", "datatype": "FP64", "shape": [-1, 15]} in described["outputs"]
    expected, names = wanted("xgb_three", 3), contribution_names(Model(explained("xgb_three", 3)))
    tensor = {"name": "input", "shape": list(ROWS.shape), "datatype": "FP32", "data": ROWS.ravel().tolist()}
    for repeats in (1, 300):  # in the event loop, and in a thread, block by block
        rows = np.tile(ROWS, (repeats, 1))
        tensor |= {"shape": list(rows.shape), "data": rows.ravel().tolist()}
        answer = post("three/infer", {"inputs": [tensor], "outputs": [{"name": "contributions"}]})
        (output,) = answer.document["outputs"]
        assert output["shape"] == [9 * repeats, 15]
        values = np.reshape(output["data"], (-1, 15))
        np.testing.assert_allclose(values, np.tile(expected, (repeats, 1)), rtol=1e-12)
    answer = post("three/predict", {"rows": ROWS.tolist(), "outputs": ["predict", "contributions"]})
    for row, prediction in zip(expected, answer.document["predictions"], strict=True):
        assert list(prediction) == ["predict", "contributions"]
        assert prediction["contributions"] == pytest.approx(dict(zip(names, row, strict=True)))
    usual = post("three/predict", {"rows": ROWS.tolist()}).document["predictions"][0]
    assert "contributions" not in usual
    refused = post("plain/predict", {"rows": ROWS.tolist(), "outputs": ["contributions"]})
    assert refused.status == 400 and "has no output 'contributions'" in refused.error
    app.close()


def test_mlflow(tmp_path: Path) -> None:
    hbtvm.mlflow.save_model(Model(explained("lgb_two", 1)), tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    frame = loaded.predict(ROWS, params={"output": "contributions"})
    assert list(frame.columns) == contribution_names(Model(explained("lgb_two", 1)))
    np.testing.assert_array_equal(frame, wanted())


def test_batches_and_queries() -> None:
    model = Model(explained("lgb_two", 1))
    names = contribution_names(model)
    columns = {f"Column_{i}": ROWS[:, i] for i in range(4)}
    batch = pa.RecordBatch.from_pydict({"id": list(range(9)), **columns})
    scorer = Scorer(model, batch.schema, "contributions", keep=["id"])
    assert scorer.schema.names == ["id", *names]
    scored = scorer(batch)
    assert scored.column("id").to_pylist() == list(range(9))
    np.testing.assert_array_equal(np.column_stack([scored.column(name) for name in names]), wanted())
    with pytest.raises(InputError, match="has no contributions"):
        Scorer(Model(compiled("lgb_two")), batch.schema, "contributions")
    frame = pl.DataFrame(columns)
    struct = frame.select(hbtvm.polars.predict(pl.struct(pl.all()), model, "contributions").alias("of"))["of"]
    np.testing.assert_array_equal(struct.struct.unnest().to_numpy(), wanted())


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write(explained("lgb_two", 1), "model.tar")
    write(compiled("lgb_two"), "plain.tar")
    np.save("rows.npy", ROWS)
    assert main(["predict", "model.tar", "rows.npy", "--output", "contributions", "-o", "out.csv"]) == 0
    table = pd.read_csv("out.csv")
    assert list(table.columns) == contribution_names(Model(explained("lgb_two", 1)))
    np.testing.assert_allclose(table, wanted(), rtol=1e-15)
    Path("rows").mkdir()
    pa.parquet.write_table(pa.table({f"Column_{i}": ROWS[:, i] for i in range(4)}), "rows/part.parquet")
    assert main(["predict", "model.tar", "rows", "--output", "contributions", "-o", "out"]) == 0
    np.testing.assert_array_equal(pd.read_parquet("out/part.parquet"), wanted())
    assert main(["predict", "plain.tar", "rows.npy", "--output", "contributions"]) == 2
    assert "has no contributions: it was compiled without explain=True" in capsys.readouterr().err
