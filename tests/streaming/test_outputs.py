"""Predictions that would be lost, and files of others: refused before the first row, and left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import feather

from hbtvm import atomic
from hbtvm.cli.main import main
from hbtvm.cli.rows import engines
from hbtvm.errors import InputError
from hbtvm.streaming import dataset, parts
from hbtvm.streaming.places import check_apart, check_outputs, folds_case, output_of
from hbtvm.streaming.reading import Dataset
from tests.engines.cases import Case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("outputs"))


def refused(capsys: pytest.CaptureFixture[str], *given: object) -> str:
    capsys.readouterr()
    assert main(["predict", *map(str, given)]) == 2
    text = capsys.readouterr().err
    assert text.startswith("hbtvm: error: ") and text.count("\n") == 1
    return text


@pytest.mark.parametrize("folds", [False, True])
def test_names_are_injective(folds: bool) -> None:
    random.seed(7)
    suffixes = [".parquet", ".PARQUET", ".Parquet", ".arrow", ".feather", ".csv"]
    refusals = 0
    for _ in range(400):
        files = {
            "/".join([*random.choices(["a", "A", "b.parquet", "é", "e\u0301"], k=random.randint(0, 1)), name])
            for name in (
                random.choice(["a", "A", "b", "a.b", "é", "e\u0301"]) + random.choice(suffixes)
                for _ in range(4)
            )
        }
        outs = [output_of(file) for file in sorted(files)]
        same = [os.path.normpath(one) for one in outs]
        if folds:
            same = [one.replace("e\u0301", "é").lower() for one in same]
        clash = len({*same}) < len(same) or any(one.startswith(f"{other}/") for one in same for other in same)
        pairs = list(zip(sorted(files), outs, strict=True))
        if clash:
            refusals += 1
            with pytest.raises(InputError, match="would both go to"):
                check_outputs(pairs, folds)
        else:
            check_outputs(pairs, folds)
    assert 50 < refusals < 350


@pytest.mark.parametrize(
    "names", [("x.arrow", "x.feather"), ("x.arrow", "x.ARROW"), ("d/x.arrow", "d/x.feather")]
)
def test_two_files_of_one_name(
    names: tuple[str, str], case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        feather.write_feather(case.rows, str(tmp_path / "data" / name))
    for engine in ((), ("--engine", "dask")):
        text = refused(capsys, case.package, tmp_path / "data", "-o", tmp_path / "out", *engine)
        assert all(name in text for name in names) and "would both go to" in text, text
        assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.rglob(".*"))


def test_a_file_in_a_folder_named_as_predictions(case: Case, tmp_path: Path) -> None:
    (tmp_path / "data" / "a.parquet").mkdir(parents=True)
    case.rows.to_csv(tmp_path / "data" / "a.csv", index=False)
    case.rows.to_csv(tmp_path / "data" / "a.parquet" / "b.csv", index=False)
    with pytest.raises(InputError, match=r"a\.csv and of a\.parquet/b\.csv would both go to a\.parquet"):
        dataset.predict(dataset.Job(case.package, tmp_path / "data", tmp_path / "out"))


def test_parts_are_no_other_files_predictions(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_ROWS", 150)
    monkeypatch.setattr("hbtvm.streaming.reading._PIECE", 100)
    data = tmp_path / "data"
    data.mkdir()
    case.rows.to_parquet(data / "part.parquet", index=False, row_group_size=100)
    case.rows[:100].to_parquet(data / "other-00000.parquet", index=False)
    names = [Path(one.out).name for one in parts.parts_of(Dataset(data), tmp_path)]
    assert names == ["other-00000.parquet", *(f"part-{i:05}.parquet" for i in range(4))]
    (data / "other-00000.parquet").rename(data / "part-00002.parquet")
    with pytest.raises(InputError, match=r"both go to part-00002\.parquet"):
        parts.parts_of(Dataset(data), tmp_path)
    (data / "part-00002.parquet").rename(data / "PART-00002.parquet")
    parts.parts_of(Dataset(data), tmp_path)
    with pytest.raises(InputError, match=r"both go to part-00002\.parquet"):
        parts.parts_of(Dataset(data), tmp_path, True)


def test_case_is_asked_of_the_file_system(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "probe").touch()
    assert not folds_case(tmp_path / "probe")
    (tmp_path / "PROBE").touch()
    assert folds_case(tmp_path / "probe")
    data, out = tmp_path / "data", tmp_path / "out"
    for city in ("Rome", "rome"):  # values of a column, which differ
        (data / f"city={city}").mkdir(parents=True)
        case.rows[["age"]].assign(id=1).to_csv(data / f"city={city}" / "0.csv", index=False)
    monkeypatch.setattr(dataset, "folds_case", lambda _: True)
    text = refused(capsys, case.package, data, "-o", out)
    assert "city=Rome" in text and "city=rome" in text and os.listdir(out) == []


def link(to: Path, path: Path) -> Path:
    path.symlink_to(to, target_is_directory=True)
    return path


def test_rows_and_predictions_lie_apart(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "all" / "data"
    data.mkdir(parents=True)
    case.rows.to_parquet(data / "0.parquet", index=False)
    linked = link(data, tmp_path / "linked")
    above = link(tmp_path / "all", tmp_path / "above")
    for rows, out in [
        (data, data), (data, linked), (linked, data / "out"), (data, data / "deep" / "out"),
        (data, linked / "_out"), (data, tmp_path / "all"), (linked, tmp_path), (data, above),
        (data, data / ".." / "data"),
    ]:  # fmt: skip
        text = refused(capsys, case.package, rows, "-o", out)
        assert "among the rows" in text or "contains the rows" in text
        if not out.exists() and out.parent.exists():
            assert "among the rows" in refused(capsys, case.package, rows, "-o", out, "--engine", "dask")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["0.parquet", "above", "all", "data", "linked"]
    check_apart(data, tmp_path / "all" / "data-out")


def test_predictions_do_not_replace_rows_behind_a_link(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    case.rows.to_parquet(out / "0.parquet", index=False)
    (data / "0.parquet").symlink_to(out / "0.parquet")
    before = (out / "0.parquet").read_bytes()
    assert "would replace the rows" in refused(capsys, case.package, data, "-o", out, "--overwrite")
    assert (out / "0.parquet").read_bytes() == before


PLANTED: list[dict[str, Any]] = [
    *({"files": {name: [1, 2]}} for name in (
        "../precious.x", "../precious.parquet", "{root}/precious.parquet", "a/../../precious.parquet",
        "./0.parquet",
        "//precious.parquet", "..", "", ".", "0.txt", "a\0.parquet", "0.parquet/",
    )),
    *({"files": files} for files in ([], None, "0.parquet")),
    *({"files": {"0.parquet": stamp}} for stamp in (None, [1], [1, "2"], [True, 2], {"a": 1})),
    {"version": 2}, {"version": "1"}, {"format": "other"}, {"package": None}, {"keep": "id"}, {"keep": [1]},
    {"drop": 1}, {"output": 3},
]  # fmt: skip


def test_planted_notes(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, data, out = tmp_path / "root", tmp_path / "data", tmp_path / "root" / "out"
    case.write(data, case.rows)
    out.mkdir(parents=True)
    for precious in (
        root / "precious.x",
        root / "precious.parquet",
        out / "mine.parquet",
        out / ".mine.parquet.1a",
    ):
        precious.write_text("mine")
    good = dataset.Job(case.package, data, out).notes([]) | {"package": "another"}
    texts = [json.dumps(good | one).replace("{root}", str(root)) for one in PLANTED]
    texts += ["", "[]", "null", "{}", "[" * 100_000, '{"version": ' + "9" * 5000 + "}", "\xff\xfe"]
    before = sorted(map(str, root.rglob("*")))
    for text in texts:
        (out / "_hbtvm.json").write_text(text, encoding="latin-1")
        for options in ((), ("--overwrite",)):
            assert "is damaged or of another version" in refused(
                capsys, case.package, data, "-o", out, *options
            ), text[:200]
        (out / "_hbtvm.json").unlink()
        assert sorted(map(str, root.rglob("*"))) == before
    # Right notes, in a folder where a link leads out.
    (root / "away").mkdir()
    (root / "away" / "0.parquet").write_text("mine")
    link(root / "away", out / "deep")
    (out / "old.parquet").write_text("of the other package")
    files = {"deep/0.parquet": [1, 2], "old.parquet": [1, 2]}
    (out / "_hbtvm.json").write_text(json.dumps(good | {"files": files}))
    assert "of another package" in refused(capsys, case.package, data, "-o", out)
    assert main(["predict", str(case.package), str(data), "-o", str(out), "--overwrite"]) == 0
    names = ["_hbtvm.json", ".mine.parquet.1a", "mine.parquet", "deep", *(f"{i}.parquet" for i in range(4))]
    assert sorted(os.listdir(out)) == sorted(names)
    assert (root / "away" / "0.parquet").read_text() == "mine"


def test_overwriting_without_notes_predicts_all(case: Case, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    case.write(data, case.rows)
    out.mkdir()
    (out / "0.parquet").write_text("of something else")
    (out / "mine.parquet").write_text("mine")
    assert dataset.predict(dataset.Job(case.package, data, out), overwrite=True) == 400
    assert (out / "mine.parquet").read_text() == "mine"
    assert sum(len(pd.read_parquet(out / f"{i}.parquet")) for i in range(4)) == 400


def test_one_run_at_a_time(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with atomic.locked(out / ".hbtvm.lock", ""):
        assert "another hbtvm predict writes" in refused(capsys, case.package, case.data, "-o", out)
    (out / ".hbtvm.lock").touch()  # of a run that was killed
    (out / ".0.parquet.0123456789abcdef.hbtvm").touch()
    (out / "sub").mkdir()
    assert "this folder has other files" in refused(capsys, case.package, case.data, "-o", out)
    (out / "sub").rmdir()
    assert main(["predict", str(case.package), str(case.data), "-o", str(out)]) == 0
    assert sorted(os.listdir(out)) == [*(f"{i}.parquet" for i in range(4)), "_hbtvm.json"]


def test_one_run_of_an_engine_at_a_time(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, lock = tmp_path / "out[1]*", tmp_path / ".out[1]*.hbtvm.lock"
    with atomic.locked(lock, ""):
        text = refused(capsys, case.package, case.data, "-o", out, "--engine", "dask")
        assert "another hbtvm predict writes" in text
    stale, others = tmp_path / f".{out.name}.0123456789abcdef.hbtvm", tmp_path / ".out.0123456789abcdef.hbtvm"
    for folder in (stale, others):
        folder.mkdir()
        (folder / "0.parquet").touch()
    lock.touch()
    with engines._whole(out) as (temporary, folds):
        assert not folds and not stale.exists() and others.exists()
        (temporary / "a").mkdir()
        (temporary / "a" / "0.parquet").touch()
        (temporary / "a" / ".0.parquet.0123456789abcdef.hbtvm").touch()  # of a worker that was killed
    assert [one.relative_to(out) for one in out.rglob("*.parquet")] == [Path("a/0.parquet")]
    assert os.listdir(out / "a") == ["0.parquet"]
    assert sorted(os.listdir(tmp_path)) == sorted([others.name, out.name])


def test_half_files_of_a_killed_run_are_cleared(case: Case, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    case.rows[["age", "city"]].sample(300_000, replace=True, random_state=0).to_csv(rows, index=False)
    command = [sys.executable, "-m", "hbtvm", "predict", str(case.package), str(rows), "-o", "scores.csv"]
    process = subprocess.Popen(command, cwd=tmp_path)
    while len(os.listdir(tmp_path)) < 2:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (tmp_path / ".scores.csv.swp").touch()  # an editor's
    assert len(os.listdir(tmp_path)) == 3
    case.rows[["age", "city"]].to_csv(rows, index=False)
    assert main(["predict", str(case.package), str(rows), "-o", str(tmp_path / "scores.csv")]) == 0
    assert sorted(os.listdir(tmp_path)) == [".scores.csv.swp", "rows.csv", "scores.csv"]
