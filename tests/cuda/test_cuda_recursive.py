"""Recursive models on GPUs: kernels from their unchanged source, through the runtime (see `emulated`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.compiler.building.cpu import host_executor
from hbtvm.compiler.building.cuda_levels import level_source
from hbtvm.compiler.building.cuda_source import machine_code
from hbtvm.compiler.building.cuda_toolkit import toolkit_version
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.recursion.samples import sample
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError, PackageError
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell, Layer, Readout
from hbtvm.runtime.cuda.recursive.device import RecursiveDevice
from hbtvm.runtime.model import Model
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.package.file import from_bytes, read, to_bytes
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.space import Config
from hbtvm.strategies.recursive.cuda import levels as cuda_levels
from hbtvm.strategies.recursive.levels import Levels, classes_of
from tests import emulated
from tests.cuda_kernels import NO_NVCC, usage
from tests.emulated import LAUNCHES, RESIDENT, SM90, Machine
from tests.recursive.random_cells import random_cell, random_structures

GPU = resolve(SM90)
WORDS = 20

needs_compiler = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
needs_nvcc = pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with emulated.machine() as found:
        # Fewer multiprocessors than a level has units: blocks have several each.
        found.set(RESIDENT, 3)
        yield found


def weights_of(name: str, hidden: int, children: int | None) -> dict[str, np.ndarray]:
    return known.example_weights(name, hidden, WORDS, children or 2, seed=hidden)


def cell_of(name: str, hidden: int, children: int | None = 2) -> Cell:
    return known.CELLS[name](hidden, children).bind(weights_of(name, hidden, children))


def opened(cell: Cell, over: Any = "nodes", state: str = "h", **knobs: Any) -> RecursiveDevice:
    """A cell on the device, with a configuration of which the rest is the default."""
    classes, levels = classes_of(cell), Levels()
    workload = levels.workload(classes, 4, 32, 8, 1)
    space = levels.space(workload, GPU)
    names = {knob.name for knob in space.knobs}
    config: Config = {**levels.default(workload, GPU), **{k: v for k, v in knobs.items() if k in names}}
    if config.get("first") and (config["leaf"] != "table" or config.get("refactor")):
        config["first"] = 0
    assert space.contains(config)
    made = kernels_of(classes, workload, config, GPU)
    entry = entry_of(cell, classes, Readout(state, over), (made,))
    return RecursiveDevice(load_library(host_executor()), entry, "sm_90", 0)


def agrees(device: RecursiveDevice, cell: Cell, structures: Structures, state: str, over: Any) -> None:
    how = Readout(state, over)
    want = reference.readout(cell, how, structures, reference.states(cell, structures))
    found = device.run(structures)
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * max(1, np.abs(want).max(initial=0)))


def drawn(
    children: int | None,
    seed: int = 7,
    matrices: bool = False,
    counts: tuple[int, ...] = (1, 2, 9, 40, 1, 23),
) -> Structures:
    """Structures of many kinds: single nodes, chains, graphs with shared children.

    Parameters
    ----------
    matrices
        Whether all nodes have words, and matrices with them.
    counts
        Nodes of each structure.
    """
    rng = np.random.default_rng(seed)
    starts, first, child = [0], [0], []
    for count in counts:
        for node in range(count):
            most = min(node, 5 if children is None else children)
            own = rng.choice(node, size=rng.integers(0, most + 1), replace=False) if node else []
            child += [starts[-1] + int(one) for one in own]
            first.append(len(child))
        starts.append(starts[-1] + count)
    words = rng.integers(0 if matrices else -1, WORDS, starts[-1]).astype(np.int32)
    arrays = (np.array(starts), np.array(first, np.int32), np.array(child, np.int32))
    return Structures(*arrays, {"word": words, "matrix": words[::-1].copy()} if matrices else {"word": words})


BY_LEVEL = {"levels": "launches", "tile": 4, "threads": 128, "unroll": 2}
ALL_LEVELS = {"levels": "persistent", "tile": 2, "threads": 64}

CASES: list[tuple[str, int, int | None, dict[str, Any]]] = [
    ("tree_fc", 16, 2, {}),
    ("tree_fc", 20, 3, {**ALL_LEVELS, "leaf": "compute"}),
    ("tree_lstm", 20, 2, {**BY_LEVEL, "leaf": "compute"}),
    ("tree_lstm", 20, None, ALL_LEVELS),
    ("tree_lstm", 16, 2, {**ALL_LEVELS, "refactor": 1, "tile": 1}),
    ("nary_tree_lstm", 16, 3, {**BY_LEVEL, "tile": 1}),
    ("tree_gru", 20, None, {**BY_LEVEL, "leaf": "compute"}),
    ("tree_gru", 20, 2, {**ALL_LEVELS, "leaf": "compute", "tile": 4}),
    ("dag_rnn", 16, 2, {**ALL_LEVELS, "leaf": "inner"}),
    ("mv_rnn", 8, 2, BY_LEVEL),
    ("mv_rnn", 20, 2, ALL_LEVELS),
    ("mv_rnn", 48, 2, {**BY_LEVEL, "threads": 64}),  # two tiles of rows and columns, the last not full
    ("dag_rnn", 70, None, {**BY_LEVEL, "threads": 64, "tile": 8}),  # two panels, the last not full
]


@needs_compiler
@pytest.mark.parametrize(("name", "hidden", "children", "knobs"), CASES)
def test_states_are_the_reference_s(
    machine: Machine, name: str, hidden: int, children: int | None, knobs: dict[str, Any]
) -> None:
    cell = cell_of(name, hidden, children)
    for state in cell.states:
        structures = drawn(children, matrices=name == "mv_rnn")
        agrees(opened(cell, state=state, **knobs), cell, structures, state, "nodes")


@needs_compiler
def test_operands_in_parts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    # As of large cells: what does not fit shared memory comes in parts, the last of which is not full.
    monkeypatch.setattr("hbtvm.strategies.recursive.cuda.steps.SHARED_BYTES", 4 * 4 * 12)
    cell = cell_of("tree_lstm", 18, 2)
    agrees(opened(cell, **BY_LEVEL), cell, drawn(2), "h", "nodes")


@needs_compiler
@pytest.mark.parametrize("seed", [2, 11, 19, 21, 23, 33, 43, 46])  # all operators are in some
def test_random_cells(machine: Machine, seed: int) -> None:
    cell = random_cell(seed)
    knobs = ALL_LEVELS if seed % 2 else BY_LEVEL
    device = opened(cell, **knobs)
    for one in range(3):
        agrees(device, cell, random_structures(cell, 10 * seed + one), "h", "nodes")


@needs_compiler
@pytest.mark.parametrize("over", ["roots", "total", "mean", "most"])
def test_readouts(machine: Machine, over: str) -> None:
    cell = cell_of("dag_rnn", 16)
    device = opened(cell, over=over)
    # A larger call after smaller ones, and a smaller one after it.
    for structures in (sample(cell, 1), drawn(2), sample(cell, 12, seed=3), sample(cell, 2, seed=4)):
        agrees(device, cell, structures, "h", over)
    nothing = Structures(np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(0, np.int32), {"word": []})
    assert device.run(nothing).shape == (0, 16)


@needs_compiler
def test_a_launch_a_step_and_level_or_one_for_all(machine: Machine) -> None:
    cell = cell_of("tree_gru", 16)
    structures = Structures(
        np.array([0, 6]), np.array([0, 0, 1, 2, 3, 4, 5], np.int32), np.arange(5, dtype=np.int32),
        {"word": np.zeros(6, np.int32)},
    )  # fmt: skip
    # A leaf, its parent, which looks products up, and four levels of two steps.
    for knobs, expected in ((BY_LEVEL, 1 + 1 + 4 * 2), (ALL_LEVELS, 1)):
        device = opened(cell, **knobs)
        before = machine.get(LAUNCHES)
        agrees(device, cell, structures, "h", "nodes")
        assert machine.get(LAUNCHES) - before == expected


@needs_compiler
def test_without_its_barrier_the_persistent_kernel_is_wrong(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cuda_levels._BARRIER_SOURCE
    monkeypatch.setattr(cuda_levels, "_BARRIER_SOURCE", source.partition("{")[0] + "{ __syncthreads(); }")
    cell = cell_of("dag_rnn", 16)
    device, structures, other = opened(cell, **{**ALL_LEVELS, "tile": 1}), drawn(2), drawn(2, seed=8)
    # Every second run lets the last block go first. Memory holds the states of the run before.
    order = (other, structures, other, other, structures)
    found = [states for run, states in ((run, device.run(run)) for run in order) if run is structures]
    want = reference.states(cell, structures)["h"]
    assert not all(np.allclose(one, want, atol=1e-5) for one in found)


@needs_compiler
def test_calls_from_several_threads(machine: Machine) -> None:
    cell = cell_of("tree_fc", 16)
    device = opened(cell, over="roots")
    batches = [sample(cell, count, seed=count) for count in (1, 3, 6, 2)]
    alone = [device.run(one) for one in batches]
    found: dict[int, np.ndarray] = {}

    def call(i: int) -> None:
        for _ in range(3):
            found[i] = device.run(batches[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, want in enumerate(alone):
        np.testing.assert_array_equal(found[i], want)


@needs_compiler
def test_structures_that_do_not_fit_are_named(machine: Machine) -> None:
    device = opened(cell_of("tree_fc", 16))
    first = np.array([0, 0, 1, 1], np.int32)
    words = {"word": np.array([0, 1, WORDS], np.int32)}
    good = np.array([0, 2, 3])
    with pytest.raises(InputError, match=r"structure 1, node 0: 'word' is out of range"):
        device.run(Structures(good, first, np.array([0], np.int32), words))
    with pytest.raises(InputError, match=r"structure 0, node 1: it depends on itself"):
        device.run(Structures(good, first, np.array([1], np.int32), words))


def layered(children: int | None = None) -> rec.Model:
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((3, 16)), rng.standard_normal(3)
    layers = [Layer("linear", weight.astype(np.float32), bias.astype(np.float32)), Layer("softmax")]
    cell = known.CELLS["tree_lstm"](16, children)
    return rec.Model(cell, weights_of("tree_lstm", 16, children), layers=layers, classes=("a", "b", "c"))


@needs_compiler
def test_a_package_with_layers_and_without(machine: Machine, tmp_path: Path) -> None:
    model, path = layered(), tmp_path / "model.tar"
    hbtvm.compile(model, target=SM90, batch_sizes=(2,)).save(path)
    made = hbtvm.load(path)
    assert made.device == "cuda:0"
    structures = sample(model.cell, 6, seed=2)
    want = reference.scores(model, structures)
    np.testing.assert_allclose(made.predict_proba(structures), want, atol=1e-5)
    assert made.predict(structures).tolist() == np.array(model.classes)[want.argmax(1)].tolist()
    assert "levels=launches" in made.summary()
    bare = rec.Model(model.cell)
    made = Model(from_bytes(to_bytes(hbtvm.compile(bare, target=SM90, batch_sizes=(2,)).package)))
    np.testing.assert_allclose(made.predict(structures), reference.scores(bare, structures), atol=1e-5)
    with pytest.raises(InputError, match="at least one structure"):
        empty = Structures(np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(0, np.int32), {"word": []})
        made.predict(empty)
    with pytest.raises(PackageError, match="can't run on the CPU"):
        hbtvm.load(path, device="cpu")


@needs_compiler
def test_kernels_that_make_no_sense_are_damage(machine: Machine) -> None:
    package = hbtvm.compile(rec.Model(cell_of("tree_fc", 16)), target=SM90, batch_sizes=(2,)).package
    assert package.recursion is not None
    (kernels,) = package.recursion.kernels
    (step,) = kernels.inner.main
    other = replace(step.arguments[0], role="out")
    changes = [
        replace(step, threads=2048),
        replace(step, panels=0),
        replace(step, tile=0),
        replace(step, arguments=(other, *step.arguments[1:])),
        replace(step, arguments=tuple(one for one in step.arguments if one.role != "level")),
    ]
    wrong = [replace(kernels, inner=replace(kernels.inner, main=(one,))) for one in changes]
    wrong.append(replace(kernels, share="nodes"))
    wrong.append(replace(kernels, persistent=step))
    wrong.append(replace(kernels, inner=replace(kernels.inner, main=(replace(step, shared=-1),))))
    for one in wrong:
        recursion = replace(package.recursion, kernels=(one,))
        with pytest.raises(PackageError, match=r"is damaged|can't pack the model"):
            from_bytes(to_bytes(replace(package, recursion=recursion)))


@needs_nvcc
def test_a_package_holds_machine_code(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    hbtvm.compile(rec.Model(cell_of("tree_fc", 32)), target=SM90, batch_sizes=(10,)).save(path)
    recursion = read(path).recursion
    assert recursion is not None
    tool = shutil.which("cuobjdump")
    if tool:
        code = tmp_path / "kernel.fatbin"
        code.write_bytes(recursion.kernels[0].library)
        listed = subprocess.run([tool, "-lelf", "-lptx", code], capture_output=True, text=True).stdout
        assert "sm_90.cubin" in listed and "sm_75.ptx" in listed
    said = subprocess.run(
        [sys.executable, "-m", "hbtvm", "inspect", str(path), "--json"], capture_output=True, text=True
    )
    told = json.loads(said.stdout)
    assert told["recursion"]["kernels"][0]["config"]["levels"] == "launches"
    assert told["cuda"] == toolkit_version() != ""


@needs_nvcc
@pytest.mark.parametrize(
    ("levels", "kept", "name", "hidden"),
    [
        ("launches", 0, "tree_lstm", 256),
        ("persistent", 0, "tree_lstm", 256),
        ("persistent", 16, "tree_lstm", 256),
        ("launches", 0, "mv_rnn", 64),
        ("persistent", 8, "mv_rnn", 64),
    ],
)
def test_sums_stay_in_registers(levels: str, kept: int, name: str, hidden: int) -> None:
    classes = classes_of(cell_of(name, hidden))
    workload = Levels().workload(classes, 10, 64, 12, 1)
    config = {**Levels().default(workload, GPU), "levels": levels, "tile": 8, "kept": kept}
    source, _ = level_source(Levels().kernels(classes, config, GPU), GPU)
    # What other blocks write is read anew behind a barrier.
    assert ("__restrict__" in source[source.index('extern "C"') :]) == (levels == "launches")
    code, printed = machine_code(source, GPU, "-Xptxas=-v")
    used = usage(printed)
    assert code[:4] == b"\x7fELF" and used["stack"] == used["spills"] == 0
