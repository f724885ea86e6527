"""What is written where, what is refused, and the command line."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from category_encoders import HashingEncoder
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import hbtvm
from hbtvm.cli.main import main
from hbtvm.compiler.exporting.constants import quoted
from hbtvm.errors import FileError, InputError, PackageError
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import read
from tests.exported import Error, Loaded

DATA = Path(__file__).parents[1] / "data"
X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.fixture(scope="module")
def model() -> Model:
    return hbtvm.compile(LinearRegression().fit(X, X[:, 0]), batch_sizes=(16,), threads=1)


@pytest.fixture(scope="module")
def package(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "2nd-price.v1.tar"
    model.save(path)
    return path


def test_the_command(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "lib"
    assert main(["export", str(package), "-o", str(out)]) == 0
    told = capsys.readouterr().out
    name = "model_2nd_price"
    assert sorted(one.name for one in out.iterdir()) == [
        "example.c", f"lib{name}.a", f"lib{name}.so", f"{name}.h",
    ]  # fmt: skip
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~_umask()
    assert f"{name}_predict" in told and "cc " in told and "kB" in told
    assert os.listdir(out.parent) == ["lib"]
    # Nothing is replaced unless asked for.
    (out / f"{name}.h").write_text("mine")
    assert main(["export", str(package), "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err and (out / f"{name}.h").read_text() == "mine"
    (out / "other").write_text("stays")
    assert main(["export", str(package), "-o", str(out), "--force"]) == 0
    assert (out / f"{name}.h").read_text() != "mine" and (out / "other").read_text() == "stays"
    assert main(["export", str(package), "-o", str(out), "--name", "price"]) == 2  # example.c is there
    assert main(["export", str(package), "-o", str(out / "price"), "--name", "price"]) == 0
    assert Loaded(out / "price" / "libprice.so").library.price_columns() == 3
    assert main(["export", str(package), "-o", str(out / "other")]) == 2
    assert main(["export", "nothing.tar", "-o", str(out)]) == 2


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["", "9lives", "a-b", "int", "_x", "é", "hbtvm", "x" * 65, "class", 5])
def test_names_that_are_none_in_c(name: str, model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name is"):
        hbtvm.export(model, tmp_path / "lib", name)
    assert not list(tmp_path.iterdir())


def test_names_that_end_or_begin_as_others(model: Model, tmp_path: Path) -> None:
    """Words of what is generated in a name are not taken for these."""
    for name in ("filename", "UPPER", "call_result_what"):
        hbtvm.export(model, tmp_path / name, name)
        Loaded(tmp_path / name / f"lib{name}.so").close()


def test_what_is_refused(model: Model, tmp_path: Path) -> None:
    def refused(given: object) -> str:
        with pytest.raises(PackageError) as error:
            hbtvm.export(given, tmp_path / "lib", "x")  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())
        assert str(error.value).count("\n") == 0 and str(error.value).endswith(".")
        return str(error.value)

    bare = tuple(replace(one, object=b"") for one in model.package.kernels)
    assert "compile the model again" in refused(replace(model.package, kernels=bare))
    assert "GPU" in refused(DATA / "package_v1_gpu.tar")
    assert "transforms" in refused(hbtvm.compile(OneHotEncoder().fit(X.round())))
    assert "transforms" in refused(hbtvm.compile(CountVectorizer().fit(["a text", "another text"])))
    assert "not a tar archive" in refused(b"no package" * 100)
    hashed = make_pipeline(HashingEncoder(cols=["city"], n_components=2, max_process=1), LinearRegression())
    told = refused(hbtvm.compile(hashed.fit(pd.DataFrame({"city": ["Rome", "Oslo"]}), [0, 1])))
    assert "step 'hashingencoder' (HashingEncoder): counts of hashes can't be computed outside of" in told
    bad = replace(model.package, input=replace(model.package.input, feature_names=("a", "b\0c", "d")))
    assert "NUL" in refused(bad)


def test_a_folder_that_cannot_be_written(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="can't write"):
        hbtvm.export(model, tmp_path / "file" / "below" / "lib", "x")
    with pytest.raises(InputError, match="not a folder"):
        hbtvm.export(model, tmp_path / "file", "x")


def test_a_compiler_that_fails_leaves_nothing(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbtvm.compiler.exporting.export.c_compiler", lambda target: "/bin/false")
    with pytest.raises(hbtvm.BuildError, match="could not"):
        hbtvm.export(model, tmp_path / "lib", "x")
    assert not list(tmp_path.iterdir())


def test_models_for_float32_alone_refuse_other_numbers(tmp_path: Path) -> None:
    fitted = LogisticRegression().fit(X, X[:, 0] > 0)
    compiled = hbtvm.compile(fitted, batch_sizes=(16,), threads=1)
    single = tuple(one for one in compiled.package.kernels if one.dtype == "float32")
    assert single and len(single) < len(compiled.package.kernels)
    model = Model(replace(compiled.package, kernels=single))
    hbtvm.export(model, tmp_path / "lib", "single")
    loaded, error, out = Loaded(tmp_path / "lib" / "libsingle.so"), Error(), np.zeros((5, 2))
    rows = np.full((5, 3), 0.5)
    assert loaded.call("predict_proba_f64", rows, out) == 0
    assert out.tobytes() == model.predict_proba(rows).tobytes()
    rows[3, 1] = 0.1
    assert loaded.call("predict_proba_f64", rows, out, error=error) == 6
    assert (error.code, error.row, error.column) == (6, 3, 1)
    with pytest.raises(InputError):
        model.predict_proba(rows)


def test_equal_tables_and_kernels_are_there_once(model: Model, tmp_path: Path) -> None:
    twice = replace(model.package, kernels=(*model.package.kernels, *model.package.kernels))
    hbtvm.export(model, tmp_path / "one", "x")
    hbtvm.export(twice, tmp_path / "two", "x")
    sizes = [(tmp_path / one / "libx.so").stat().st_size for one in ("one", "two")]
    assert sizes[1] - sizes[0] < 4096


def test_texts_as_literals() -> None:
    assert quoted('a"b\\c?') == r'"a\042b\134c\077"'
    assert quoted("é\n1") == r'"\303\251\0121"'


def test_packages_of_other_names(package: Path, tmp_path: Path) -> None:
    """Names are made of the file's; models have none."""
    assert hbtvm.export(read(package), tmp_path / "a").name == "model"
    assert hbtvm.export(package.read_bytes(), tmp_path / "b").name == "model"
