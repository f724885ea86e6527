"""Predicting on Dask, by real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from hbtvm.errors import InputError, PackageNotFoundError
from tests.engines import commands
from tests.engines.cases import Case, die_once

pytest.importorskip("distributed")

import dask.dataframe as dd
from distributed import Client

import hbtvm.dask


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("dask"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield client


@pytest.mark.usefixtures("client")
def test_predictions(case: Case) -> None:
    frame = hbtvm.dask.predict(dd.read_parquet(case.data), case.package, "proba", keep=["id"])
    found = frame.compute()
    case.check(found)
    assert [str(one) for one in frame.dtypes] == [str(one) for one in found.dtypes]
    explained = hbtvm.dask.predict(dd.read_parquet(case.data), case.package, "contributions", keep=["id"])
    case.check_contributions(explained.compute())
    labels = hbtvm.dask.predict(dd.read_parquet(case.data), case.package.read_bytes()).compute()
    assert labels["label"].tolist() == case.model.predict(case.rows).tolist()


@pytest.mark.usefixtures("client")
def test_a_worker_that_dies_loses_nothing(case: Case, tmp_path: Path) -> None:
    def killer(part: pd.DataFrame) -> pd.DataFrame:
        die_once(str(tmp_path / "killed"))
        return part

    rows = dd.read_parquet(case.data)
    rows = rows.map_partitions(killer, meta=rows._meta)
    case.check(hbtvm.dask.predict(rows, case.package, "proba", keep=["id"]).compute())
    assert (tmp_path / "killed").exists()


@pytest.mark.usefixtures("client")
def test_the_page(case: Case, tmp_path: Path) -> None:
    case.check(commands.run_page("dask", case, tmp_path)["scores"].compute())


def test_what_does_not_fit(case: Case) -> None:
    rows = dd.read_parquet(case.data)
    with pytest.raises(InputError, match="column 'age' of the model is missing"):
        hbtvm.dask.predict(rows.drop(columns="age"), case.package)
    with pytest.raises(InputError, match="there is no output 'score'; there are label, proba"):
        hbtvm.dask.predict(rows, case.package, "score")
    with pytest.raises(InputError, match="there is no column 'key'"):
        hbtvm.dask.predict(rows, case.package, keep=["key"])
    with pytest.raises(PackageNotFoundError, match="the package can't be read"):
        hbtvm.dask.predict(rows, case.package.parent / "none.tar")


def test_the_command(case: Case, tmp_path: Path) -> None:
    commands.check("dask", case, tmp_path)
