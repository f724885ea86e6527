"""Pickles that would run programs, or take all memory, if anything of them was done."""

from __future__ import annotations

import builtins
import bz2
import contextlib
import functools
import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import load_model, pickles, registry
from hbtvm.frontends.pickles import Record
from tests.frontends import fuzz
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


def _text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


def _programs(module: str, name: str) -> list[bytes]:
    old, new = f"{module}\n{name}\n".encode(), _text(module) + _text(name) + b"\x93"
    state = b"N}" + _text("predict") + _text("changed") + b"s\x86b"
    return [
        b"\x80\x04" + new + _text("x") + b"\x85R.",
        b"\x80\x04" + new + b")\x81.",
        b"\x80\x04" + new + b")}\x92.",
        b"\x80\x04" + new + b")\x81" + state + b".",
        b"\x80\x04" + new + state + b".",
        b"\x80\x02c" + old + b".",
        b"c" + old + b"(tR.",
        b"(S'x'\ni" + old + b".",
        b"(c" + old + b"S'x'\no.",
        b"\x80\x04]" + new + b")\x81a.",
        b"\x80\x04}" + new + _text("v") + b"s.",
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
    array = _text("numpy") + _text("ndarray") + b"\x93"
    eight = b"C\x08" + (0xDEAD).to_bytes(8, "little")
    made = _load(b"\x80\x04" + array + b")" + _text("O") + eight + b"\x87\x81.", tmp_path)
    assert isinstance(made, Record) and (made.cls.name, made.args[1]) == ("ndarray", "O")
    kind = _text("numpy") + _text("dtype") + b"\x93" + _text("O8") + b"\x85R"
    rebuilt = (
        _text("numpy._core.multiarray") + _text("_reconstruct") + b"\x93" + array + b"K\x00\x85C\x01b\x87R"
    )
    for content in (
        b"\x80\x04" + rebuilt + b"(K\x01K\x01\x85" + kind + b"\x89" + eight + b"tb.",
        b"\x80\x04" + _text("numpy._core.numeric") + _text("_frombuffer") + b"\x93(" + eight + kind
        + b"K\x01\x85" + _text("C") + b"tR.",
    ):  # fmt: skip
        with pytest.raises(ModelError, match="cannot be"):
            _load(content, tmp_path)


def test_a_state_of_slots_changes_no_class(tmp_path: Path) -> None:
    """A second dictionary of a state would be set attribute by attribute, ``__class__`` among them."""
    booster = _text("xgboost.core") + _text("Booster") + b"\x93"
    content = b"\x80\x04" + booster + b")\x81N}" + _text("__class__") + booster + b"s}\x86b."
    path = tmp_path / "model.pkl"
    path.write_bytes(content.replace(b"N}", b"}}", 1))
    with pytest.raises(ModelError):
        load_model(path)
    made = _load(b"\x80\x04" + booster + b")\x81N}" + _text("__class__") + b"K\x07s\x86b.", tmp_path)
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
    "two states": b"\x80\x04" + _text("a") + _text("b") + b"\x93)\x81}b}b.",
    "call of arguments that are none": b"\x80\x04" + _text("a") + _text("b") + b"\x93NR.",
    "line without end": b"c" + b"x" * 200_000,
    "long fraction": b"F" + b"1" * 5000 + b"\n.",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_a_model_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(_file(NONSENSE[name], tmp_path))
    assert str(caught.value).isprintable()


def _file(content: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "model.pkl"
    path.write_bytes(content)
    return path


COUNT = 1_000_000
_MINUS = (b"J\xff\xff\xff\xff", b"J\xfe\xff\xff\xff")
_PAIR = b"\x80\x04" + _text("a") + _text("b") + b"\x93\x94"
GREEDY: dict[str, bytes] = {
    "lists": b"\x80\x04" + b"]" * 3 * COUNT,
    "dictionaries": b"\x80\x04" + b"}" * 3 * COUNT,
    "sets": b"\x80\x04" + b"\x8f" * COUNT,
    "nothings": b"\x80\x04" + b"N" * COUNT,
    "marks": b"\x80\x04" + b"(" * COUNT,
    "floats": b"\x80\x04" + b"(" + b"G" + bytes(8) + (b"G" + bytes(8)) * (COUNT // 9) + b"l.",
    "numbers": b"\x80\x04]" + b"(" + b"M\xff\xff" * (COUNT // 3) + b"e.",
    "kept lists": b"\x80\x04" + b"]\x94" * COUNT + b".",
    "kept far apart": b"\x80\x04" + b"".join(
        b"Nr%b" % (i * 977).to_bytes(4, "little") for i in range(COUNT // 6)
    ),
    "lists in lists": b"\x80\x04]" + b"]" * (COUNT // 2) + b"a" * (COUNT // 2) + b".",
    "tuples in tuples": b"\x80\x04N" + b"\x85" * COUNT + b".",
    "kept tuples in tuples": b"\x80\x04N" + b"\x85\x94" * (COUNT // 2) + b".",
    "tuples as keys": b"\x80\x04}N" + b"\x85" * (COUNT // 2) + b"Ns.",
    "records": _PAIR + b"h\x00)\x81" * (COUNT // 4) + b".",
    "records in records": _PAIR + b"h\x00)\x81" * (COUNT // 6) + b"b" * (COUNT // 8) + b".",
    "calls": _PAIR + b"h\x00)R" * (COUNT // 4) + b".",
    "doubled": b"\x80\x04]" + b"2" * COUNT + b".",
    "small strings": b"\x80\x04(" + b"\x8c\x01a" * (COUNT // 3) + b"l.",
    "wide strings": b"\x80\x04(" + (b"X\x08\x00\x00\x00abcd\xf0\x9f\x98\x80") * (COUNT // 13) + b"l.",
    "one wide string": b"\x80\x04X" + (COUNT + 4).to_bytes(4, "little") + b"a" * COUNT + "😀".encode() + b".",
    "copies of bytes": b"\x80\x04\x8d" + COUNT.to_bytes(8, "little") + b"a" * COUNT + b"\x940"
    + (b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R") * 2000 + b".",
    "keys that collide": b"\x80\x04}(" + b"".join(
        b"\x8a\x0a" + (i * ((1 << 61) - 1)).to_bytes(10, "little") + b"N" for i in range(1, COUNT // 12)
    ) + b"u.",
    "tuples that collide": b"\x80\x04}(" + b"".join(
        b"(" + b"".join(_MINUS[i >> bit & 1] for bit in range(16)) + b"tN"
        for i in range(1 << 15)
    ) + b"u.",
    "arrays of the same bytes": b"\x80\x04\x8e" + COUNT.to_bytes(8, "little") + b"a" * COUNT + b"\x940"
    + b"cnumpy._core.numeric\n_frombuffer\n\x940cnumpy\ndtype\n\x8c\x02b1\x85R\x940" + (
        b"h\x01(h\x00h\x02J" + COUNT.to_bytes(4, "little") + b"\x85\x8c\x01CtR"
    ) * 500 + b".",
    "claimed array": pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
}  # fmt: skip

READER = """
import json, os, resource, sys
from pathlib import Path
from hbtvm.errors import ModelError
from hbtvm.frontends import load_model
def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
def read(path):
    try:
        load_model(path)
    except ModelError as error:
        return str(error)
    return "model"
first = Path(sys.argv[1]).with_name("first.pkl")
first.write_bytes(b"N.")
read(first)
for path in sys.argv[1:]:
    # Each in a process of its own, as memory once taken counts for ever.
    child = os.fork()
    if not child:
        before = memory()
        text = read(Path(path))
        print(json.dumps([path, text, memory() - before]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path}: the process died")
"""


def _read_alone(paths: list[Path]) -> dict[str, tuple[str, int]]:
    """What came of reading each file in a process of its own, and the bytes of memory that it took."""
    command = [sys.executable, "-c", READER, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {Path(path).stem: (text, taken) for path, text, taken in found}


def test_memory_stays_in_proportion_to_the_file(tmp_path: Path) -> None:
    paths = []
    for name, content in GREEDY.items():
        paths.append(tmp_path / f"{name}.pkl")
        paths[-1].write_bytes(content)
    found = _read_alone(paths)
    assert set(found) == set(GREEDY)
    for name, (text, taken) in found.items():
        assert text != "model" and text.isprintable(), name
        assert taken < 10 * len(GREEDY[name]) + 100_000_000, name
    assert "more than 4096 keys" in found["keys that collide"][0]
    assert "more than 4096 keys" in found["tuples that collide"][0]


def test_a_bomb_does_not_expand(tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte ends at its first byte, as zero is no operation."""
    packer = zlib.compressobj(1)
    content = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    path = _file(content, tmp_path)
    text, taken = _read_alone([path])[path.stem]
    assert "damaged or none" in text and taken < 50_000_000


def _with(model: Any, change: Callable[[dict[str, Any]], None]) -> Record:
    record = pickles.from_live(model)
    assert isinstance(record, Record)
    change(record.state)
    return record


CLAIMS: dict[str, tuple[str, str, Any]] = {
    "outputs of a tree": ("sk_tree_pair", "n_outputs_", 10**9),
    "outputs of a forest": ("sk_forest_real_nan", "n_outputs_", 10**9),
    "outputs of labels": ("sk_forest_pair_labels", "n_outputs_", 10**9),
    "trees of an iteration": ("sk_hist_three", "n_trees_per_iteration_", 10**9),
    "columns of bins": ("sk_hist_three", "n_features_in_", 10**9),
    "more than 32 bits": ("sk_tree_two", "n_features_in_", 10**12),
    "classes of XGBoost": ("xgb_three", "n_classes_", 10**9),
    "a fraction": ("sk_tree_two", "n_features_in_", 1.5),
    "a string": ("sk_tree_two", "n_features_in_", "4"),
    "no number at all": ("sk_isolation_nan", "offset_", float("nan")),
    "labels that are objects": ("sk_tree_two", "classes_", [object]),
    "no labels": ("sk_boost_three", "classes_", []),
    "a label too many": ("lgb_two", "_classes", ["a", "b", "c"]),
    "best of LightGBM": ("lgb_three_nan", "_Booster", 5),
    "no trees": ("sk_forest_two", "estimators_", []),
    "other trees": ("sk_forest_two", "estimators_", [1, 2]),
    "no list": ("sk_boost_two", "estimators_", 7),
    "no start": ("sk_boost_two", "init_", None),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_that_the_rest_denies_are_refused(name: str) -> None:
    model, attribute, value = CLAIMS[name]
    record = _with(ZOO[model](), lambda state: state.__setitem__(attribute, value))
    tracemalloc.start()
    with pytest.raises(ModelError, match=r"\w"):
        registry.read(record)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2_000_000


def test_a_billion_columns_cost_nothing() -> None:
    record = _with(ZOO["sk_tree_two"](), lambda state: state.__setitem__("n_features_in_", 10**9))
    tracemalloc.start()
    with contextlib.suppress(ModelError):
        registry.read(record)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize(
    ("model", "attribute"),
    [
        ("sk_forest_three_nan", "estimators_"),
        ("sk_isolation_nan", "estimators_"),
        ("sk_hist_three_cat", "_predictors"),
    ],
)
def test_one_tree_is_no_forest_of_a_million(model: str, attribute: str) -> None:
    """A list of the same tree takes two bytes of the file for each, but would take kilobytes here."""
    record = pickles.from_live(ZOO[model]())
    first = record.sequence(attribute)[0]
    record.attributes[attribute] = [first] * 100_000
    if "estimators_features_" in record:
        record.attributes["estimators_features_"] = [record.sequence("estimators_features_")[0]] * 100_000
    with pytest.raises(ModelError, match="the same ones again and again"):
        registry.read(record)
    record.attributes[attribute] = [first] * 3
    if "estimators_features_" in record:
        del record.attributes["estimators_features_"][3:]
    assert registry.read(record).anchor.n_trees >= 3


def test_forged_tree_links_are_refused() -> None:
    """scikit-learn's own tree would follow them out of its memory."""
    for child in (10_000, -7, 0):
        record = pickles.from_live(ZOO["sk_isolation_nan"]())
        tree = record.records("estimators_")[0].record("tree_")
        nodes = tree.array("nodes", "V").copy()
        nodes["left_child"][0] = child
        tree.attributes["nodes"] = nodes
        with pytest.raises(ModelError, match="tree 0"):
            registry.read(record)


def test_fuzzing_finds_no_fault() -> None:
    """A thousand here; ``python -m tests.frontends.fuzz`` does ten thousand."""
    found = fuzz.run(1000)
    assert not found.faults, found.faults
    assert sum(found.outcomes.values()) == 1000
    assert found.outcomes["model"] > 20 and found.outcomes["ModelError"] > 100


def test_the_fuzzer_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
    assert list(fuzz._lines(crash)) == ["the process ended with -11"]
    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    assert list(fuzz._lines([sys.executable, "-c", "import time; time.sleep(60)"])) == ["hung in native code"]


def test_a_supported_name_of_another_library_is_none(tmp_path: Path) -> None:
    content = b"\x80\x04" + _text("evil.tree") + _text("DecisionTreeClassifier") + b"\x93)\x81."
    with pytest.raises(UnsupportedModel, match="from module 'evil'"):
        load_model(_file(content, tmp_path))
