"""``hbtvm predict`` of folders: real files, real crashes; scikit-learn is the oracle."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from hbtvm.cli.main import main
from hbtvm.runtime.model import load
from hbtvm.streaming.scorer import Scorer
from tests.engines.cases import ROWS, Case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("rows"))


def run(arguments: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """What the command writes; on an error, its sentence."""
    capsys.readouterr()
    code = main(arguments.split())
    out, err = capsys.readouterr()
    assert code == status, err
    assert "Traceback" not in err
    return err if status else out


def read(folder: Path) -> pd.DataFrame:
    return pd.concat(pq.ParquetFile(one).read().to_pandas() for one in sorted(folder.rglob("*.parquet")))


def process(case: Case, data: Path, out: Path, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hbtvm", "predict", case.package, data, "-o", out]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("kind", ["parquet", "csv", "feather"])
def test_all_kinds_of_files(
    kind: str, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for i, city in enumerate(case.rows["city"].unique()):
        folder = data / f"city={city}" / "deep"
        folder.mkdir(parents=True)
        part = case.rows[case.rows["city"] == city].drop(columns="city")
        if kind == "parquet":
            part.to_parquet(folder / f"{i}.parquet", index=False)
        elif kind == "csv":
            part.to_csv(folder / f"{i}.csv", index=False)
        else:
            feather.write_feather(part.reset_index(drop=True), str(folder / f"{i}.feather"))
    (data / "_hidden.parquet").write_text("none of it")
    out = tmp_path / "out"
    text = run(f"predict {case.package} {data} -o {out} --keep id --output proba", capsys)
    assert "400 rows predicted" in text and "3 files in all" in text
    case.check(read(out))
    assert {one.relative_to(out).parts[0] for one in out.rglob("*.parquet")} == {
        f"city={city}" for city in case.rows["city"].unique()
    }


def test_only_columns_that_are_read(case: Case) -> None:
    schema = pa.Schema.from_pandas(case.rows)
    scorer = Scorer(load(case.package), schema, "proba", keep=["id"])
    assert scorer.columns == ["id", "age", "city"]
    assert scorer.schema == pa.schema([("id", pa.int64()), ("no", pa.float64()), ("yes", pa.float64())])


def test_a_killed_run_goes_on(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    many = pd.concat([case.rows] * 500)
    for i in range(12):
        many.to_parquet(data / f"{i:02}.parquet", index=False)
    running = process(case, data, out)
    while not (out / "00.parquet").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    made = {one.name: one.stat().st_mtime_ns for one in out.glob("*.parquet")}
    assert 1 <= len(made) < 12
    assert all(pq.ParquetFile(out / name).metadata.num_rows == len(many) for name in made)
    text = run(f"predict {case.package} {data} -o {out}", capsys)
    assert f"{(12 - len(made)) * len(many):,} rows predicted" in text
    assert all((out / name).stat().st_mtime_ns == when for name, when in made.items())
    names = sorted(one.name for one in out.iterdir())
    assert names == [*(f"{i:02}.parquet" for i in range(12)), "_hbtvm.json"]


def test_other_predictions_are_not_mixed_in(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    case.write(data, case.rows)
    run(f"predict {case.package} {data} -o {out}", capsys)
    assert "0 rows predicted" in run(f"predict {case.package} {data} -o {out}", capsys)
    assert "made with another --output" in run(
        f"predict {case.package} {data} -o {out} --output proba", capsys, 2
    )
    case.rows.iloc[:7].to_parquet(data / "1.parquet", index=False)
    assert "1.parquet has changed" in run(f"predict {case.package} {data} -o {out}", capsys, 2)
    (data / "9.parquet").write_bytes((data / "1.parquet").read_bytes())
    run(f"predict {case.package} {data} -o {out} --overwrite", capsys)
    assert len(read(out)) == 307 + 7
    # A folder of something else is left alone.
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.parquet").write_text("mine")
    assert "this folder has other files" in run(f"predict {case.package} {data} -o {other}", capsys, 2)
    assert (other / "precious.parquet").read_text() == "mine"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("truncated", "2.parquet: this file is damaged"),
        ("types", "2.parquet: this file is damaged, or has other types than the first file"),
        ("missing", "2.parquet: column 'age' is missing, but 0.parquet has it"),
        ("unknown", "'Atlantis' was not in the training data"),
    ],
)
def test_a_file_that_does_not_fit(
    kind: str, sentence: str, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    case.write(data, case.rows)
    path, rows = data / "2.parquet", pd.read_parquet(data / "2.parquet")
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "types":
        rows.assign(age="old").to_parquet(path, index=False)
    elif kind == "missing":
        rows.drop(columns="age").to_parquet(path, index=False)
    else:
        rows.assign(city="Atlantis").to_parquet(path, index=False)
    err = run(f"predict {case.package} {data} -o {out} --keep id --output proba", capsys, 2)
    assert sentence in err and "2.parquet" in err
    assert sorted(one.name for one in out.iterdir()) == ["0.parquet", "1.parquet", "_hbtvm.json"]


def test_what_is_no_dataset(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    given = f"predict {case.package} {data} -o {tmp_path / 'out'}"
    assert "it has no files of rows" in run(given, capsys, 2)
    (data / "a.csv").write_text("age,city\n1,Rome\n")
    (data / "b.parquet").write_text("")
    assert "files of several formats, csv, parquet" in run(given, capsys, 2)
    (data / "a.csv").unlink()
    assert "b.parquet: this file is damaged" in run(given, capsys, 2)
    assert "name a folder for its predictions with -o" in run(f"predict {case.package} {data}", capsys, 2)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_half_written(case: Case, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    case.rows.to_parquet(data / "0.parquet", index=False)
    ages = np.random.default_rng(0).normal(40, 10, 300_000)
    pd.concat([case.rows] * 750).assign(age=ages).to_parquet(data / "1.parquet", index=False)

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))

    command = [sys.executable, "-m", "hbtvm", "predict", case.package, data, "-o", out, "--output", "proba"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "File too large" in done.stderr
    assert sorted(one.name for one in out.iterdir()) == ["0.parquet", "_hbtvm.json"]


def test_memory_does_not_grow_with_the_rows(case: Case, tmp_path: Path) -> None:
    peaks = []
    table = pa.Table.from_pandas(pd.concat([case.rows] * 200), preserve_index=False)
    for times in (5, 40):
        data = tmp_path / f"data{times}"
        data.mkdir()
        with pq.ParquetWriter(data / "0.parquet", table.schema) as writer:
            for _ in range(times):
                writer.write_table(table, row_group_size=20_000)
        # (What the system counts of a finished child begins with what its parent had.)
        code = (
            "import sys; from pathlib import Path; from hbtvm.cli.main import main; "
            "assert main(sys.argv[1:]) == 0; print(Path('/proc/self/status').read_text())"
        )
        command = [sys.executable, "-c", code, "predict", case.package, data, "-o", tmp_path / f"out{times}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split("VmHWM:")[1].split()[0]))
    assert pq.ParquetFile(tmp_path / "out40" / "0.parquet").metadata.num_rows == 40 * 200 * ROWS
    assert peaks[1] < 1.15 * peaks[0]
