"""Cells as users write them, models, their files, and what is said of mistakes."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.errors import ModelError, PackageError
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell, Value
from hbtvm.recursive.file import from_bytes, to_bytes
from hbtvm.recursive.validate import check
from hbtvm.runtime.package.tables import table_from_bytes
from tests.recursive.random_cells import random_cell, random_structures

H = 4


@rec.cell(children=2, state={"h": H, "c": H}, inputs={"word": rec.embedding("emb", optional=True)})
def tree_lstm(node, w):
    s = rec.total(node.children.h)
    i, o, u = rec.split(w.U @ s + w.W @ node.word + w.b, 3)
    f = [rec.sigmoid(w.Uf @ k.h + w.bf) for k in node.children]
    c = rec.sigmoid(i) * rec.tanh(u) + sum(fk * k.c for fk, k in zip(f, node.children, strict=True))
    return {"h": rec.sigmoid(o) * rec.tanh(c), "c": c}


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "U": (3 * H, H), "W": (3 * H, 3), "b": (3 * H,), "Uf": (H, H), "bf": (H,), "emb": (5, 3),
        "head.weight": (2, H), "head.bias": (2,),
    }  # fmt: skip
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def model() -> rec.Model:
    output = rec.roots("h") | rec.linear("head") | rec.softmax()
    return rec.Model(tree_lstm, weights(), output=output, classes=["no", "yes"])


def test_as_written_by_hand() -> None:
    """Of a root with two leaves, by the equations."""
    w = {name: array.astype(np.float32).astype(float) for name, array in weights().items()}

    def sig(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def node(x: np.ndarray, hs: list[np.ndarray], cs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        i, o, u = np.split(w["U"] @ sum(hs, np.zeros(H)) + w["W"] @ x + w["b"], 3)
        c = sig(i) * np.tanh(u) + sum(
            (sig(w["Uf"] @ h + w["bf"]) * c for h, c in zip(hs, cs, strict=True)), 0
        )
        return sig(o) * np.tanh(c), c

    a, b = node(w["emb"][1], [], []), node(w["emb"][4], [], [])
    h, _ = node(np.zeros(3), [a[0], b[0]], [a[1], b[1]])
    scores = w["head.weight"] @ h + w["head.bias"]
    expected = np.exp(scores) / np.exp(scores).sum()
    assert np.allclose(reference.scores(model(), rec.trees([[1, 4]])), [expected])


def test_models_can_be_changed_in_parts() -> None:
    own = model()
    other = dataclasses.replace(own, cell=dataclasses.replace(own.cell, name="other"))
    assert other.cell.name == "other" and other.layers == own.layers and other.classes == ("no", "yes")


@pytest.mark.parametrize("name", known.CELLS)
def test_known_cells_are_right(name: str) -> None:
    check(known.example(name, 3, vocabulary=5))


def test_files_hold_the_whole_model(tmp_path: Path) -> None:
    own = model()
    own.save(tmp_path / "a.rec")
    found = rec.load(tmp_path / "a.rec")
    assert to_bytes(found) == to_bytes(own) == (tmp_path / "a.rec").read_bytes()
    assert (found.readout, found.classes, found.cell.values) == (own.readout, own.classes, own.cell.values)
    assert [path.name for path in tmp_path.iterdir()] == ["a.rec"]


@pytest.mark.parametrize("seed", range(20))
def test_files_of_random_cells(seed: int) -> None:
    own = random_cell(seed)
    found = from_bytes(to_bytes(rec.Model(own))).cell
    structures = random_structures(own, seed)
    assert found.values == own.values and found.inputs == own.inputs
    for name, array in reference.states(own, structures).items():
        assert np.array_equal(array, reference.states(found, structures)[name])


def test_damaged_files_are_refused() -> None:
    whole = to_bytes(model())
    for size in range(0, len(whole), 97):
        with pytest.raises(ModelError):
            from_bytes(whole[:size])
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        try:
            check(from_bytes(bytes(damaged)).cell)  # some bits, of times or names, mean nothing
        except ModelError:
            continue


def changed(**parts: object) -> bytes:
    """The file with parts of its cell changed in the JSON."""
    with zipfile.ZipFile(io.BytesIO(to_bytes(model()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["model.json"])
    for name, value in parts.items():
        where = document if name in document else document["cell"]
        where[name] = value
    members["model.json"] = json.dumps(document).encode()
    return packed(members)


def packed(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def pickled() -> bytes:
    one = io.BytesIO()
    np.lib.format.write_array(one, np.array([{}], object), allow_pickle=True)
    with zipfile.ZipFile(io.BytesIO(to_bytes(model()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return packed({**members, "tables/0.npy": one.getvalue()})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a zip archive"),
        (packed({"a.txt": b""}), "holds 'a.txt'"),
        (packed({"tables/0.npy": b""}), "has no model.json"),
        (packed({"model.json": b"[" * 100_000}), "damaged"),
        (packed({"model.json": b"{}" + b" " * 10_000}, zipfile.ZIP_DEFLATED), "is compressed"),
        (pickled(), "float32"),
        (changed(format=3), "format 3"),
        (changed(children=True), "damaged"),
        (changed(children=0), "children is 0"),
        (changed(inner={"h": 0}), "expected its states"),
        (changed(weights={"U": "tables/99.npy"}), "cell.weights.U is 'tables/99.npy'"),
        (changed(values=[{"op": "eval"}]), "unknown operator 'eval'"),
        (changed(readout={"state": "x", "over": "roots"}), "expected one of 'h', 'c'"),
        (changed(classes=[True]), "damaged"),
    ],
)
def test_hostile_files_are_refused(content: bytes, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        from_bytes(content)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3), }\\",
        "(" * 500,
        "-" * 5000 + "1",
        "{'descr': [('a', '<f4', 9" + "9" * 4000 + ")], 'fortran_order': False, 'shape': ()}",
        "{'descr': 3, 'fortran_order': False, 'shape': (3, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, -3)}",
        '"""',
        "",
        "\xff",
    ],
    ids=lambda header: ascii(header[:30]),
)
def test_headers_of_arrays_that_python_can_not_read(header: str) -> None:
    line = header.encode("latin-1")
    array = b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + b"\0" * 36
    with zipfile.ZipFile(io.BytesIO(to_bytes(model()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with pytest.raises(ModelError, match=r"in the \.rec file, tables/0\.npy"):
        from_bytes(packed({**members, "tables/0.npy": array}))
    with pytest.raises(PackageError, match="damaged: 'x'"):
        table_from_bytes("x", memoryview(array))


def test_mistakes_of_users() -> None:
    own = weights()
    for change, text in [
        ({"U": np.zeros((3 * H, H + 1))}, "matmul has operands of shapes"),
        ({"b": np.zeros(H)}, "expected one shape"),
        ({"emb": np.zeros(5)}, "not a matrix"),
        ({"head.weight": np.zeros((2, H + 1))}, r"expected \(outputs, 4\)"),
        ({"head.bias": np.zeros(3)}, r"expected \(2,\)"),
        ({"Uf": np.array(["a"])}, "expected numbers"),
    ]:
        with pytest.raises(ModelError, match=text):
            rec.Model(tree_lstm, {**own, **change}, output=rec.roots("h") | rec.linear("head"))
    del own["bf"]
    with pytest.raises(ModelError, match="no weight 'bf'"):
        rec.Model(tree_lstm, own)
    with pytest.raises(ModelError, match="3 classes and 4 outputs"):
        rec.Model(tree_lstm, weights(), classes=[1, 2, 3])
    with pytest.raises(ModelError, match="the readout's state"):
        rec.Model(tree_lstm, weights(), output=rec.mean("x"))


def test_embedding_of_given_size() -> None:
    @rec.cell(children=None, state={"h": 3}, inputs={"word": rec.embedding(5, 3)})
    def summed(node, w):
        return {"h": rec.total(node.children.h) + node.word}

    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    one = rec.Model(summed, {"word": table}, output=rec.total("h"))
    found = reference.scores(one, rec.parent_arrays([[-1, 0, 0]], {"word": [1, 2, 3]}))
    assert found.tolist() == [(table[1:4].sum(axis=0) + table[2] + table[3]).tolist()]
    with pytest.raises(ModelError, match=r"expected \(5, 3\)"):
        rec.Model(summed, {"word": table[:, :2]})


def test_control_flow_depends_on_structure_alone() -> None:
    @rec.cell(children=1, state={"h": 2})
    def branching(node, w):
        return {"h": rec.relu(node.children[0].h) if node.children[0].h else w.b}

    with pytest.raises(ModelError, match="structure alone"):
        rec.Model(branching, {"b": np.zeros(2)})


def test_leaf_written_for_any_node() -> None:
    """States of children are zero in it."""

    @rec.cell(children=2, state={"h": 2})
    def summed(node, w):
        return {"h": rec.total(node.children.h) + w.a}

    @summed.leaf
    def _leaf(node, w):
        return {"h": rec.total(node.children.h) + w.b}

    own = rec.Model(summed, {"a": [1.0, 2.0], "b": [10.0, 20.0]})
    assert reference.scores(own, rec.child_arrays([[[-1, -1], [-1, 0]]], {})).tolist() == [[11, 22]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value("weight", name="no"), "reads weight 'no'"),
        (Value("tanh", (5,), (3,)), "expected values before it"),
        (Value("tanh", (0,), (4,)), r"it has \(3,\)"),
        (Value("add", (0,), (3,)), "has 1 operands; expected 2"),
        (Value("total", (0,), (3,)), "not per child"),
        (Value("slice", (0,), (3,), start=1, stop=4), "no such part"),
        (Value("child", (), (3,), name="h", start=2), "places 0 to 1"),
        (Value("embed", (), (3,), name="w"), "not an input of kind number"),
        (Value("constant", constant=float("nan")), "finite"),
        (Value("reshape", (0,), (2, 2)), "has no form"),
    ],
)
def test_wrong_values(value: Value, text: str) -> None:
    first = Value("child", (), (3,), name="h", start=0)
    cell = Cell("wrong", 2, {"h": (3,)}, {}, {"w": np.zeros((3, 3), np.float32)}, (first, value), {"h": 0})
    with pytest.raises(ModelError, match=text):
        check(cell)


def test_importing_hbtvm_imports_no_recursive_model() -> None:
    program = "import hbtvm, sys; assert 'hbtvm.recursive' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
