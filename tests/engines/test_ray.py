"""Predicting on Ray, by real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from hbtvm.errors import InputError
from tests.engines import commands
from tests.engines.cases import Case, die_once

pytest.importorskip("ray")

import ray
import ray.data

import hbtvm.ray


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("ray"))


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_predictions_though_a_worker_dies(case: Case, tmp_path: Path) -> None:
    def killer(table: pa.Table) -> pa.Table:
        die_once(str(tmp_path / "killed"))
        return table

    rows = ray.data.read_parquet(str(case.data))
    case.check(hbtvm.ray.predict(rows, case.package, "proba", keep=["id"], batch_size=64).to_pandas())
    rows = rows.map_batches(killer, batch_format="pyarrow")
    case.check(hbtvm.ray.predict(rows, case.package, "proba", keep=["id"]).to_pandas())
    assert (tmp_path / "killed").exists()
    explained = hbtvm.ray.predict(rows, case.package, "contributions", keep=["id"])
    case.check_contributions(explained.to_pandas())
    with pytest.raises(InputError, match="column 'age' of the model is missing"):
        hbtvm.ray.predict(rows.drop_columns(["age"]), case.package)
    commands.run_page("ray", case, tmp_path)
    case.check(pd.read_parquet(tmp_path / "scores"))


def test_the_command(case: Case, tmp_path: Path) -> None:
    commands.check("ray", case, tmp_path)
