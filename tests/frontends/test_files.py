"""Which file gets to which front end, and what is said of files that hold no model."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import joblib
import pytest

import hbtvm.recursive as rec
from hbtvm import codec
from hbtvm.errors import HbtvmError, InputError, ModelError, ModelFileError, PackageError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.files import recursive_kind
from hbtvm.frontends.xgboost import ubjson
from hbtvm.recursive import known
from hbtvm.run import recursive_model
from hbtvm.runtime.package.file import write
from tests.models import ZOO
from tests.runtime_models import compiled


def _write(path: Path, model: Any) -> Path:
    if path.suffix in (".pkl", ".pickle"):
        path.write_bytes(pickle.dumps(model))
    elif path.suffix == ".joblib":
        joblib.dump(model, path)
    elif path.suffix == ".txt":
        model.booster_.save_model(path)
    else:
        model.save_model(path)
    return path


FILES = [
    ("model.pkl", "sk_boost_two", "scikit-learn"),
    ("model.pickle", "xgb_two_nan", "xgboost"),
    ("model.joblib", "lgb_two", "lightgbm"),
    ("MODEL.JOBLIB", "sk_forest_two", "scikit-learn"),
    ("model.json", "xgb_two_nan", "xgboost"),
    ("model.ubj", "xgb_two_nan", "xgboost"),
    ("model.txt", "lgb_two", "lightgbm"),
]


@pytest.mark.parametrize(("name", "model", "library"), FILES)
def test_reads_the_file_by_its_ending(name: str, model: str, library: str, tmp_path: Path) -> None:
    path = _write(tmp_path / name.lower(), ZOO[model]()).rename(tmp_path / name)
    assert load_model(path).library == library
    assert load_model(str(path)).library == library


def test_an_object_needs_no_file() -> None:
    model = ZOO["sk_boost_two"]()
    assert codec.write(load_model(model).output) == codec.write(from_object(model).output)


def _refused(path: Any, kind: type[Exception] = ModelError) -> str:
    with pytest.raises(kind) as caught:
        load_model(path)
    text = str(caught.value)
    assert type(caught.value) is kind or (kind is ModelError and isinstance(caught.value, ModelFileError))
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_missing_files_and_folders(tmp_path: Path) -> None:
    assert "no such file" in _refused(tmp_path / "model.pkl")
    (tmp_path / "model.txt").mkdir()
    assert "folder" in _refused(tmp_path / "model.txt")


@pytest.mark.parametrize("ending", ["", ".model", ".bin", ".txt", ".json", ".pkl", ".pkl.gz"])
@pytest.mark.parametrize(("name", "model", "library"), FILES)
def test_bytes_count_and_not_the_ending(
    name: str, model: str, library: str, ending: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / name.lower(), ZOO[model]()).rename(tmp_path / f"model{ending}")
    assert load_model(path).library == library


@pytest.mark.parametrize("compress", ["zlib", "gzip", "bz2", "lzma", "xz"])
def test_compressed_joblib_files_by_any_ending(compress: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    joblib.dump(ZOO["sk_boost_two"](), path, compress=(compress, 1))
    assert load_model(path).library == "scikit-learn"


@pytest.mark.parametrize("name", ["model.h5", "model", "model.pkl.gz", "model.csv", "model.tar"])
def test_unknown_bytes_with_unknown_endings_are_refused(name: str, tmp_path: Path) -> None:
    for content in (b"", b"tree of life", b"a,b\n1,2\n", b"\x89HDF\r\n\x1a\n"):
        (tmp_path / name).write_bytes(content)
        assert "expected a model file: a pickle (also of joblib), XGBoost's JSON" in _refused(tmp_path / name)


def test_what_is_no_model_but_known(tmp_path: Path) -> None:
    path = write(compiled("lgb_two"), tmp_path / "model.pkl") or tmp_path / "model.pkl"
    assert "this is a package that hbtvm compiled" in _refused(path)
    booster = ZOO["lgb_two"]().booster_
    path.write_text(json.dumps(booster.dump_model()))
    assert "LightGBM's dump_model" in _refused(path)
    path.write_text("[" + ", ".join(ZOO["xgb_two_nan"]().get_booster().get_dump(dump_format="json")) + "]")
    assert "expected an XGBoost model as save_model writes it" in _refused(path)


@pytest.mark.parametrize(("name", "model", "library"), FILES)
def test_files_that_are_cut_short(name: str, model: str, library: str, tmp_path: Path) -> None:
    path = _write(tmp_path / name.lower(), ZOO[model]())
    content = path.read_bytes()
    for size in (0, 1, 10, len(content) // 2, int(len(content) * 0.8)):
        path.write_bytes(content[:size])
        assert "expected" in _refused(path) or "cut short" in _refused(path)


@pytest.mark.parametrize("ending", [".pkl", ".joblib", ".json", ".ubj", ".txt"])
@pytest.mark.parametrize(
    "content", [b"tree\nversion=v4\n", b'{"a": 1}', b"\x80\x04}.", b"\xff\xfe\x00bytes", b"hello, world\n"]
)
def test_files_of_another_kind(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"model{ending}"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_pickle_of_no_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps({"model": 1}))
    assert "a dict" in _refused(path, UnsupportedModel)
    path.write_bytes(pickle.dumps(Path("x")))
    assert "(from module 'pathlib')" in _refused(path, UnsupportedModel)


def test_errors_are_of_one_family() -> None:
    assert issubclass(UnsupportedModel, ModelError)
    for kind in (ModelError, InputError, PackageError):
        assert issubclass(kind, HbtvmError)


UBJSON = [
    (b"{i\x01aZ}", {"a": None}),
    (b"{i\x01a[TF]U\x01bC!}", {"a": [True, False], "b": "!"}),
    (b"[$U#i\x03\x01\x02\xff", [1, 2, 255]),
    (b"[#i\x02i\x05I\x01\x00", [5, 256]),
    (b"[$d#L\x00\x00\x00\x00\x00\x00\x00\x01\x3f\x80\x00\x00", [1.0]),
    (b"Si\x03\xc3\xa9!", "é!"),
    (b"D\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
]


@pytest.mark.parametrize(("content", "value"), UBJSON)
def test_binary_json(content: bytes, value: Any) -> None:
    assert ubjson.loads(content) == value
    for size in range(len(content)):
        with pytest.raises(ValueError, match="cut short"):
            ubjson.loads(content[:size])
    with pytest.raises(ValueError, match="ends at byte"):
        ubjson.loads(content + b"Z")


NO_UBJSON = {
    "letter": b"x",
    "huge array of nothing": b"[$Z#L\x7f\xff\xff\xff\xff\xff\xff\xff",
    "negative size": b"[$U#i\xff",
    "no size": b"[$U!",
    "size of a fraction": b"Sd\x00\x00\x00\x00",
    "not UTF-8": b"Si\x01\xff",
    "deep arrays": b"[" * 100_000,
    "deep objects": b"{i\x01a" * 50_000,
}


@pytest.mark.parametrize("name", NO_UBJSON)
def test_binary_json_that_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"at byte|cut short"):
        ubjson.loads(NO_UBJSON[name])


@pytest.mark.parametrize("ending", [".rec", ".bin", ".pkl", ".pt2"])
def test_recursive_models_are_told_by_their_bytes(ending: str, tmp_path: Path) -> None:
    rec.Model(known.example("rnn", 3, vocabulary=5)).save(tmp_path / "model.rec")
    path = (tmp_path / "model.rec").rename(tmp_path / f"model{ending}")
    assert recursive_kind(path) == "rec" and recursive_kind(str(path)) == "rec"
    assert "this is a recursive model, which has no rows but structures" in _refused(path)
    own = recursive_model(path)
    assert own is not None and own.cell.name == "rnn"


@pytest.mark.parametrize("ending", [".rec", ".bin", ".pkl", ".pt2"])
def test_archives_are_told_by_their_members(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{ending}"
    for members, kind, sentence in (
        (
            ["archive/data/weights/weight_0", "archive/models/model.json"],
            "pt2",
            "a module that torch exported",
        ),
        (["models/model.json"], "pt2", "a module that torch exported"),
        (["archive/data.pkl", "archive/data/0"], None, "this is a pickle of torch.save"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name in members:
                archive.writestr(name, b"{}")
        assert recursive_kind(path) == kind
        assert sentence in _refused(path)
    # Of unknown archives the ending decides whose sentence refuses them.
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", b"")
    assert recursive_kind(path) == {".rec": "rec", ".pt2": "pt2"}.get(ending)
    content = path.read_bytes()
    for damaged in (content[:40], content[:-10], b"PK\x03\x04", b"PK\x03\x04" + b"\xff" * 100):
        path.write_bytes(damaged)
        assert recursive_kind(path) == {".rec": "rec", ".pt2": "pt2"}.get(ending)
        _refused(path)


def test_no_kind_of_what_is_not_there(tmp_path: Path) -> None:
    assert recursive_kind(tmp_path) is None and recursive_kind(tmp_path / "model.rec") is None
    assert "no such file" in _refused(tmp_path / "model.rec")
