"""Pickles that would run programs, or take all memory, if anything of them was done."""

from __future__ import annotations

import builtins
import bz2
import functools
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from hbtvm.errors import ModelError
from hbtvm.frontends import load_model, pickles
from hbtvm.frontends.pickles import Record
from tests.frontends.hostile import filed, text
from tests.models import data


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
    "joblib.load": lambda m: Attack(joblib.load, str(m)),
    "in an array": lambda m: np.array([Attack(os.system, _command(m))], dtype=object),
    "in a record array": lambda m: np.array([(1, Attack(os.system, _command(m)))], dtype="i4,O"),
}  # fmt: skip
PARTS: dict[str, Callable[[Path], Any]] = {
    "an attribute": lambda m: Attack(os.system, _command(m)),
    "an array": lambda m: np.array([Attack(eval, _program(m))], dtype=object),
    "a dictionary": lambda m: {"a": [(Attack(exec, _program(m)),)]},
}
WRITERS = ["pickle0", "pickle2", "pickle4", "pickle5", "joblib", "joblib_zlib", "bz2"]


def _write(value: Any, writer: str, path: Path) -> None:
    if writer.startswith("pickle"):
        path.write_bytes(pickle.dumps(value, protocol=int(writer[-1])))
    elif writer == "bz2":
        path.write_bytes(bz2.compress(pickle.dumps(value)))
    else:
        joblib.dump(value, path, compress=3 if writer == "joblib_zlib" else 0)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("writer", WRITERS)
def test_an_attack_is_refused_and_does_nothing(name: str, writer: str, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.pkl"
    _write(ATTACKS[name](marker), writer, path)
    with pytest.raises(ModelError, match=r"\w"):
        load_model(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_an_attack_within_a_model_does_nothing(name: str, writer: str, tmp_path: Path) -> None:
    """What no front end asks for stays a name; the model around it is read."""
    marker, path = tmp_path / "marker", tmp_path / "model.pkl"
    model = DecisionTreeClassifier(max_depth=2).fit(data()[0], data()[1] > 1)
    expected = load_model(model)
    model.extra = PARTS[name](marker)
    _write(model, writer, path)
    np.testing.assert_array_equal(load_model(path).anchor.value, expected.anchor.value)
    assert not marker.exists()
    joblib.load(path)
    assert marker.exists(), "the attack works where a pickle is run"


CANARY = (
    "open({marker!r}, 'w').close()\nclass Thing:\n    def __init__(self, *a): open({marker!r}, 'w').close()\n"
)


def _programs(module: str, name: str) -> list[bytes]:
    old, new = f"{module}\n{name}\n".encode(), text(module) + text(name) + b"\x93"
    state = b"N}" + text("predict") + text("changed") + b"s\x86b"
    return [
        b"\x80\x04" + new + text("x") + b"\x85R.",
        b"\x80\x04" + new + b")\x81.",
        b"\x80\x04" + new + b")}\x92.",
        b"\x80\x04" + new + b")\x81" + state + b".",
        b"\x80\x04" + new + state + b".",
        b"\x80\x02c" + old + b".",
        b"c" + old + b"(tR.",
        b"(S'x'\ni" + old + b".",
        b"(c" + old + b"S'x'\no.",
        b"\x80\x04]" + new + b")\x81a.",
        b"\x80\x04}" + new + text("v") + b"s.",
        b"\x80\x04\x8f(" + new + b")R\x90.",
    ]


def test_no_module_that_a_file_names_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "marker"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "canary_of_pickles.py").write_text(CANARY.format(marker=str(marker)))
    (tmp_path / "canary_package").mkdir()
    (tmp_path / "canary_package" / "__init__.py").write_text(CANARY.format(marker=str(marker)))
    path = tmp_path / "model.pkl"
    for module in ("canary_of_pickles", "canary_package", "canary_package.inner"):
        for content in _programs(module, "Thing"):
            path.write_bytes(content)
            with pytest.raises(ModelError, match=r"\w"):
                load_model(path)
    assert not marker.exists()
    assert not [name for name in sys.modules if name.startswith("canary")]


NAMES = [
    ("joblib.numpy_pickle", "os.system"),
    ("sklearn", "os.system"),
    ("sklearn.tree._classes", "DecisionTreeClassifier.__init__.__globals__"),
    ("numpy", "ndarray.__class__.__subclasses__"),
    ("builtins", "bytes.__class__"),
    ("posix", "system"),
    ("operator", "attrgetter"),
    ("copyreg", "_reconstructor"),
    ("copyreg", "__newobj__"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
    ("builtins", "bytearray"),
    ("collections", "OrderedDict"),
    ("joblib.numpy_pickle", "NumpyArrayWrapper"),
    ("joblib.numpy_pickle", "NDArrayWrapper"),
    ("hbtvm.frontends.pickles.live", "named"),
    ("hbtvm.frontends.pickles.live", "lacking"),
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_any_program_of_any_name_is_inert_or_refused(module: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    for content in _programs(module, name):
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_model(path)
        assert str(caught.value).isprintable()
    assert DecisionTreeClassifier.predict != "changed"


def _load(content: bytes, tmp_path: Path) -> Any:
    path = tmp_path / "value.pkl"
    path.write_bytes(content)
    return pickles.load(path)


def test_an_array_of_objects_is_never_made_of_bytes(tmp_path: Path) -> None:
    """numpy would take the bytes for addresses, and with them anything of the process could be changed."""
    array = text("numpy") + text("ndarray") + b"\x93"
    eight = b"C\x08" + (0xDEAD).to_bytes(8, "little")
    made = _load(b"\x80\x04" + array + b")" + text("O") + eight + b"\x87\x81.", tmp_path)
    assert isinstance(made, Record) and (made.cls.name, made.args[1]) == ("ndarray", "O")
    kind = text("numpy") + text("dtype") + b"\x93" + text("O8") + b"\x85R"
    rebuilt = (
        text("numpy._core.multiarray") + text("_reconstruct") + b"\x93" + array + b"K\x00\x85C\x01b\x87R"
    )
    for content in (
        b"\x80\x04" + rebuilt + b"(K\x01K\x01\x85" + kind + b"\x89" + eight + b"tb.",
        b"\x80\x04" + text("numpy._core.numeric") + text("_frombuffer") + b"\x93(" + eight + kind
        + b"K\x01\x85" + text("C") + b"tR.",
    ):  # fmt: skip
        with pytest.raises(ModelError, match="cannot be"):
            _load(content, tmp_path)


def test_a_state_of_slots_changes_no_class(tmp_path: Path) -> None:
    """A second dictionary of a state would be set attribute by attribute, ``__class__`` among them."""
    booster = text("xgboost.core") + text("Booster") + b"\x93"
    content = b"\x80\x04" + booster + b")\x81N}" + text("__class__") + booster + b"s}\x86b."
    path = tmp_path / "model.pkl"
    path.write_bytes(content.replace(b"N}", b"}}", 1))
    with pytest.raises(ModelError):
        load_model(path)
    made = _load(b"\x80\x04" + booster + b")\x81N}" + text("__class__") + b"K\x07s\x86b.", tmp_path)
    assert type(made) is Record and made.attributes == {"__class__": 7}


class _Forged:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


FORGED = {
    "objects as plain": _Forged(np.dtype, ("O",), (3, "|", None, None, None, 64, -1, 0)),
    "objects in records": _Forged(
        np.dtype,
        ("V8",),
        (3, "|", None, ("a", "b"), {"a": (np.dtype("O"), 0), "b": (np.dtype("i8"), 0)}, 8, 1, 16),
    ),
    "beyond its size": _Forged(
        np.dtype, ("V8",), (3, "|", None, ("a",), {"a": (np.dtype("i8"), 4)}, 8, 1, 16)
    ),
    "overlapping": _Forged(
        np.dtype,
        ("V8",),
        (3, "|", None, ("a", "b"), {"a": (np.dtype("i8"), 0), "b": (np.dtype("i8"), 0)}, 8, 1, 16),
    ),
    "another size": _Forged(np.dtype, ("f8",), (3, "<", None, None, None, 4, -1, 0)),
    "huge": _Forged(
        np.dtype, ("V999999999",), (3, "|", (np.dtype("f8"), (1 << 40,)), None, None, 999999999, 1, 0)
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_types_that_numpy_does_not_have_are_refused(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    # The pickler in Python writes what it is told.
    pickle._Pickler(buffer, 4).dump(FORGED[name])  # type: ignore[attr-defined]
    try:
        made = _load(buffer.getvalue(), tmp_path)
    except ModelError:
        return
    assert isinstance(made, Record), "objects in records stay inert"


@pytest.mark.parametrize(
    "operation", [b"Pid\n", b"K\x01Q", b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00"]
)
def test_objects_outside_of_the_file_are_refused(operation: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="outside of the file"):
        _load(b"\x80\x04" + operation + b".", tmp_path)


NONSENSE = {
    "nothing": b"",
    "only the end": b".",
    "protocol 9": b"\x80\x09N.",
    "no mark": b"\x80\x04t.",
    "stack under its mark": b"\x80\x04N(\x85.",
    "unknown value": b"\x80\x04h\x07.",
    "not an operation": b"\x80\x04\xff.",
    "huge string": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f.",
    "huge bytes": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "huge number": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "long number": b"I" + b"9" * 5000 + b"\n.",
    "negative number": b"\x80\x04\x8b\xff\xff\xff\xff.",
    "buffers elsewhere": b"\x80\x05\x97.",
    "list as key": b"\x80\x04}]Ns.",
    "state of a number": b"\x80\x04K\x01}b.",
    "two states": b"\x80\x04" + text("a") + text("b") + b"\x93)\x81}b}b.",
    "call of arguments that are none": b"\x80\x04" + text("a") + text("b") + b"\x93NR.",
    "line without end": b"c" + b"x" * 200_000,
    "long fraction": b"F" + b"1" * 5000 + b"\n.",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_a_model_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(filed(NONSENSE[name], tmp_path))
    assert str(caught.value).isprintable()
