"""Saved models of Spark ML without Spark: an earlier release's files, damage, and lies about sizes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.errors import MissingPackageError, ModelError, UnsupportedModel
from hbtvm.frontends import load_model
from tests.frontends.spark.oracle import answer

pa = pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Models of Spark 3.5.5, with what Spark made of rows."""
    with zipfile.ZipFile(ROOT / "tests/data/spark-3.5.5.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_files_of_spark_3_5(saved: Path) -> None:
    known = json.loads((saved / "answers.json").read_text())
    graph, rows = load_model(saved / "pipeline"), pd.DataFrame(known["rows"])
    assert graph.input.feature_names == ("c", "a", "b") and graph.steps[-1][1] == "GBTClassificationModel"
    assert answer(graph, rows).tolist() == known["prediction"]
    np.testing.assert_allclose(answer(graph, rows, "proba"), known["probability"], rtol=1e-14)
    found = answer(load_model(saved / "logistic"), np.array(known["vectors"]), "proba")
    np.testing.assert_allclose(found, known["logistic"], rtol=1e-14)


@pytest.mark.parametrize("damage", ["absent", "negative", "short"])
def test_boosted_trees_predict_without_statistics(damage: str, saved: Path) -> None:
    import pyarrow.parquet as pq

    known = json.loads((saved / "answers.json").read_text())
    rows = pd.DataFrame(known["rows"])
    whole = load_model(saved / "pipeline")
    assert whole.anchor.cover is not None and whole.anchor.leaf_id is not None
    path = _files(saved, "pipeline/stages/*GBT*/data/*.parquet")
    table = pq.read_table(path).to_pylist()
    for row in table:
        if damage == "absent":
            del row["nodeData"]["impurityStats"]
        else:
            row["nodeData"]["impurityStats"] = [-1.0, 0.0, 0.0] if damage == "negative" else []
    schema = pq.read_schema(path)
    pq.write_table(pa.Table.from_pylist(table, None if damage == "absent" else schema), path)
    graph = load_model(saved / "pipeline")
    assert graph.anchor.cover is None
    np.testing.assert_array_equal(graph.anchor.leaf_id, whole.anchor.leaf_id)
    assert answer(graph, rows).tolist() == known["prediction"]


def _files(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def _edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = _files(folder, "metadata/part-*")
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def _lacks_data(folder: Path) -> None:
    _files(folder, "stages/*Imputer*/data/*.parquet").unlink()


def _lacks_stage(folder: Path) -> None:
    _files(folder, "stages/*Imputer*").rename(folder / "elsewhere")


def _truncated(folder: Path) -> None:
    path = _files(folder, "stages/*GBT*/data/*.parquet")
    path.write_bytes(path.read_bytes()[:200])


def _deep(folder: Path) -> None:
    _files(folder, "metadata/part-*").write_text("[" * 100_000)


def _itself(folder: Path) -> None:
    inner = _files(folder, "stages/*Imputer*")
    inner.rename(folder / "elsewhere")
    inner.symlink_to(folder)


def _few_features(folder: Path) -> None:
    _edit(_files(folder, "stages/*GBT*"), lambda metadata: metadata.update(numFeatures=2))


def _other_column(folder: Path) -> None:
    _edit(_files(folder, "stages/*Imputer*"), lambda data: data["paramMap"].update(inputCols=["a", "q"]))


def _outside(folder: Path) -> None:
    _edit(folder, lambda metadata: metadata["paramMap"].update(stageUids=["/etc"]))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_lacks_data, "there are no Parquet files in"),
        (_lacks_stage, r"its stage .*Imputer.* is missing"),
        (_truncated, r"the Parquet files in .*GBT.* can't be read"),
        (_deep, "the metadata in .* can't be read"),
        (_itself, "pipelines nested more than 8 deep"),
        (_few_features, "feature|columns"),
        (_other_column, r"step 'Imputer.*' \(ImputerModel\) is damaged: its data have no 'q'"),
        (_outside, "do not list its stages"),
    ],
)
def test_damaged_folders_are_refused(damage: Callable[[Path], None], told: str, saved: Path) -> None:
    damage(saved / "pipeline")
    tracemalloc.start()
    with pytest.raises(ModelError, match=told) as caught:
        load_model(saved / "pipeline")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20 and "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(saved / "pipeline"))


def _of_class(folder: Path, stage: str, name: str) -> None:
    inner = _files(folder, f"stages/*{stage}*")
    _edit(inner, lambda metadata: metadata.update({"class": f"org.apache.spark.ml.{name}"}))


def _skipping(folder: Path) -> None:
    inner = _files(folder, "stages/3_VectorAssembler*")
    _edit(inner, lambda metadata: metadata["paramMap"].update(handleInvalid="skip"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda folder: _of_class(folder, "StandardScaler", "feature.Interaction"),
            r"an Interaction \(pyspark\), which is not s",
        ),
        (
            lambda folder: _of_class(folder, "GBT", "classification.GBTClassifier"),
            "is not fitted; save the model",
        ),
        (_skipping, r"step 'VectorAssembler.*' \(VectorAssembler\) drops rows \(handleInvalid=\"skip\"\)"),
    ],
)
def test_refused_stages(change: Callable[[Path], None], told: str, saved: Path) -> None:
    change(saved / "pipeline")
    with pytest.raises(UnsupportedModel, match=told):
        load_model(saved / "pipeline")


def test_values_that_a_file_only_claims_are_not_made(saved: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = _files(saved / "logistic", "data/*.parquet")
    row = pq.read_table(path).to_pylist()[0]
    row["coefficientMatrix"] |= {"type": 0, "numRows": 1 << 30, "numCols": 1 << 30}
    pq.write_table(pa.Table.from_pylist([row]), path)
    with pytest.raises(ModelError, match="a matrix has the shape"):
        load_model(saved / "logistic")
    # Runs of one value take no space in a file.
    pq.write_table(pa.table({"numClasses": pa.array(np.zeros(20_000_000, np.int8))}), path)
    with pytest.raises(ModelError, match="claims 20,000,000 values"):
        load_model(saved / "logistic")


def test_several_part_files_and_codecs(saved: Path) -> None:
    import pyarrow.parquet as pq

    known = json.loads((saved / "answers.json").read_text())
    path = _files(saved / "pipeline", "stages/*GBT*/data/*.parquet")
    table = pq.read_table(path)
    path.unlink()
    for at, codec in enumerate(("gzip", "zstd", "none")):
        part = table.filter(np.arange(len(table)) % 3 == at)
        pq.write_table(part, path.with_name(f"part-{2 - at}.parquet"), compression=codec)
    found = answer(load_model(saved / "pipeline"), pd.DataFrame(known["rows"]), "proba")
    np.testing.assert_allclose(found, known["probability"], rtol=1e-14)


def test_mutants_are_read_or_refused(saved: Path) -> None:
    command = [sys.executable, "-m", "tests.frontends.spark.mutants", str(saved / "pipeline"), "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-3_000:]
    assert "ModelError" in done.stdout and "'read'" in done.stdout


def test_damaged_footers_are_read_or_refused(saved: Path) -> None:
    trees = _files(saved, "pipeline/stages/*GBT*")
    command = [
        sys.executable,
        "-m",
        "tests.frontends.spark.footers",
        "100",
        str(saved / "logistic"),
        str(trees),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-3_000:]
    assert "ModelError" in done.stdout and "'read'" in done.stdout


@pytest.mark.parametrize(
    ("footer", "told"),
    [
        (b"\x1c" * 10_000, "nested too deep"),
        (b"\x19" * 10_000, "nested too deep"),
        (b"\x19\xf8\xff\xff\xff\xff\x07", "cut short"),
        (b"\x18\xff\xff\xff\xff\x07abc", "cut short"),
        (b"\x16" + b"\xff" * 12, "wrong number"),
        (b"\x15\x02\x05\x02\x02\x00", "wrong field"),
        (b"\x1d\x00", "an unknown type"),
        (b"\x15\x04\x19\x0c\x16\x00\x19\x1c\x19\x1c\x26\x08" + bytes(4), "lacks a field"),
        (b"\x15\x04\x19\x0c\x16\x01\x19\x0c\x00", "negative"),
        (bytes(1 << 21), "no Parquet footer"),
    ],
)
def test_malformed_footers_are_refused(footer: bytes, told: str, saved: Path) -> None:
    path = _files(saved / "logistic", "data/*.parquet")
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    with pytest.raises(ModelError, match=rf"the Parquet files in .* can't be read \(.*{told}"):
        load_model(saved / "logistic")


def test_without_pyarrow(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingPackageError, match=r"pyarrow, which is not installed: pip install 'hbtvm\[parquet\]'"
    ):
        load_model(saved / "logistic")
