"""``hbtvm predict`` of sparse rows, and of category columns that only the rows tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse

from hbtvm import api, codec
from hbtvm.cli.main import main
from hbtvm.cli.rows import data_in
from hbtvm.runtime.package.file import from_bytes, read, to_bytes


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hbtvm(*given: object) -> None:
    assert main(list(map(str, given))) == 0


def refused(capsys: pytest.CaptureFixture[str], *given: object) -> str:
    assert main(list(map(str, given))) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def rows(n: int = 300) -> np.ndarray:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[rng.random(X.shape) < 0.6] = 0
    return X


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_sparse_rows_from_a_file(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_in, "_MOST_ROWS", 128)
    X = sparse.csr_matrix(rows())
    y = np.asarray(X.sum(axis=1)).ravel()
    booster = xgb.train({"max_depth": 4}, xgb.DMatrix(X, y), 4)
    regressor = lgb.LGBMRegressor(n_estimators=4, verbose=-1, min_child_samples=3).fit(X, y)
    sparse.save_npz("rows.npz", X.asformat(kind))
    for model, want in ((booster, booster.predict(xgb.DMatrix(X))), (regressor, regressor.predict(X))):
        api.compile(model, batch_sizes=(100,), threads=1).save("model.tar")
        hbtvm("predict", "model.tar", "rows.npz", "-o", "out.npy")
        np.testing.assert_allclose(np.load("out.npy"), want, rtol=1e-5, atol=1e-6)


def test_other_archives_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows(), rows()[:, 0]
    api.compile(xgb.train({}, xgb.DMatrix(X, y), 1), batch_sizes=(1,), threads=1).save("model.tar")
    np.savez("rows.npz", X)
    assert "not a sparse matrix of scipy.sparse.save_npz" in refused(
        capsys, "predict", "model.tar", "rows.npz"
    )
    Path("rows.npz").write_bytes(b"PK\x03\x04" + bytes(40))
    assert "not a sparse matrix" in refused(capsys, "predict", "model.tar", "rows.npz")
    np.savez("rows.npz", format=np.array([{}], object), shape=(3, 6), allow_pickle=True)  # type: ignore[arg-type]
    assert "not a sparse matrix" in refused(capsys, "predict", "model.tar", "rows.npz")
    sparse.save_npz("rows.npz", sparse.csr_matrix(X[:, :5]))
    assert "there are 5 columns, the model has 6" in refused(capsys, "predict", "model.tar", "rows.npz")


def frame(words: bool) -> tuple[pd.DataFrame, lgb.Booster]:
    """A frame whose category columns the model's text alone does not tell, and a model of it."""
    rng = np.random.default_rng(7)
    n = 400
    X = pd.DataFrame({"size": rng.normal(size=n)})
    X["kind"] = pd.Categorical.from_codes(rng.integers(-1, 3, n), ["z", "b", "c"])
    X["flag"] = rng.integers(0, 2, n)
    levels: list[Any] = ["low", "mid", "high"] if words else [30, 10, 20]
    X["level"] = pd.Categorical.from_codes(rng.integers(-1, 3, n), levels, ordered=True)
    y = X["size"] + 2 * (X["kind"] == "b") + np.cos(3.0 * X["level"].cat.codes) + X["flag"]
    data = lgb.Dataset(X, y)
    return X, lgb.train({"verbose": -1, "cat_smooth": 1, "min_data_per_group": 5, "num_threads": 1}, data, 9)


@pytest.mark.parametrize("words", [True, False])
def test_category_columns_that_only_the_rows_tell(words: bool, capsys: pytest.CaptureFixture[str]) -> None:
    X, booster = frame(words)
    booster.save_model("model.txt")
    made = api.compile("model.txt", batch_sizes=(100,), threads=1)
    made.save("model.tar")
    package = read("model.tar")
    assert len(package.input.category_order) == 2
    assert from_bytes(to_bytes(package)).input == package.input
    want = booster.predict(X)
    np.testing.assert_allclose(made.predict(X), want, rtol=1e-5, atol=1e-6)
    X.to_parquet("rows.parquet")
    X.to_csv("rows.csv", index=False)
    hbtvm("predict", "model.tar", "rows.parquet", "-o", "out.npy")
    np.testing.assert_allclose(np.load("out.npy"), want, rtol=1e-5, atol=1e-6)
    if words:
        hbtvm("predict", "model.tar", "rows.csv", "-o", "out.npy")
        np.testing.assert_allclose(np.load("out.npy"), want, rtol=1e-5, atol=1e-6)
    else:
        text = refused(capsys, "predict", "model.tar", "rows.csv")
        assert "columns 'flag', 'level': the model file does not say which of them held categories" in text


def test_certain_categories_are_told_as_they_were() -> None:
    X, _ = frame(True)
    X = X[["size", "kind"]]
    booster = lgb.train(
        {"verbose": -1, "cat_smooth": 1, "min_data_per_group": 5}, lgb.Dataset(X, X["size"]), 3
    )
    data = to_bytes(api.compile(booster, batch_sizes=(1,), threads=1).package)
    assert "category_order" not in codec.write(from_bytes(data).input)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_archives_whose_places_lie(kind: str) -> None:
    """In a process of its own: scipy's conversions follow wrong places."""
    X, y = rows(), rows()[:, 0]
    api.compile(xgb.train({}, xgb.DMatrix(X, y), 1), batch_sizes=(1,), threads=1).save("model.tar")
    good = sparse.csr_matrix(X).asformat(kind)
    places, starts = good.indices, good.indptr
    lies = [
        *(("indices", places + by) for by in (10**8, -(10**8), 400, -1)),
        *(("indptr", lie) for lie in (starts * 1000, starts[::-1], -starts, starts[:-1])),
        ("data", good.data.astype(complex)), ("data", good.data.astype(str)), ("data", good.data[:-1]),
        ("format", b"xxx"), ("format", 3), ("shape", (-4, 6)), ("shape", 3), ("shape", (300, 6, 1)),
    ]  # fmt: skip
    for i, (name, value) in enumerate(lies):
        members = {
            "format": kind.encode(),
            "shape": good.shape,
            "data": good.data,
            "indices": places,
            "indptr": starts,
        }
        np.savez(f"{i}.npz", **(members | {name: value}))  # type: ignore[arg-type]
    code = f"""
from hbtvm.cli.main import main
for i in range({len(lies)}):
    print(i, flush=True)
    assert main(["predict", "model.tar", f"{{i}}.npz"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout[-20:], done.stderr)
    assert done.stderr.count("\n") == len(lies) and "bug" not in done.stderr


def test_archives_of_more_than_memory_holds(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows(), rows()[:, 0]
    api.compile(xgb.train({}, xgb.DMatrix(X, y), 1), batch_sizes=(1,), threads=1).save("model.tar")
    sparse.save_npz("rows.npz", sparse.csr_matrix(X))
    data = bytearray(Path("rows.npz").read_bytes())
    at = data.index(b"PK\x01\x02")  # the first entry of the table of contents: its unpacked size
    data[at + 24 : at + 28] = (2**32 - 2).to_bytes(4, "little")
    Path("rows.npz").write_bytes(data)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 19}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hbtvm.cli.rows.npz_in.os.sysconf", pages.get)
        text = refused(capsys, "predict", "model.tar", "rows.npz")
    assert "more than this machine's memory" in text


def test_damaged_headers_of_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows(), rows()[:, 0]
    api.compile(xgb.train({}, xgb.DMatrix(X, y), 1), batch_sizes=(1,), threads=1).save("model.tar")
    np.save("good.npy", X[:4])
    good, rng = Path("good.npy").read_bytes(), np.random.default_rng(2)
    headers = [good.replace(b"(4, 6)", b"(4, 06"), good.replace(b"}", b"("), good.replace(b"'<f4'", b"'''f4")]
    for _ in range(150):
        bad = bytearray(good)
        for at in rng.integers(0, 128, rng.integers(1, 4)):
            bad[at] = int(rng.choice([0, 32, 40, 48, 57, 127, 255, int(rng.integers(256))]))
        headers.append(bytes(bad))
    for header in headers:
        Path("bad.npy").write_bytes(header)
        status = main(["predict", "model.tar", "bad.npy", "-o", "out.csv"])
        text = capsys.readouterr().err
        assert status in (0, 2) or "not enough memory" in text, (header[:128], text)
        assert text.count("\n") == (status != 0)
