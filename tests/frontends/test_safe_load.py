"""Pickles: what supported models need gets through, what runs programs does not."""

from __future__ import annotations

import builtins
import bz2
import contextlib
import functools
import io
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from hbtvm.errors import ModelError, UnsupportedModel, UntrustedPickle
from hbtvm.frontends import load_model, safe_pickle
from hbtvm.pipeline import reference
from tests.models import ZOO, data


class Attack:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def _command(marker: Path) -> str:
    return f"touch {marker}"


def _program(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()"


ATTACKS: dict[str, Callable[[Path], Any]] = {
    "os.system": lambda m: Attack(os.system, _command(m)),
    "subprocess": lambda m: Attack(subprocess.check_call, ["touch", str(m)]),
    "popen": lambda m: Attack(subprocess.Popen, ["touch", str(m)]),
    "eval": lambda m: Attack(eval, _program(m)),
    "exec": lambda m: Attack(exec, _program(m)),
    "open": lambda m: Attack(open, str(m), "w"),
    "getattr": lambda m: Attack(getattr, Attack(builtins.__import__, "os"), "system"),
    "partial": lambda m: Attack(functools.partial(os.system, _command(m))),
    "runstring": lambda m: Attack(np.testing.runstring, _program(m), {}),
    "loads": lambda m: Attack(pickle.loads, pickle.dumps(Attack(os.system, _command(m)))),
    "import": lambda m: Attack(builtins.__import__, "os"),
    "joblib.load": lambda m: Attack(joblib.load, str(m)),
    "in an array": lambda m: np.array([Attack(os.system, _command(m))], dtype=object),
    "in a model": lambda m: _with_attribute(Attack(os.system, _command(m))),
    "in an array in a model": lambda m: _with_attribute(np.array([Attack(eval, _program(m))], dtype=object)),
    "in a record array": lambda m: np.array([(1, Attack(os.system, _command(m)))], dtype="i4,O"),
}  # fmt: skip


def _with_attribute(value: Any) -> Any:
    model = DecisionTreeClassifier(max_depth=2).fit(data()[0], data()[1] > 1)
    model.extra = value
    return model


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(
    "writer", ["pickle0", "pickle2", "pickle4", "pickle5", "joblib", "joblib_zlib", "bz2"]
)
def test_an_attack_is_refused_and_does_nothing(name: str, writer: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / ("model.joblib" if "joblib" in writer else "model.pkl")
    if writer.startswith("pickle"):
        path.write_bytes(pickle.dumps(ATTACKS[name](marker), protocol=int(writer[-1])))
    elif writer == "bz2":
        path.write_bytes(bz2.compress(pickle.dumps(ATTACKS[name](marker))))
    else:
        joblib.dump(ATTACKS[name](marker), path, compress=3 if writer == "joblib_zlib" else 0)
    with pytest.raises(UntrustedPickle, match=r"\w"):
        load_model(path)
    assert not marker.exists()


def test_the_attacks_work_where_nothing_is_checked(tmp_path: Path) -> None:
    for name in ("os.system", "eval", "in an array in a model"):
        marker = tmp_path / name.replace(" ", "_")
        path = tmp_path / "model.joblib"
        joblib.dump(ATTACKS[name](marker), path)
        with contextlib.suppress(UnsupportedModel):
            load_model(path, trust=True)
        assert marker.exists()


def _global(module: str, name: str) -> bytes:
    """STACK_GLOBAL of a name, which may have dots."""
    return b"".join(_text(word) for word in (module, name)) + b"\x93"


def _text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


HEAD = b"\x80\x04"
CALL = b"\x85R"

NAMES = [
    ("joblib.numpy_pickle", "os.system"),
    ("sklearn.tree._classes", "np.f2py.os.system"),
    ("sklearn.tree._classes", "DecisionTreeClassifier.__init__.__globals__"),
    ("numpy", "ndarray.__class__.__subclasses__"),
    ("numpy", "sys.modules"),
    ("builtins", "bytes.__class__"),
    ("lightgbm.basic", "subprocess"),
    ("xgboost.core", "os.system"),
    ("collections", "_sys.modules"),
    ("collections", "OrderedDict.__init__"),
    ("functools", "partial.__new__"),
    ("posix", "system"),
    ("nt", "system"),
    ("runpy", "run_path"),
    ("timeit", "timeit"),
    ("codecs", "open"),
    ("operator", "attrgetter"),
    ("copyreg", "_reconstructor"),
    ("sklearn.utils._testing", "assert_run_python_script_without_output"),
    ("numpy.f2py.crackfortran", "myeval"),
    ("joblib.numpy_pickle", "NDArrayWrapper"),
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_names_that_lead_elsewhere_are_refused(module: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    for content in (
        HEAD + _global(module, name) + _text("true") + CALL + b".",
        HEAD + b"c" + f"{module}\n{name}\n".encode() + b".",
        b"(S'x'\ni" + f"{module}\n{name}\n".encode() + b".",
        b"(c" + f"{module}\n{name}\n".encode() + b"S'x'\no.",
    ):
        path.write_bytes(content)
        with pytest.raises(UntrustedPickle, match=name.split(".")[0].replace("(", "")):
            load_model(path)


def test_a_call_of_an_object_that_was_never_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    tree = _global("sklearn.tree._classes", "DecisionTreeClassifier")
    path.write_bytes(HEAD + tree + b")\x81" + b")R.")
    with pytest.raises(UntrustedPickle, match="calls DecisionTreeClassifier"):
        load_model(path)
    # The class itself may only be made without arguments that its constructor would see.
    path.write_bytes(HEAD + tree + b")R.")
    with pytest.raises(UntrustedPickle, match="calls DecisionTreeClassifier"):
        load_model(path)


def test_classes_and_functions_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    state = b"N}" + _text("predict") + _text("changed") + b"s\x86b."
    for owner in (_global("sklearn.tree._classes", "DecisionTreeClassifier"), _global("_codecs", "encode")):
        path.write_bytes(HEAD + owner + state)
        with pytest.raises(UntrustedPickle, match="changes"):
            load_model(path)
    assert DecisionTreeClassifier.predict != "changed"


def test_a_type_of_objects_cannot_pass_as_bytes(tmp_path: Path) -> None:
    """Bytes taken for addresses of objects would be as good as a program."""

    class Forged:
        def __reduce__(self) -> Any:
            return np.dtype, ("O",), (3, "|", None, None, None, -1, -1, 0)

    class ForgedRecord:
        def __reduce__(self) -> Any:
            fields = {"a": (np.dtype("O"), 0), "b": (np.dtype("i8"), 0)}
            return np.dtype, ("V8",), (3, "|", None, ("a", "b"), fields, 8, 1, 16)

    class Swapped:
        def __reduce__(self) -> Any:
            return np.dtype, ("O",), (3, ">", None, None, None, -1, -1, 63)

    for forged in (Forged(), ForgedRecord(), Swapped()):
        path = tmp_path / "model.pkl"
        buffer = io.BytesIO()
        # The private pickler writes what it is told.
        pickler = pickle._Pickler(buffer, 4)
        pickler.dump(forged)
        path.write_bytes(buffer.getvalue())
        with pytest.raises(UntrustedPickle, match=r"type|records"):
            load_model(path)


def test_codecs_encode_takes_latin1_only(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(HEAD + _global("_codecs", "encode") + _text("abc") + _text("rot13") + b"\x86R.")
    with pytest.raises(UntrustedPickle, match="rot13"):
        load_model(path)


def _same(one: Any, other: Any) -> None:
    for name in ("feature", "threshold", "left", "right", "value", "base_score", "tree_output"):
        np.testing.assert_array_equal(getattr(one.ensemble, name), getattr(other.ensemble, name))
    assert one.output.to_json() == other.output.to_json()
    assert (one.model, one.input) == (other.model, other.input)


MODELS = [name for name in ZOO if "own_objective" not in name and not name.startswith("xgb_reg:")]


@pytest.mark.parametrize("name", MODELS)
def test_supported_models_load_from_each_kind_of_file(name: str, tmp_path: Path) -> None:
    model = ZOO[name]()
    expected = load_model(model)
    for protocol in (2, 5):
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


def test_trust_loads_the_real_object(tmp_path: Path) -> None:
    model = ZOO["sk_hist_three_cat"]()
    for write in (joblib.dump, lambda m, p: p.write_bytes(pickle.dumps(m))):
        path = tmp_path / "model.pickle"
        write(model, path)
        found = safe_pickle.load(path, trust=True)
        np.testing.assert_array_equal(found.predict(data()[0]), model.predict(data()[0]))
        _same(load_model(path, trust=True), load_model(model))


@pytest.mark.parametrize("model", [LinearRegression(), make_pipeline(LinearRegression())])
def test_other_models_of_a_library_are_refused_by_name(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    with pytest.raises(UnsupportedModel, match=f"sklearn's {type(model).__name__} is not supported"):
        load_model(path)


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
            pipeline = load_model(path)
        except ModelError:
            continue
        reference.leaves(pipeline.ensemble, data()[0][:3])


def test_forged_tree_links_are_refused() -> None:
    """scikit-learn's own tree would follow them out of its memory."""
    model = ZOO["sk_isolation_nan"]()
    for child in (10_000, -7, 0):
        state = pickle.loads(pickle.dumps(model))
        nodes = state.estimators_[0].tree_.__getstate__()
        nodes["nodes"]["left_child"][0] = child
        state.estimators_[0].tree_ = safe_pickle._StoredTree()
        state.estimators_[0].tree_.__setstate__(nodes)
        with pytest.raises(ModelError, match="tree 0"):
            load_model(state)
