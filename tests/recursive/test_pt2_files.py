"""`.pt2` files that are damaged, or made to do harm: one sentence, and nothing is unpickled."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbtvm.errors import ModelError, ModelNotFoundError
from hbtvm.recursive import read_pt2
from hbtvm.recursive.cell import Cell

torch = pytest.importorskip("torch")
modules = pytest.importorskip("tests.recursive.torch_modules")
MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
SAMPLES = "data/sample_inputs/model.pt"


@pytest.fixture(scope="module")
def content() -> bytes:
    state, word = torch.zeros(3, 2, modules.HIDDEN), torch.zeros(3, dtype=torch.int64)
    axes = ({0: "b"},) * 3
    return bytes(modules.saved(modules.ChildSumLSTM(), (state, state.clone(), word), axes))


def read(given: bytes) -> Cell:
    return read_pt2(given, children=2, state=("h", "c"))


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {one.partition("/")[2]: archive.read(one) for one in archive.namelist()}


def archive_of(parts: dict[str, bytes], folder: str = "any/", how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in parts.items():
            archive.writestr(folder + name, data)
    return file.getvalue()


def changed(content: bytes, name: str, change: Callable[[Any], None]) -> bytes:
    """The file with the document in one member changed."""
    parts = members(content)
    document = json.loads(parts[name])
    change(document)
    parts[name] = json.dumps(document).encode()
    return archive_of(parts)


def test_right_files(content: bytes) -> None:
    """In another folder, or in none; what a cell does not need may be missing."""
    expected = read(content)
    parts = members(content)
    for given in (archive_of(parts), archive_of(parts, ""), archive_of({**parts, SAMPLES: b""})):
        assert read(given).values == expected.values


def test_cut_short(content: bytes) -> None:
    for length in [*range(0, len(content), 997), *range(len(content) - 40, len(content))]:
        with pytest.raises(ModelError):
            read(content[:length])


class Payload:
    """What creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_pickles_stay_closed(content: bytes, tmp_path: Path) -> None:
    bad = pickle.dumps(Payload(tmp_path / "harm"))
    # Of no weight's size, which would be numbers; what follows a pickle's end is not read.
    bad += b"." * (len(bad) % 4 == 0)
    pickle.loads(bad)
    (tmp_path / "harm").rmdir()  # it would work
    parts = members(content)
    read(archive_of({**parts, SAMPLES: bad}))
    for name in parts:
        if name.startswith(("data/", "models/")) and name != SAMPLES:
            with pytest.raises(ModelError):
                read(archive_of({**parts, name: bad}))

    def pickled(document: Any) -> None:
        document["config"]["U.weight"]["use_pickle"] = True

    given = members(changed(content, WEIGHTS, pickled))
    path = json.loads(given[WEIGHTS])["config"]["U.weight"]["path_name"]
    with pytest.raises(ModelError, match=r"'U\.weight' is pickled, which is never opened"):
        read(archive_of({**given, f"data/weights/{path}": bad}))
    assert not (tmp_path / "harm").exists()


def test_weights_that_share_bytes(content: bytes) -> None:
    """Many names for the same bytes, in any form: read as far as the file's size warrants."""
    parts = members(content)
    document = json.loads(parts[WEIGHTS])
    first = next(iter(document["config"].values()))
    parts["data/weights/shared"] = bytes(4 << 20)

    def bomb(count: int, strides: list[int]) -> bytes:
        table = copy.deepcopy(document)
        for i in range(count):
            one = copy.deepcopy(first)
            one["path_name"] = "shared"
            meta = one["tensor_meta"]
            meta["sizes"], meta["strides"] = [{"as_int": 1024}] * 2, [{"as_int": x} for x in strides]
            meta["storage_offset"] = {"as_int": 0}
            table["config"][f"w{i}"] = one
        return archive_of({**parts, WEIGHTS: json.dumps(table).encode()})

    expected = read(content)
    for strides in ([1024, 1], [1, 1024], [0, 0]):
        tracemalloc.start()
        try:
            assert read(bomb(15, strides)).values == expected.values
            with pytest.raises(ModelError, match="share bytes have more than 67,108,864 bytes"):
                read(bomb(2000, strides))
            assert tracemalloc.get_traced_memory()[1] < 160 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("sizes", [18, 7], "has shape"),
        ("sizes", [1 << 39, 1 << 39], "has shape"),
        ("sizes", [1 << 200, 1], "not a size"),
        ("sizes", [-18, -6], "not a size"),
        ("strides", [1 << 30, 1], "has shape"),
        ("strides", [-6, 1], "not a size"),
        ("strides", [6], "not a dense array"),
        ("storage_offset", 1, "has shape"),
        ("storage_offset", -1, "not a size"),
        ("storage_offset", 1 << 38, "has shape"),
        ("dtype", 8, "is float64; expected float32"),
        ("dtype", 99, "unknown type"),
        ("layout", 1, "not a dense array"),
    ],
)
def test_weights_that_claim_too_much(content: bytes, key: str, value: Any, says: str) -> None:
    def change(document: Any) -> None:
        new = [{"as_int": one} for one in value] if isinstance(value, list) else value
        new = {"as_int": value} if key == "storage_offset" else new
        document["config"]["U.weight"]["tensor_meta"][key] = new

    with pytest.raises(ModelError, match=says):
        read(changed(content, WEIGHTS, change))


def test_other_archives(content: bytes) -> None:
    parts = members(content)
    for given, says in (
        (b"", "not a zip archive"),
        (b"PK nothing", "not a zip archive"),
        (archive_of(parts, how=zipfile.ZIP_DEFLATED), "is compressed"),
        (archive_of({"a.json": b""}), "has no models/model.json"),
        (archive_of({"serialized_exported_program.json": b""}), "older torch"),
        (archive_of({**parts, "models/other.json": b""}), "more than one model"),
        (archive_of({**parts, "byteorder": b"big"}), "big-endian"),
        (archive_of({**parts, MODEL: b"[" * 100_000}), "RecursionError"),
        (archive_of({**parts, MODEL: b"{}"}), "schema_version"),
        (archive_of({**parts, MODEL: b'{"a": NaN}'}), "NaN"),
        (archive_of({key: one for key, one in parts.items() if key != WEIGHTS}), "weight '.*' is missing"),
        (archive_of({key: one for key, one in parts.items() if "weight_0" not in key}), "is missing"),
    ):
        with pytest.raises(ModelError, match=says):
            read(given)
    with pytest.raises(ModelError, match="of schema 9; this version of hbtvm reads 8"):
        read(changed(content, MODEL, lambda one: one["schema_version"].update(major=9)))


@pytest.mark.parametrize(
    ("target", "inputs", "says"),
    [
        ("aten.expand.default", {"self": "h", "size": [1 << 20, -1, 1 << 20, 6]}, "expands an axis|numbers"),
        ("aten.full.default", {"size": [1 << 30, 1 << 30], "fill_value": 0.0}, "numbers for a node"),
        ("aten.full.default", {"size": [-4], "fill_value": 0.0}, "without elements"),
        ("aten.repeat.default", {"self": "h", "repeats": [1, 1, 1 << 40]}, "repeats a tensor"),
        ("aten.unsqueeze.default", {"self": "h", "dim": 1 << 70}, "axis"),
        ("aten.view.default", {"self": "h", "size": [-1, -1]}, "reshapes"),
        ("aten.relu.default", {"self": "h", "values": 3}, "arguments that a cell can't have"),
        ("aten.relu.default", {"self": "sum_1"}, "which nothing computes"),
        ("aten.sym_size.int", {"self": "h", "dim": 0}, "."),
        ("os.system", {"x": "h"}, "not an operator"),
        ("aten.__class__.x", {"x": "h"}, "not an operator"),
    ],
)
def test_operators_that_claim_too_much(content: bytes, target: str, inputs: Any, says: str) -> None:
    """In place of the first operator, which picks the word's row."""

    def argument(one: Any) -> Any:
        if isinstance(one, str):
            return {"as_tensor": {"name": one}}
        return {{list: "as_ints", float: "as_float", int: "as_int"}[type(one)]: one}

    def change(document: Any) -> None:
        node = document["graph_module"]["graph"]["nodes"][0]
        node["target"] = f"torch.ops.{target}"
        node["inputs"] = [{"name": key, "arg": argument(one), "kind": 1} for key, one in inputs.items()]

    with pytest.raises(ModelError, match=says):
        read(changed(content, MODEL, change))


def places(document: Any) -> list[tuple[Any, Any]]:
    """All places of a document: an object or a list, and a key."""
    found = []
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, one in pairs:
        found.append((document, key))
        if isinstance(one, dict | list):
            found += places(one)
    return found


@pytest.mark.parametrize("name", [MODEL, WEIGHTS])
def test_changed_at_random(content: bytes, name: str) -> None:
    """Whatever stands in a file, the answer is a cell or a sentence."""
    rng = random.Random(0)
    odd = [
        None,
        -1,
        0,
        1,
        3,
        1 << 70,
        1.5,
        True,
        "",
        "h",
        "word",
        [],
        {},
        [1],
        {"as_int": 2},
        {"as_none": True},
    ]
    parts = members(content)
    whole = json.loads(parts[name])
    refused = 0
    for _ in range(400):
        document = copy.deepcopy(whole)
        if name == MODEL:
            every = places({key: document["graph_module"][key] for key in ("graph", "signature")})
        else:
            every = places(document)
        where, key = rng.choice(every)
        where[key] = copy.deepcopy(rng.choice([*odd, rng.choice(every)[0]]))
        try:
            text = json.dumps(document)
        except ValueError:  # a circle
            continue
        try:
            assert isinstance(read(archive_of({**parts, name: text.encode()})), Cell)
        except ModelError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 100


def test_bytes_changed_at_random(content: bytes) -> None:
    rng = random.Random(1)
    for _ in range(200):
        given = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            given[rng.randrange(len(given))] = rng.randrange(256)
        try:
            assert isinstance(read(bytes(given)), Cell)
        except ModelError as error:
            assert "\n" not in str(error)


def test_without_torch(content: bytes, tmp_path: Path) -> None:
    """Neither torch nor pickle's loading is needed; a file that is missing is told."""
    (tmp_path / "tree.pt2").write_bytes(content)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pickle, sys\n"
            "sys.modules['torch'] = None\n"
            "import hbtvm.recursive as rec\n"
            "pickle.load = pickle.loads = pickle.Unpickler = None\n"
            f"print(rec.read_pt2({str(tmp_path / 'tree.pt2')!r}, children=2, state=('h', 'c')).name)\n"
            "try:\n    rec.from_torch(None)\n"
            "except ImportError as error:\n    print(error)",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "tree",
        "from_torch needs torch, which is not installed: pip install torch",
    ], done.stderr
    with pytest.raises(ModelNotFoundError, match="can't be read"):
        read_pt2(tmp_path / "none.pt2")
