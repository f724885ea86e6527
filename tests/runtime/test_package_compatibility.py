"""Packages of every format version so far can be loaded, and predict what they did."""

from __future__ import annotations

import json
import pickle
import platform
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hbtvm.runtime.model import load
from hbtvm.runtime.package import read, to_bytes

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def expected() -> dict[str, list]:
    content = json.loads((DATA / "package_v1.json").read_text())
    content["rows"] = np.array(content["rows"], float)
    return content


def test_version_1_is_read_and_written() -> None:
    package = read(DATA / "package_v1.tar")
    assert (package.library, package.model, package.hbtvm_version) == ("lightgbm", "LGBMClassifier", "0.1.0")
    assert package.target["mcpu"] == "x86-64" and package.target["features"] == []
    assert [kernel.rows for kernel in package.kernels] == [1, 64]
    assert package.tuning == {"trials": 0, "note": "format version 1"}
    assert to_bytes(package) == (DATA / "package_v1.tar").read_bytes()


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
def test_pickled_models_of_version_0_1_0(expected: dict[str, np.ndarray]) -> None:
    """As 0.1.0 pickled them: a name, and the package's bytes with threads and device."""
    arguments = pickle.dumps(((DATA / "package_v1.tar").read_bytes(), 1, "cpu"), protocol=2)
    # Between the protocol's two bytes and the final STOP lie the arguments, which the name is called with.
    pickled = b"\x80\x02chbtvm.runtime.model\n_from_bytes\n" + arguments[2:-1] + b"R."
    model = pickle.loads(pickled)
    assert model.predict(expected["rows"]).tolist() == expected["predict"]
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(expected["rows"]).tolist() == expected["predict"]
