"""Pickles of supported models, of every protocol and compression, read without any library."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zlib
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.cluster import DBSCAN, OPTICS
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from hbtvm import codec
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model, pickles
from hbtvm.frontends.pickles import Global, ObjectArray, Record
from hbtvm.graph.trees import reference
from tests.models import ZOO, data


def _load(content: bytes, tmp_path: Path, **options: Any) -> Any:
    path = tmp_path / "value.pkl"
    path.write_bytes(content)
    return pickles.load(path, **options)


def _same(one: Any, other: Any) -> None:
    for name in (
        "feature",
        "threshold",
        "left",
        "right",
        "value",
        "base_score",
        "tree_output",
        "category_set",
    ):
        np.testing.assert_array_equal(getattr(one.anchor, name), getattr(other.anchor, name))
    assert codec.write(one.output) == codec.write(other.output)
    assert (one.model, one.input) == (other.model, other.input)


MODELS = [name for name in ZOO if "own_objective" not in name and not name.startswith("xgb_reg:")]


@pytest.mark.parametrize("name", MODELS)
def test_supported_models_load_from_each_kind_of_file(name: str, tmp_path: Path) -> None:
    model = ZOO[name]()
    expected = load_model(model)
    for protocol in (0, 2, 5):
        path = tmp_path / f"model{protocol}.pkl"
        path.write_bytes(pickle.dumps(model, protocol=protocol))
        _same(load_model(path), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    _same(load_model(tmp_path / "model.joblib"), expected)


@pytest.mark.parametrize("method", ["zlib", "gzip", "bz2", "xz", "lzma"])
def test_compressed_joblib_files(method: str, tmp_path: Path) -> None:
    model = ZOO["sk_forest_three_nan"]()
    path = tmp_path / "model.joblib"
    joblib.dump(model, path, compress=(method, 3))
    _same(load_model(path), load_model(model))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ModelError, match="expected a pickled model"):
        load_model(path)


@pytest.mark.parametrize("protocol", range(6))
def test_joblib_writes_any_protocol(protocol: int, tmp_path: Path) -> None:
    model = ZOO["sk_boost_two"]()
    joblib.dump(model, tmp_path / "model.joblib", protocol=protocol)
    _same(load_model(tmp_path / "model.joblib"), load_model(model))


VALUES: dict[str, Any] = {
    "plain": [None, True, False, 0, 1, -1, 255, 256, 65536, 2**31, -(2**40), 2**70, 1.5, -0.0, "é€😀",
              b"\0\xff"],
    "nested": {"a": (1, (2, [3, {4: (5,)}])), ("t", 1): [], None: {}},
    "large": ["x" * 300, b"y" * 70_000, "z" * 70_000],
    "collections": [OrderedDict(a=1, b=2), defaultdict(list, {"k": [1]}), bytearray(b"abc"), 1 + 2j],
    "shared": (lambda part: [part, part, {"k": part}])([1, 2]),
    "scalars": [np.float64(1.5), np.int8(-3), np.bool_(True), np.str_("été"), np.float32(0.1),
                np.uint64(2**63)],
    "arrays": [
        np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(["a", "bcd"]),
        np.array([b"x", b"yz"]), np.zeros((0, 3)), np.array(3.5), np.arange(10)[::2], np.array([True, False]),
        np.arange(4, dtype=">i4"), np.arange(5000, dtype=np.float32),
    ],
    "records": [np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
                np.zeros(3, np.dtype([("x", "u1")], align=True))],
}  # fmt: skip


def _equal(found: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        assert found.dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, value)
    elif isinstance(value, (list, tuple)):
        assert type(found) is type(value) and len(found) == len(value)
        for one, other in zip(found, value, strict=True):
            _equal(one, other)
    elif isinstance(value, dict):
        assert list(found) == list(value)
        _equal(list(found.values()), list(value.values()))
    elif isinstance(value, (bytes, bytearray)):
        assert bytes(found) == bytes(value)
    else:
        assert found == value and str(found) == str(value)
        assert isinstance(found, type(value)) or isinstance(value, np.str_)


@pytest.mark.parametrize("writer", ["0", "1", "2", "3", "4", "5", "joblib", "live"])
@pytest.mark.parametrize("name", VALUES)
def test_plain_values_are_read_as_python_reads_them(name: str, writer: str, tmp_path: Path) -> None:
    value = VALUES[name]
    if writer == "live":
        found = pickles.from_live(value)
    elif writer == "joblib":
        joblib.dump(value, tmp_path / "v.joblib")
        found = pickles.load(tmp_path / "v.joblib")
    else:
        found = _load(pickle.dumps(value, protocol=int(writer)), tmp_path)
    _equal(found, value)
    if name == "shared" and writer != "joblib":
        assert found[0] is found[1] is found[2]["k"]


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_objects_become_records(protocol: int, tmp_path: Path) -> None:
    found = _load(pickle.dumps([Path("x"), np.random.default_rng(0), {1, 2}, slice], protocol), tmp_path)
    assert isinstance(found[0], Record) and isinstance(found[1], Record)
    assert found[1].cls.name == "__generator_ctor"
    # A set stands as the list of its members.
    assert sorted(found[2]) == [1, 2]
    assert isinstance(found[3], Global) and found[3].name == "slice"
    objects = np.array([[1, "a"], [None, 2.5]], object)
    for order in "CF":
        found = _load(pickle.dumps(np.array(objects, order=order), protocol), tmp_path)
        assert isinstance(found, ObjectArray)
        assert (found.shape, found.items) == ((2, 2), [1, "a", None, 2.5])
    assert _load(pickle.dumps(np.datetime64("2020-01-01"), protocol), tmp_path).cls.name == "scalar"


def test_arrays_of_objects_in_joblib_files(tmp_path: Path) -> None:
    value = {"a": np.array(["x", None, 3], object), "b": np.arange(3), "c": np.array([[1, "y"]], object)}
    joblib.dump(value, tmp_path / "v.joblib")
    found = pickles.load(tmp_path / "v.joblib")
    assert found["a"].items == ["x", None, 3] and found["c"].shape == (1, 2)
    np.testing.assert_array_equal(found["b"], [0, 1, 2])


def test_live_objects_with_parts_that_have_no_pickle() -> None:
    model = DecisionTreeClassifier(max_depth=2).fit(data()[0], data()[1] > 1)
    expected = from_object(model)
    model.extra = [lambda x: x, open(__file__), (i for i in range(3)), io, sys.stdout]  # noqa: SIM115
    _same(from_object(model), expected)


PROGRAM = """
import sys
for name in ("sklearn", "xgboost", "lightgbm", "joblib", "pandas", "scipy"):
    sys.modules[name] = None
import json, hashlib
from hbtvm import codec
from hbtvm.frontends import load_model
found = {}
for path in sys.argv[1:]:
    graph = load_model(path)
    parts = [getattr(graph.anchor, n).tobytes() for n in ("threshold", "value", "base_score", "left")]
    text = json.dumps([codec.write(graph.output), codec.write(graph.input), graph.model], default=str)
    found[path] = hashlib.sha256(b"".join(parts) + text.encode()).hexdigest()
print(json.dumps(found))
assert not [name for name in ("sklearn", "xgboost", "lightgbm", "joblib") if sys.modules[name] is not None]
"""


def test_no_training_library_is_needed(tmp_path: Path) -> None:
    """Files of every supported class, read where the libraries can't be imported, as they are read here."""
    paths = []
    for name in ZOO:
        if "own_objective" in name:
            continue
        safe = name.replace(":", "_")
        (tmp_path / f"{safe}.pkl").write_bytes(pickle.dumps(ZOO[name]()))
        joblib.dump(ZOO[name](), tmp_path / f"{safe}.joblib")
        paths += [str(tmp_path / f"{safe}.pkl"), str(tmp_path / f"{safe}.joblib")]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert len(found) == len(paths) > 180
    here = PROGRAM.replace("sys.modules[name] = None", "pass").rpartition("assert")[0]
    run = subprocess.run(
        [sys.executable, "-c", here, *paths], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(run.stdout) == found


REFUSED: dict[str, tuple[Any, str]] = {
    "outliers": (
        OPTICS(),
        "sklearn's OPTICS is not supported: it predicts no new rows; KMeans and Birch compile",
    ),
    "pipeline": (
        make_pipeline(DBSCAN()),
        r"step 'dbscan' is a DBSCAN \(sklearn\), which is not supported: it predicts no new rows",
    ),
    "search": (
        GridSearchCV(GaussianNB(), {}),
        "the GridSearchCV is not fitted, so it has no best_estimator_ to compile",
    ),
    "a list": ([1], r"a list \(from module 'builtins'\) is not a supported model; pass the model in it"),
    "a tuple": ((1, 2), "a tuple .*pass the model in it"),
    "a dict": ({"model": 1}, "a dict with the keys 'model' is not a supported model; pass the model in it"),
    "a path": (Path("x"), "from module 'pathlib'"),
    "a string": ("words", "a str "),
    "nothing": (None, "a NoneType "),
    "an array": (np.arange(3), "a ndarray|an ndarray"),
    "a class": (DecisionTreeClassifier, "expected a trained model, got the (class|name) "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_things_are_refused_by_name(name: str, tmp_path: Path) -> None:
    value, text = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=text):
        from_object(value)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(UnsupportedModel, match=text):
        load_model(path)


def test_a_dict_of_models_says_where_the_model_is(tmp_path: Path) -> None:
    value = {"columns": ["a"], "clf": ZOO["sk_stump"](), 3: 4}
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(value))
    for source in (value, path):
        with pytest.raises(UnsupportedModel, match=r"pass the model in it, model\['clf'\]"):
            load_model(source)


def test_names_in_messages_are_cleaned(tmp_path: Path) -> None:
    """A class's name could else rewrite the terminal, or fill the screen."""
    name = "Evil\x1b[2J\x1b]0;title\x07\u202e" + "x" * 5000
    content = b"\x80\x04" + _text("sklearn.tree") + _long_text(name) + b"\x93)\x81."
    path = tmp_path / "model.pkl"
    for written in (content, pickle.dumps({name: 1})):
        path.write_bytes(written)
        with pytest.raises(UnsupportedModel) as caught:
            load_model(path)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def _text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


def _long_text(word: str) -> bytes:
    return b"X" + len(word.encode()).to_bytes(4, "little") + word.encode()


def test_compressed_files_expand_no_further_than_allowed(tmp_path: Path) -> None:
    import bz2
    import gzip
    import lzma

    path = tmp_path / "model.joblib"
    value = pickle.dumps([bytes(1 << 20)] + [0.5] * 10)
    for compress in (zlib.compress, gzip.compress, bz2.compress, lzma.compress):
        path.write_bytes(compress(value))
        assert len(pickles.load(path)) == 11
        assert len(pickles.load(path, 2 << 20)) == 11
        with pytest.raises(ModelError, match=r"expands to more than 512 KiB.*max_bytes=.*--max-size"):
            pickles.load(path, 512 << 10)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"ZF0x", "older than 0.10"),
        (b"PK\x03\x04", "zip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ],
)
def test_files_that_are_not_read_say_what_they_are(start: bytes, text: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=text):
        _load(start + bytes(50), tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_pickles_raise_one_clear_error(compressed: bool, tmp_path: Path) -> None:
    """Cut anywhere, or a byte changed: an error of ours, or a model (where it made no difference)."""
    path = tmp_path / "model.joblib"
    joblib.dump(ZOO["sk_boost_three"](), path, compress=3 if compressed else 0)
    content = path.read_bytes()
    rng = np.random.default_rng(5)
    for at in [0, 1, 2, *rng.integers(3, len(content), 25).tolist()]:
        path.write_bytes(content[:at])
        with pytest.raises(ModelError) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            graph = load_model(path)
        except ModelError:
            continue
        reference.leaves(graph.anchor, data()[0][:3])
