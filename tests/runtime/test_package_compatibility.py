"""Packages of every format version so far can be loaded, and predict what they did."""

from __future__ import annotations

import json
import pickle
import platform
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package import from_bytes, read, to_bytes

DATA = Path(__file__).parents[1] / "data"


def _no_gpu() -> str | None:
    try:
        driver.gpu(0)
    except DeviceError as error:
        return str(error)
    return None


NO_GPU_HERE = _no_gpu()


@pytest.fixture(scope="module")
def expected() -> dict[str, list]:
    content = json.loads((DATA / "package_v1.json").read_text())
    content["rows"] = np.array(content["rows"], float)
    return content


def test_version_1_is_read() -> None:
    package = read(DATA / "package_v1.tar")
    assert (package.library, package.model, package.hbtvm_version) == ("lightgbm", "LGBMClassifier", "0.1.0")
    assert package.target["mcpu"] == "x86-64" and package.target["features"] == []
    assert [kernel.rows for kernel in package.kernels] == [1, 64]
    assert package.tuning == {"trials": 0, "note": "format version 1"}
    again = from_bytes(to_bytes(package))
    assert to_bytes(again) == to_bytes(package)
    assert [kernel.signature for kernel in again.kernels] == [kernel.signature for kernel in package.kernels]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
@pytest.mark.parametrize("threads", [None, 1, 2])
def test_version_1_predicts(expected: dict[str, np.ndarray], threads: int | None) -> None:
    model = load(DATA / "package_v1.tar", threads=threads)
    rows = expected["rows"]
    assert model.predict(rows).tolist() == expected["predict"]
    np.testing.assert_allclose(model.predict_proba(rows), expected["predict_proba"], rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(rows[:1]), expected["predict_proba"][:1], rtol=1e-9)
    assert model.predict(pd.DataFrame(rows, columns=list("abc"))).tolist() == expected["predict"]
    many = np.repeat(rows, 50, axis=0)
    assert model.predict(many).tolist() == np.repeat(expected["predict"], 50).tolist()
    assert model.predict(rows.astype(np.float32)).shape == (len(rows),)
    assert model.classes_.tolist() == expected["classes"]
    assert "3 classes: high, low, mid" in model.summary()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
@pytest.mark.parametrize("threads", [None, 1, 2])
def test_version_2_predicts(threads: int | None) -> None:
    """Kernels for rows without missing values beside others for all rows, in two types."""
    package = read(DATA / "package_v2.tar")
    kinds = [(kernel.rows, kernel.dtype, kernel.missing) for kernel in package.kernels]
    assert kinds == [
        *((rows, "float32", False) for rows in (1, 64)),
        *((rows, "float32", True) for rows in (1, 64)),
        *((rows, "float64", True) for rows in (1, 64)),
    ]
    wanted = json.loads((DATA / "package_v4.json").read_text())  # of the same model
    rows = np.array(wanted["rows"], float)
    for model in (
        load(DATA / "package_v2.tar", threads=threads),
        Model(from_bytes(to_bytes(package)), threads),
    ):
        for count in (1, 4, 9, 900):
            X = np.resize(rows, (count, 3))
            expected = np.resize(np.array(wanted["predict_proba"]), (count, 3))
            for dtype in (np.float32, np.float64):
                np.testing.assert_allclose(model.predict_proba(X.astype(dtype)), expected, rtol=1e-5)
        assert model.predict(rows).tolist() == wanted["predict"]


def test_version_4_is_read() -> None:
    """A GPU's kernels, one of which leaves its sums in two parts."""
    package = read(DATA / "package_v4.tar")
    assert package.target["arch"] == "sm_90" and package.tuning["note"] == "format version 4"
    kinds = [(kernel.rows, kernel.dtype, kernel.signature.parts) for kernel in package.kernels]
    assert kinds == [(1, "float32", 2), (100, "float32", 1), (1, "float64", 1), (100, "float64", 1)]
    for kernel in package.kernels:
        assert kernel.launch is not None and kernel.launch.function == "main_kernel"
        own = kernel.signature
        assert (own.row_tile, own.groups, own.width) == (kernel.config["row_tile"], 3, 1)
        assert kernel.launch.blocks(own.shapes(kernel.tables, 7))[0] == 7
    again = from_bytes(to_bytes(package))
    assert [kernel.launch for kernel in again.kernels] == [kernel.launch for kernel in package.kernels]
    assert [kernel.signature for kernel in again.kernels] == [kernel.signature for kernel in package.kernels]


@pytest.mark.skipif(NO_GPU_HERE is not None, reason=str(NO_GPU_HERE))
def test_version_4_predicts() -> None:
    model = load(DATA / "package_v4.tar")
    wanted = json.loads((DATA / "package_v4.json").read_text())
    for count in (1, 9, 500):
        expected = np.resize(np.array(wanted["predict_proba"]), (count, 3))
        rows = np.resize(np.array(wanted["rows"], float), (count, 3))
        np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-5)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
def test_pickled_models_of_version_0_1_0(expected: dict[str, np.ndarray]) -> None:
    """As 0.1.0 pickled them: a name, and the package's bytes with threads and device."""
    arguments = pickle.dumps(((DATA / "package_v1.tar").read_bytes(), 1, "cpu"), protocol=2)
    # Between the protocol's two bytes and the final STOP lie the arguments, which the name is called with.
    pickled = b"\x80\x02chbtvm.runtime.model\n_from_bytes\n" + arguments[2:-1] + b"R."
    model = pickle.loads(pickled)
    assert model.predict(expected["rows"]).tolist() == expected["predict"]
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(expected["rows"]).tolist() == expected["predict"]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
def test_version_5_is_read_and_predicts() -> None:
    content = json.loads((DATA / "package_v5.json").read_text())
    package = read(DATA / "package_v5.tar")
    assert package.forest["operator"] == "trees" and not package.parts.feeds and not package.steps
    assert package.tuning["note"] == "format version 5"
    rows = [dict(zip(("a", "b", "colour"), row, strict=True)) for row in content["rows"]]
    for model in (Model(package), Model(from_bytes(to_bytes(package)))):
        assert model.predict(rows).tolist() == content["predict"]
        np.testing.assert_allclose(model.predict_proba(rows), content["predict_proba"], rtol=1e-6)
        frame = pd.DataFrame(rows)
        np.testing.assert_allclose(model.predict_proba(frame), content["predict_proba"], rtol=1e-6)
        assert model.predict(rows[3]).tolist() == content["predict"][3:4]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
def test_version_6_with_neighbours_predicts() -> None:
    """Kernels of distances, whose nearest points the runtime finds; no kernels do so any more."""
    wanted = json.loads((DATA / "package_v6_neighbors.json").read_text())
    package = read(DATA / "package_v6_neighbors.tar")
    rows = np.array(wanted["rows"])
    for model in (load(DATA / "package_v6_neighbors.tar"), Model.from_package(from_bytes(to_bytes(package)))):
        assert model.predict(rows).tolist() == wanted["predict"]
        np.testing.assert_allclose(model.predict_proba(rows), wanted["predict_proba"], rtol=1e-9)
        np.testing.assert_allclose(model.predict_proba(rows[-1:]), wanted["predict_proba"][-1:], rtol=1e-9)
    assert "4 nearest of 40 points" in model.summary()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
def test_version_7_with_float64_columns_and_with_stages() -> None:
    """What transforms leaves float32 in its kernels' scores since; a vote has a forest's kernel as stage."""
    wanted = json.loads((DATA / "package_v7.json").read_text())
    rows = np.array(wanted["rows"])
    package = read(DATA / "package_v7_scaler.tar")
    assert {kernel.signature.scores.dtype for kernel in package.kernels} == {"float64"}
    for scaler in (Model(package), Model(from_bytes(to_bytes(package)))):
        for some in (slice(0, 9), slice(3, 4)):
            found = scaler.transform(rows[some].astype(np.float32))
            assert found.dtype == np.float32
            assert found.tolist() == wanted["transform_float32"][some]
            np.testing.assert_allclose(scaler.transform(rows[some]), wanted["transform"][some], rtol=1e-14)
    package = read(DATA / "package_v7_voting.tar")
    assert len(package.stages) == 1
    for voting in (Model(package), Model(from_bytes(to_bytes(package)))):
        assert voting.predict(rows).tolist() == wanted["predict"]
        np.testing.assert_allclose(voting.predict_proba(rows), wanted["predict_proba"], rtol=1e-6)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its kernels are x86-64 code")
def test_version_8_with_float32_columns_a_package_within_and_texts() -> None:
    """Kernels have no objects, from which libraries for C are linked."""
    wanted = json.loads((DATA / "package_v8.json").read_text())
    rows, texts = np.array(wanted["rows"]), wanted["texts"]
    package = read(DATA / "package_v8_scaler.tar")
    assert {kernel.signature.scores.dtype for kernel in package.kernels} == {"float32", "float64"}
    assert not any(kernel.object for kernel in package.kernels)
    for scaler in (Model(package), Model(from_bytes(to_bytes(package)))):
        for some in (slice(0, 9), slice(3, 4)):
            found = scaler.transform(rows[some].astype(np.float32))
            assert found.dtype == np.float32
            assert found.tolist() == wanted["transform_float32"][some]
            np.testing.assert_allclose(scaler.transform(rows[some]), wanted["transform"][some], rtol=1e-14)
    package = read(DATA / "package_v8_clusters.tar")
    for clusters in (Model(package), Model(from_bytes(to_bytes(package)))):
        assert clusters.predict(rows).tolist() == wanted["cluster"]
        np.testing.assert_allclose(clusters.transform(rows), wanted["distances"], rtol=1e-12)
    package = read(DATA / "package_v8_terms.tar")
    for terms in (Model(package), Model(from_bytes(to_bytes(package)))):
        np.testing.assert_allclose(terms.transform(texts).toarray(), wanted["terms"], rtol=1e-14)
