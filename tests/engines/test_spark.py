"""Predicting on Spark, by real workers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from hbtvm.errors import InputError
from tests.engines import commands
from tests.engines.cases import Case, die_once

pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java; on Debian: apt-get install default-jre-headless", allow_module_level=True)

from pyspark.sql import SparkSession

import hbtvm.spark


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("spark"))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_predictions_though_a_worker_dies(case: Case, session: SparkSession, tmp_path: Path) -> None:
    mark = str(tmp_path / "killed")

    def killer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        die_once(mark)
        yield from batches

    rows = session.read.parquet(str(case.data))
    case.check(hbtvm.spark.predict(rows, case.package, "proba", keep=["id"]).toPandas())
    rows = rows.mapInArrow(killer, rows.schema)
    case.check(hbtvm.spark.predict(rows, case.package, "proba", keep=["id"]).toPandas())
    assert Path(mark).exists()
    explained = hbtvm.spark.predict(rows, case.package, "contributions", keep=["id"])
    case.check_contributions(explained.toPandas())
    with pytest.raises(InputError, match="column 'age' of the model is missing"):
        hbtvm.spark.predict(rows.drop("age"), case.package)
    commands.run_page("spark", case, tmp_path)
    case.check(pd.read_parquet(tmp_path / "scores"))


def test_the_command(case: Case, tmp_path: Path) -> None:
    commands.check("spark", case, tmp_path)
