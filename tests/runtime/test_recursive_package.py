"""Packages of recursive models: written, read, run, described, and refused where they are damaged."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.cli.main import main
from hbtvm.codec import binding
from hbtvm.errors import InputError, PackageError
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package.archive import read_archive, write_archive
from hbtvm.runtime.package.file import Package, _package, from_bytes, to_bytes
from hbtvm.runtime.package.manifest import MANIFEST
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive_cells import WIDTH, drawn, entry, kernels, reference, reference_levels
from tests.recursive_packages import COLUMNS, bare, compiled, roots

SIZES = [1, 40, 7, 90, 2]


@functools.cache
def layered() -> tuple[LogisticRegression, Package]:
    """The cell with a linear model of three classes behind it."""
    rng = np.random.default_rng(0)
    model = LogisticRegression().fit(rng.standard_normal((90, COLUMNS)), np.repeat(["a", "b", "c"], 30))
    own = entry(kernels(1, threads=2, share="nodes"), kernels(10, "structures", 2))
    return model, replace(hbtvm.compile(model, batch_sizes=(1, 64)).package, recursion=own)


def test_layers_behind_the_readout() -> None:
    model, made = layered()
    loaded = Model(from_bytes(to_bytes(made)))
    for seed, sizes in ((0, SIZES), (1, [12])):
        structures = drawn(np.random.default_rng(seed), sizes, "graph", "any")
        rows = reference(structures)[roots(structures)]
        assert loaded.predict(structures).tolist() == model.predict(rows).tolist()
        np.testing.assert_allclose(loaded.predict_proba(structures), model.predict_proba(rows), atol=1e-5)
        raw = loaded.predict(structures, output="decision")
        np.testing.assert_allclose(raw, model.decision_function(rows), atol=1e-4)
    assert loaded.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_the_readout_as_it_is(threads: int | None) -> None:
    structures = drawn(np.random.default_rng(2), SIZES, "tree", "any")
    loaded = Model(from_bytes(to_bytes(bare(entry(kernels(2, "panels", 2))))), threads=threads)
    found = loaded.predict(structures)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(structures)[roots(structures)], atol=2e-6)
    with pytest.raises(InputError, match="probabilities"):
        loaded.predict_proba(structures)
    again = pickle.loads(pickle.dumps(loaded)).predict(structures)
    assert again.tobytes() == found.tobytes()


def test_kernels_of_tvm() -> None:
    structures = drawn(np.random.default_rng(3), SIZES, "tree", "any", places=2, vocabulary=7)
    structures.inputs["word"][structures.inputs["word"] < 0] = 0
    structures = replace(structures, inputs={"word": structures.inputs["word"]})
    made = compiled()
    states = np.zeros((sum(SIZES), 32))
    for _ in range(int(reference_levels(structures).max()) + 1):
        total = made.kernels[0].tables[0].astype(float)[structures.inputs["word"]]
        for v in range(len(states)):
            own = structures.child[structures.first[v] : structures.first[v + 1]]
            total[v] += states[own[own >= 0]].sum(0)
        states = np.tanh(total)
    found = Model(from_bytes(to_bytes(bare(made, 20)))).predict(structures)
    np.testing.assert_allclose(found, states[:, :20], atol=1e-5)


def test_the_same_package_gives_the_same_bytes() -> None:
    for made in (layered()[1], bare(compiled(), 20)):
        data = to_bytes(made)
        again = from_bytes(data)
        assert to_bytes(again) == data
        assert again.recursion is not None and made.recursion is not None
        for one, other in zip(again.recursion.kernels, made.recursion.kernels, strict=True):
            assert all(map(np.array_equal, one.tables, other.tables))
            assert replace(one, tables=()) == replace(other, tables=())
        assert replace(again.recursion, kernels=()) == replace(made.recursion, kernels=())


def test_depth() -> None:
    own = entry(kernels(1, depth=2), kernels(10, "nodes", 2, depth=1), over="nodes")
    data = to_bytes(bare(own))
    first, second = manifest_of(data)["recursion"]["kernels"]
    assert first["depth"] == 2 and "depth" not in second
    again = from_bytes(data)
    assert again.recursion is not None and [one.depth for one in again.recursion.kernels] == [2, 1]
    assert to_bytes(again) == data
    structures = drawn(np.random.default_rng(4), SIZES, "tree", "any")
    np.testing.assert_allclose(Model(again).predict(structures), reference(structures), atol=2e-6)
    manifest = manifest_of(data)
    for value in (0, -1, 1.5, True, None, 2**10):
        assert refused(changed(manifest, "kernels.0.depth", value), data).startswith("is damaged: manifest")
    assert "panels of 2 levels" in refused(changed(manifest, "kernels.0.share", "panels"), data)


@pytest.mark.parametrize("given", [np.zeros((2, COLUMNS)), [[0.0] * COLUMNS], None, "text"])
def test_rows_are_no_structures(given: Any) -> None:
    for made in (layered()[1], bare(entry())):
        with pytest.raises(InputError, match="expected structures, as"):
            Model(made).predict(given)


def test_structures_that_have_no_result() -> None:
    inputs = {"word": np.zeros(0, int), "bias": np.zeros((0, WIDTH))}
    for starts in ([0], [0, 0]):
        nothing = Structures(np.array(starts), np.zeros(1, int), np.zeros(0, int), inputs)
        with pytest.raises(InputError, match="expected at least one structure with a node"):
            Model(layered()[1]).predict(nothing)


def test_what_it_says_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = layered()[1]
    text = Model(made).summary()
    for expected in (
        "small, up to 3 children, 48 numbers kept of a node",
        "43 numbers of each root",
        "structures; word: a number from 0 to 19, or none; bias: 48 numbers a node",
        "per structure", "kernels of the layers behind", "2 over nodes",
        "2 over structures", "node_tile=4 tiles: leaf 8, inner 4 or 2", "linear",
    ):  # fmt: skip
        assert expected in text, text
    assert "cell small of 48 numbers a node" in repr(Model(made))
    assert "any number of children" in Model(bare(entry(children=None))).summary()
    path = tmp_path / "model.tar"
    path.write_bytes(to_bytes(made))
    assert main(["inspect", str(path)]) == 0
    assert "43 numbers of each root" in capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["recursion"]
    assert told["cell"] == "small" and [one["rows"] for one in told["kernels"]] == [1, 10]


def manifest_of(data: bytes) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(bytes(read_archive(data, MANIFEST)[MANIFEST]))
    return manifest


def refused(manifest: dict[str, Any], data: bytes, seal: bool = True) -> str:
    """Why a package with another manifest is refused by reading it; `seal` makes its own hash right again."""
    members = read_archive(data, MANIFEST)
    members.pop(MANIFEST)
    members.pop("manifest.sha256")
    if seal:
        manifest["recursion"]["binding"] = binding(manifest["recursion"])
    with pytest.raises(PackageError) as caught:
        _package(manifest, members)
    return str(caught.value)


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a manifest with another value in its recursive model."""
    copied = copy.deepcopy(manifest)
    place: Any = copied["recursion"]
    *steps, last = (int(one) if one.isdigit() else one for one in path.split("."))
    for step in steps:
        place = place[step]
    place[last] = value
    return copied


STEP = "kernels.0.inner.main.0"

BAD = [("rows", 0), ("state", 1), ("state", -1), ("table", 1), ("scratch", 1), ("number", 1), ("vector", 0),
       ("number", 2), (None, 0), ("state", True)]  # fmt: skip

USUAL = {"scratch", "tail", "tail_most", "panels", "optional", "object", "depth", "first", "number"}
"""Fields that may be left out."""

WRONG: dict[str, list[Any]] = {
    "cell": [None, "", 3],
    "children": [0, -1, 2.0, True, "2", 2**20],
    "width": [0, 47, 2**40, None, 32.0],
    "state": [-16, 8, 16, None],
    "shape": [[], [0], [49], [2, 2, 2], 43, ["43"], [44], [2, 17]],
    "over": ["root", None, []],
    "inputs": [[], {}, None, "x"],
    "inputs.0.kind": ["vector", "x", None],
    "inputs.0.size": [0, 2**31, "20", 10**9, 49],
    "inputs.0.optional": [None, 1, "no"],
    "inputs.0.name": ["bias", "", None],
    "inputs.1.optional": [True],
    "inputs.1.kind": ["number"],
    "kernels": [[], None, {}],
    "kernels.0.rows": [0, -1, 1.5, None, 2**40],
    "kernels.0.threads": [0, 2**20, "2"],
    "kernels.0.seconds": [0, -1.0, float("nan"), float("inf"), "1", True],
    "kernels.0.strategy": ["", None],
    "kernels.0.config": [None, []],
    "kernels.0.share": ["trees", None],
    "kernels.0.library": ["kernels/none.so", None],
    "kernels.0.object": ["objects/none.o", 3],
    "kernels.0.tables": [[], {}, ["tables/none.npy"], None],
    "kernels.0.inner": [None, []],
    "kernels.0.inner.main": [[], None, {}],
    "kernels.0.inner.scratch": [[], [0], [2**30], None, ["48"]],
    "kernels.0.inner.tail": [[], None],
    "kernels.0.inner.tail_most": [0, 5, -1, None, 2.0],
    "kernels.0.leaf.tail_most": [1],
    f"{STEP}.function": ["", "a b", "main;", None, "x" * 200],
    f"{STEP}.tile": [0, 5, 2**30, None],
    f"{STEP}.panels": [-1, 3, None],
    f"{STEP}.arguments": [None, [{"role": "span"}], [{"role": 1}], [{"role": "state"}] * 2],
    f"{STEP}.arguments.0": [["state", 0], *({"role": role, "number": number} for role, number in BAD)],
    "kernels.0.inner.main.1.arguments.5": [{"role": "scratch", "number": 0}],
    "kernels.0.inner.main.1.panels": [0],
}  # fmt: skip


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_manifest_is_refused(path: str) -> None:
    data = to_bytes(layered()[1])
    manifest = manifest_of(data)
    for value in WRONG[path]:
        told = refused(changed(manifest, path, value), data)
        assert told.startswith("is damaged: manifest.json"), (path, value, told)
        # Without the right hash, too, and for whatever reason.
        assert refused(changed(manifest, path, value), data, seal=False)


def test_whatever_is_changed_is_noticed_by_the_hash() -> None:
    data = to_bytes(layered()[1])
    manifest = manifest_of(data)
    for path, value in (
        ("inputs.0.size", 19), ("kernels.0.rows", 2), ("kernels.0.inner.tail_most", 2), ("over", "total"),
        ("cell", "other"), ("kernels.0.config", {}), (f"{STEP}.panels", 2),
        ("binding", "0" * 64), ("children", 2),
    ):  # fmt: skip
        assert refused(changed(manifest, path, value), data, seal=False)


def test_fields_that_are_missing_or_unknown() -> None:
    data = to_bytes(layered()[1])
    manifest = manifest_of(data)
    for path in ("", "inputs.0", "kernels.0", "kernels.0.leaf", STEP):
        place: Any = manifest["recursion"]
        for step in path.split(".") if path else []:
            place = place[int(step) if step.isdigit() else step]
        for name in [*(place.keys() - USUAL), "surprise"]:
            value = place.get(name)
            if name == "surprise":
                place[name] = 1
            else:
                del place[name]
            assert "damaged" in refused(copy.deepcopy(manifest), data, seal=name != "binding"), (path, name)
            if name == "surprise":
                del place[name]
            else:
                place[name] = value


def test_a_readout_of_nothing() -> None:
    data = to_bytes(bare(entry()))
    manifest, members = manifest_of(data), read_archive(data, MANIFEST)
    del manifest["recursion"], members[MANIFEST], members["manifest.sha256"]
    with pytest.raises(PackageError, match="0 kernels of network"):
        _package(manifest, members)


@pytest.mark.parametrize(
    "path, value",
    [("width", 48), ("children", 3), ("inputs.0.size", 6), ("kernels.0.inner.tail.0.tile", 2),
     ("kernels.0.inner.main.0.tile", 4), ("kernels.0.inner.main.0.function", "leaf"),
     ("kernels.0.inner.main.0.arguments.2", {"role": "state", "number": 0}),
     ("kernels.0.leaf.main.0.function", "nothing")],
)  # fmt: skip
def test_tvms_kernels_compare_what_they_take(path: str, value: Any) -> None:
    """Values that make sense by themselves, with a right hash: the code itself refuses them."""
    data = to_bytes(bare(compiled(), 20))
    manifest = changed(manifest_of(data), path, value)
    members = read_archive(data, MANIFEST)
    members.pop(MANIFEST), members.pop("manifest.sha256")
    manifest["recursion"]["binding"] = binding(manifest["recursion"])
    if path.endswith("arguments.2"):
        with pytest.raises(PackageError, match="takes 'state' twice"):
            _package(manifest, members)
        return
    loaded = Model(_package(manifest, members))
    if path == "inputs.0.size":
        loaded.warm_up()  # fewer words than the table has
    else:
        with pytest.raises(PackageError):
            loaded.warm_up()


def test_damaged_files(tmp_path: Path) -> None:
    data = to_bytes(layered()[1])
    members = {name: bytes(one) for name, one in read_archive(data, MANIFEST).items()}
    library = next(name for name, one in members.items() if one == kernels(1).library)
    for changes in ({library: members[library][:-1] + b"x"}, {library: None}):
        path = tmp_path / "model.tar"
        with path.open("wb") as file:
            write_archive(
                {name: one for name, one in {**members, **changes}.items() if one is not None}, file
            )
        with pytest.raises(PackageError, match="is damaged"):
            load(path)
    # Not even a library, and all hashes are right.
    bad = replace(layered()[1].recursion, kernels=(replace(kernels(1), library=b"no code"),))  # type: ignore[type-var]
    path.write_bytes(to_bytes(replace(layered()[1], recursion=bad)))
    with pytest.raises(PackageError, match="can't be loaded"):
        load(path)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"executor": b""}, "no executor for a CPU"),
        ({"input": InputSpec(COLUMNS + 1)}, "the readout has 43 numbers"),
        ({"output": OutputSpec("transformer", COLUMNS)}, "in front of a pipeline"),
    ],
)
def test_what_does_not_go_together(change: dict[str, Any], text: str) -> None:
    with pytest.raises(PackageError, match=text):
        from_bytes(to_bytes(replace(bare(entry()), **change)))


def test_no_layers_but_other_outputs() -> None:
    made = bare(entry())
    forest = {**made.forest, "base_score": [1.0] * COLUMNS}
    with pytest.raises(PackageError, match="no kernel makes 43 outputs of 43 columns"):
        from_bytes(to_bytes(replace(made, forest=forest)))


def test_digest_is_of_the_written_values() -> None:
    values = manifest_of(to_bytes(bare(entry())))["recursion"]
    rest = {name: one for name, one in values.items() if name != "binding"}
    expected = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    assert values["binding"] == expected == binding(values)
