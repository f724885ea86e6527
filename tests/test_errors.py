"""Errors: importable from `hbtvm`, Python's own kinds besides, whole after pickling."""

from __future__ import annotations

import inspect
import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hbtvm
from hbtvm import errors
from tests import models
from tests.runtime_models import random_rows

KINDS: dict[str, tuple[type[Exception], ...]] = {
    "InputError": (ValueError,),
    "InputTypeError": (hbtvm.InputError, ValueError, TypeError),
    "ModelError": (ValueError,),
    "UnsupportedModel": (hbtvm.ModelError, ValueError, TypeError),
    "ModelFileError": (hbtvm.ModelError, ValueError, OSError),
    "ModelNotFoundError": (hbtvm.ModelFileError, ValueError, FileNotFoundError),
    "PackageError": (ValueError,),
    "PackageFileError": (hbtvm.PackageError, OSError),
    "PackageNotFoundError": (hbtvm.PackageFileError, FileNotFoundError),
    "TargetError": (ValueError,),
    "DeviceError": (RuntimeError,),
    "BuildError": (RuntimeError,),
}


def test_every_error_is_importable_from_hbtvm() -> None:
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert defined - {"Any"} <= set(hbtvm.__all__)
    assert all(getattr(hbtvm, name) is getattr(errors, name) for name in defined - {"Any"})
    assert issubclass(hbtvm.LogError, OSError)
    for name, kinds in KINDS.items():
        error = getattr(hbtvm, name)
        assert issubclass(error, hbtvm.HbtvmError)
        assert all(issubclass(error, kind) for kind in kinds), name


def test_importing_errors_imports_no_compiler() -> None:
    names = "InputError, LogError, PackageNotFoundError"
    code = f"import sys; from hbtvm import {names}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_errors_about_a_row() -> None:
    error = hbtvm.InputError(f"column 1, row {errors.ROW}: got NaN.", 9)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert (str(each), each.row) == ("column 1, row 9: got NaN.", 9)
        assert each.counted(100) == "column 2, row 110: got NaN."
    assert hbtvm.InputError("column 'a 1' is missing.").counted(5) == "column 'a 1' is missing."


@pytest.mark.parametrize("name", sorted(KINDS))
def test_errors_survive_pickling(name: str) -> None:
    kind = getattr(hbtvm, name)
    more = (2, "m.tar") if issubclass(kind, errors.FileError) else ()
    error = pickle.loads(pickle.dumps(kind("a sentence.", *more)))
    assert type(error) is kind and str(error) == "a sentence."
    if more:
        assert (error.errno, error.filename) == more


def test_missing_files_are_what_python_calls_them(tmp_path: Path) -> None:
    gone = tmp_path / "gone.tar"
    with pytest.raises(FileNotFoundError, match=r"^there is no file .*gone\.tar\.$") as found:
        hbtvm.load(gone)
    assert isinstance(found.value, hbtvm.PackageError) and found.value.filename == str(gone)
    with pytest.raises(OSError, match=r"can't read .*: Is a directory") as found:
        hbtvm.load(tmp_path)
    assert isinstance(found.value, hbtvm.PackageFileError) and not isinstance(found.value, FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="there is no such file") as missing:
        hbtvm.compile(tmp_path / "gone.txt")
    assert isinstance(missing.value, hbtvm.ModelError)
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(OSError, match="it is a folder"):
        hbtvm.compile(tmp_path / "folder.txt")
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(b"x" * 2000)
    with pytest.raises(ValueError, match="is not a tar archive"):
        hbtvm.load(damaged)


def test_a_package_from_bytes_and_open_files(tmp_path: Path) -> None:
    trained = models.ZOO["xgb_rf_real"]()
    made = hbtvm.compile(trained, batch_sizes=4, threads=1)
    path = tmp_path / "m.tar"
    made.save(path)
    data = path.read_bytes()
    X = random_rows(20, made.n_features_in_)
    expected = made.predict(X)
    with open(path, "rb") as file:
        sources = (str(path), data, bytearray(data), memoryview(data), io.BytesIO(data), file)
        for source in sources:
            np.testing.assert_array_equal(hbtvm.load(source).predict(X), expected)
        assert not file.closed
    with open(path, encoding="latin-1") as text, pytest.raises(TypeError, match=r"m\.tar was opened as text"):
        hbtvm.load(text)  # type: ignore[arg-type]
    with open(path, encoding="utf-8") as text, pytest.raises(TypeError, match="mode 'rb'"):
        hbtvm.load(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a package as the path of its file, .* got a NoneType"):
        hbtvm.load(None)  # type: ignore[arg-type]
    with pytest.raises(hbtvm.PackageError, match=r"^the package is cut short"):
        hbtvm.load(data[:-600])
    with pytest.raises(TypeError, match="path is an int; expected the path of a file"):
        made.save(5)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="can't write"):
        made.save(tmp_path / "nowhere" / "m.tar")
    with pytest.raises(ValueError, match="output is"):
        made.predict(X, ["label"])  # type: ignore[arg-type]


def test_refusals_are_not_wrapped_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `ModelError` is a `ValueError`, but code that explains values errors must pass it through."""
    import lightgbm as lgb

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    linear = lgb.train(
        {"linear_tree": True, "verbose": -1}, lgb.Dataset(X, X[:, 0], params={"linear_tree": True}), 2
    )
    monkeypatch.setattr("hbtvm.frontends.lightgbm.linear._MOST_VALUES", 10)
    with pytest.raises(hbtvm.UnsupportedModel, match=r"^the LightGBM model has linear trees .* too many"):
        hbtvm.compile(linear)


def test_compressed_files_that_expand_too_far_are_said_to(tmp_path: Path) -> None:
    import gzip

    from hbtvm.frontends import load_model

    path = tmp_path / "m.pkl"
    path.write_bytes(gzip.compress(pickle.dumps(["x" * 3_000_000])))
    with pytest.raises(hbtvm.ModelError, match=r"^[^()]*m\.pkl: the gzip file expands to more than") as found:
        load_model(path, max_bytes=1_000_000)
    assert "damaged" not in str(found.value)
