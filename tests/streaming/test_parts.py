"""Datasets in parts, as engines' workers predict them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbtvm.errors import InputError
from hbtvm.streaming import parts
from hbtvm.streaming.reading import Dataset
from hbtvm.streaming.shipped import Shipped
from tests.engines.cases import ROWS, Case

GROUP, TIMES = 70_000, 700


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def shipped(case: Case) -> Shipped:
    return Shipped.of(case.package, "proba", ["id"], threads=1)


def many(case: Case, path: Path, **changed: object) -> Path:
    rows = pd.concat([case.rows] * TIMES, ignore_index=True).assign(id=np.arange(ROWS * TIMES), **changed)
    pq.write_table(pa.Table.from_pandas(rows), path, row_group_size=GROUP)
    return path


def test_a_long_file_is_cut(
    case: Case, shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    many(case, data / "a.parquet")
    case.rows.to_parquet(data / "b.parquet", index=False)
    assert [Path(one.out).name for one in parts.parts_of(Dataset(data), tmp_path)] == [
        "a.parquet",
        "b.parquet",
    ]
    monkeypatch.setattr(parts, "_ROWS", 2 * GROUP)
    made = pickle.loads(pickle.dumps(list(parts.parts_of(Dataset(data), tmp_path / "out"))))
    assert [one.predict(shipped) for one in made] == [2 * GROUP, 2 * GROUP, ROWS]
    names = ["a-00000.parquet", "a-00001.parquet", "b.parquet"]
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == names
    found = pd.concat(pd.read_parquet(tmp_path / "out" / name) for name in names[:2])
    assert np.array_equal(found["id"], np.arange(ROWS * TIMES))
    expected = np.tile(case.expected, (TIMES, 1))
    np.testing.assert_allclose(found[["no", "yes"]], expected, rtol=1e-6)


def test_rows_are_counted_in_the_file(
    case: Case, shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cities = np.tile(case.rows["city"].to_numpy(), TIMES)
    cities[-1] = "Atlantis"
    path = many(case, tmp_path / "a.parquet", city=cities)
    monkeypatch.setattr(parts, "_ROWS", 2 * GROUP)
    first, second = parts.parts_of(Dataset(path), tmp_path / "out")
    assert first.predict(shipped) == 2 * GROUP
    with pytest.raises(InputError, match=rf"a.parquet: row {len(cities)}: .*Atlantis"):
        second.predict(shipped)
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["a-00000.parquet"]


@pytest.mark.parametrize(
    ("pieces", "cuts"),
    [
        ([], []),
        ([5], [(0, 1, 0)]),
        ([5, 5, 5], [(0, 2, 0), (2, 3, 10)]),
        ([20, 1, 1], [(0, 1, 0), (1, 3, 20)]),
        ([4, 4, 4], [(0, 2, 0), (2, 3, 8)]),
    ],
)
def test_cuts(pieces: list[int], cuts: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_ROWS", 10)
    assert parts._cuts(pieces) == cuts
