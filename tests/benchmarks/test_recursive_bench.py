"""The benchmark of recursive models: structures, reckoning, peers that are installed here, and the report."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm.api
from benchmarks.peers.measure import UNFIT, Settings
from benchmarks.recursive import measure, plot, reference, report, results, studies
from benchmarks.recursive.cases import MODELS, operations, recurrent_bytes, weights
from benchmarks.recursive.jobs import Job
from benchmarks.recursive.limits import bound
from benchmarks.recursive.peers import OTHERS, PEERS
from benchmarks.recursive.results import Cell, Results
from benchmarks.recursive.structures import Linear, batch, chain, grid, parse_tree, perfect

H = 8


@pytest.mark.parametrize(
    "child, nodes, edges",
    [(perfect(7), 255, 254), (grid(10), 100, 180), (chain(50), 50, 49)],
    ids=["perfect", "grid", "chain"],
)
def test_structures_have_the_papers_sizes(child: np.ndarray, nodes: int, edges: int):
    assert len(child) == nodes
    assert (child >= 0).sum() == edges
    assert (child < np.arange(nodes)[:, None]).all()


def test_perfect_trees_and_grids_are_what_they_are_called():
    height = np.zeros(255, int)
    for node, (a, b) in enumerate(perfect(7)):
        if a >= 0:
            assert height[a] == height[b]
            height[node] = 1 + height[a]
    assert height[-1] == 7
    assert grid(3).tolist()[4] == [1, 3]
    assert grid(3).tolist()[2] == [-1, 1]


def test_parse_trees_are_binary_and_like_the_treebanks():
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(300):
        child = parse_tree(rng)
        inner = child[child[:, 0] >= 0]
        # Each node but the root is one node's child.
        assert sorted(inner.ravel()) == list(range(len(child) - 1))
        sizes.append(len(inner) + 1)
    assert 17 < np.mean(sizes) < 21
    assert min(sizes) >= 2 and max(sizes) <= 52


@pytest.mark.parametrize("kind", ["perfect", "grid", "parse", "chain"])
def test_linearised_structures_are_the_same(kind: str):
    drawn = batch(kind, 3, 100, seed=5)
    again = batch(kind, 3, 100, seed=5)
    linear = Linear(drawn)
    assert all(np.array_equal(a, b) for a, b in zip(drawn.structures, again.structures, strict=True))
    assert sorted(linear.order) == list(range(linear.nodes))
    base, at = 0, np.argsort(linear.order)
    for child, root in zip(drawn.structures, linear.roots, strict=True):
        for node, own in enumerate(child):
            expected = [at[base + one] if one >= 0 else -1 for one in own]
            assert linear.child[at[base + node]].tolist() == expected
            assert linear.words[at[base + node]] == drawn.words[base + node]
        base += len(child)
        assert root == at[base - 1]
    level = np.zeros(linear.nodes, int)
    for number, (first, end) in enumerate(linear.levels):
        level[first:end] = number
    for node, own in enumerate(linear.child):
        assert level[node] == 1 + max((level[one] for one in own if one >= 0), default=-1)
    assert linear.leaf.sum() == linear.levels[0][1]
    assert linear.levels[-1][1] == linear.nodes


class Counted(np.ndarray):
    """An array that counts multiplications in products."""

    count = 0

    def __matmul__(self, other: Any) -> Any:
        made = np.asarray(self) @ np.asarray(other)
        Counted.count += made.size * self.shape[-1]
        return made.view(Counted)


@pytest.mark.parametrize("model", MODELS)
def test_operations_are_those_that_are_needed(model: str, monkeypatch: pytest.MonkeyPatch):
    linear = Linear(batch(MODELS[model].kind, 1, 1_000))
    monkeypatch.setattr(Counted, "count", 0)
    counted = {name: one.view(Counted) for name, one in weights(model, H).items()}
    monkeypatch.setattr(reference, "weights", lambda *_: counted)
    reference.states(model, H, linear)
    leaf = int(linear.leaf.sum())
    # The reference computes gates that leaves do not need, and products with zeros.
    spared = {
        "treefc": 0,
        "dagrnn": 0,
        "treegru": leaf * (1 + 2 + 1) * H * H,
        "treelstm": leaf * (1 + 3) * H * H,
        "treernn": 0,
        "mvrnn": 0,
        "rnn": leaf * H * H,
        "lstm": 4 * leaf * H * H,
        "gru": 3 * leaf * H * H,
    }
    assert operations(model, H, linear) == 2 * (Counted.count - spared[model])


def test_bound_is_the_larger_of_products_and_reading():
    linear = Linear(batch("perfect", 1, 1_000))
    assert recurrent_bytes("treefc", H) == 4 * H * 2 * H
    assert recurrent_bytes("treelstm", 256) == 16 * 256**2
    size = recurrent_bytes("treefc", H)
    flops = operations("treefc", H, linear)
    assert flops == 2 * 127 * 2 * H * H
    assert bound("treefc", H, linear, {"product": 1e3, "read": {str(size): 1e9}}) == pytest.approx(
        flops / 1e3
    )
    reading = {"product": 1e12, "read": {str(size): 1e3}}
    assert bound("treefc", H, linear, reading) == pytest.approx(7 * size / 1e3)


def test_weights_are_those_of_the_known_cells():
    known = pytest.importorskip("hbtvm.recursive.known")
    for name, model in MODELS.items():
        own, other = weights(name, H), known.example_weights(model.cell, H)
        assert {key: one.shape for key, one in own.items()} == {key: one.shape for key, one in other.items()}


@pytest.mark.parametrize("model", MODELS)
def test_torch_agrees_with_float64(model: str):
    peers = pytest.importorskip("benchmarks.recursive.torch_peers", exc_type=ImportError)
    job = Job("", model, H, 3, 1)
    expected = reference.states(model, H, job.linear)
    made = {"node": peers.node(job), "level": peers.level(job)}
    if "layer" in PEERS and model in PEERS["layer"].models:
        made["layer"] = peers.layer(job)
    for name, ready in made.items():
        assert reference.difference(np.asarray(ready.states()), expected) < 1e-6, name
        roots = np.asarray(ready.call())
        assert reference.difference(roots, expected[job.linear.roots]) < 1e-6, name


@pytest.mark.parametrize("model", PEERS["onnx"].models)
def test_onnx_runtime_agrees_with_float64(model: str):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    job = Job("onnx", model, H, 3, 1)
    ready = PEERS["onnx"].make()(job)
    expected = reference.states(model, H, job.linear)
    assert reference.difference(ready.states(), expected) < 1e-6
    assert reference.difference(ready.call(), expected[job.linear.roots]) < 1e-6


def test_differences_that_are_no_numbers_count():
    expected = np.array([[1.0, 2.0]])
    assert reference.difference(expected + 2e-6, expected) == pytest.approx(1e-6)
    assert reference.difference(np.array([[1.0, np.nan]]), expected) == float("inf")
    assert reference.difference(expected[:, :1], expected) == float("inf")


def test_a_race_checks_states_first(tmp_path: Path):
    pytest.importorskip("torch")
    jobs = {name: Job(name, "treegru", H, 2, 1) for name in ("level", "layer", "hbtvm")}
    with open(tmp_path / "log", "w") as log:
        settings = Settings(dict.fromkeys(PEERS, sys.executable), False, None, 3, 0.003, 60.0, log)
        figures = measure.race(jobs, {"hbtvm": {"failed": "refused"}}, settings, print)
        assert figures["layer"] == {"failed": UNFIT}
        assert figures["hbtvm"] == {"failed": "refused"}
        assert figures["level"]["difference"] < 1e-6
        assert 0 < figures["level"]["seconds"] < 1
        assert 0 < figures["level"]["memory"] < 1e9
        wrong = np.zeros((jobs["level"].linear.nodes, H))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference, "states", lambda *_: wrong + 1)
            off = measure.race({"level": jobs["level"]}, {}, settings, print)
    assert "its states are" in off["level"]["failed"] and "seconds" not in off["level"]


def test_every_study_is_of_known_models_and_peers():
    assert {*studies.ABLATION_MODELS, *studies.HIDDEN_MODELS, *studies.UNROLLING_MODELS} <= {*MODELS}
    # No node of trees and sequences has several parents.
    assert {MODELS[name].kind for name in studies.UNROLLING_MODELS} == {"parse", "chain"}
    assert {*studies.HIDDEN_PEERS} <= {*PEERS}
    assert {*OTHERS, "hbtvm"} == {*PEERS}
    kinds = {model.kind for model in MODELS.values()}
    assert {key.split("/")[0] for key in studies.PAPER_LINEARISE} <= kinds


def test_configurations_of_the_ablation_are_in_the_space():
    recursive = pytest.importorskip("hbtvm.schedules.cpu.recursive")
    names = {knob.name for knob in recursive.space({**WORKLOAD, "threads": 2}, TARGET).knobs}
    assert all({*config} <= names for _, config in (*studies.STEPS, *studies.UNROLLING))


WORKLOAD = {
    "rows": 10,
    "nodes": 39,
    "levels": 10,
    "threads": 1,
    "table": True,
    "first": True,
    "same": True,
    "moved": True,
    "products": [[512, 512, 1]],
}
TARGET = {"kind": "llvm", "vector_bits": 512, "mcpu": "skylake-avx512"}


def filled(path: Path) -> Results:
    """Results of TreeLSTM, MV-RNN and RNN cells, two threads among them."""
    made = Results(path)
    configs = [{"rows": 1, "tile": 2}, {"rows": 10, "tile": 8}]
    own = {"hbtvm": {"seconds": 1e-3, "memory": 2e6, "difference": 1e-7, "configs": configs}}
    told = {
        "peers": {
            "node": {"seconds": 8e-3, "memory": 1e6},
            "level": {"seconds": 3e-3, "memory": 3e6},
            "layer": {"failed": UNFIT},
            "dgl": {"failed": "load: ImportError: no library"},
            **own,
        },
        "bound": 8e-4,
        "operations": 2e7,
        "levels": 10,
        "trials": 0,
    }
    slower = {**told, "peers": {**told["peers"], "hbtvm": {"seconds": 2e-3}}}
    for cell, one in (
        (Cell("treelstm", 256, 10, 1), slower),
        (Cell("treelstm", 256, 10, 2), told),
        (Cell("treelstm", 64, 10, 1), told),
        (Cell("treelstm", 128, 10, 1), told),
        (Cell("mvrnn", 64, 1, 1), told),
        (Cell("rnn", 512, 1, 1), {**told, "peers": own}),
    ):
        made.add(made.cells, cell, one)
    steps = {name: {"seconds": 5e-3 / (1 + at)} for at, (name, _) in enumerate(studies.STEPS)}
    made.add(made.ablation, Cell("treelstm", 256, 10, 1), {**told, "peers": steps})
    both = {name: {"seconds": 1e-3 * (4 + at)} for at, (name, _) in enumerate(studies.UNROLLING)}
    made.add(made.unrolling, Cell("lstm", 256, 10, 2), {**told, "peers": both})
    made.linearise["parse/10"] = {"seconds": 2e-6, "nodes": 380}
    made.limits["1"] = {"product": 150e9, "read": {str(1 << 20): 80e9}}
    made.versions["node"] = {"torch": "2.13"}
    made.write()
    return made


def test_report_tells_goals_times_and_failures(tmp_path: Path):
    text = report.markdown(filled(tmp_path / "results.json"))
    assert "at least 2.5x | 1.50x   | TreeLSTM H=256, batch 10, 1 thread" in text
    assert "| two threads over one, batch 10" in text and "2.00x" in text
    assert "| linearisation, part of the paper's time" in text and "0.21x" in text
    assert "**3**" in text  # the fastest peer
    assert "fails" in text and "DGL: load: ImportError: no library" in text
    assert UNFIT not in text
    assert "## Other hidden sizes" in text and "## Memory" in text and "+ tails" in text
    chosen = " ".join(text.partition("## What hbtvm chose")[2].split())
    assert "| TreeLSTM H=256, batch 10, 2 threads | tile 8 |" in chosen
    assert "| MV-RNN H=64, batch 1, 1 thread | tile 2 |" in chosen
    assert "80" in text.partition("## Limits")[2]
    unrolling = " ".join(text.partition("## Recursive unrolling")[2].split())
    assert "| LSTM | 0.80x | 256 | 10 | 2 | 4 | 5 |" in unrolling


def test_ratios_need_both_times(tmp_path: Path):
    cells = filled(tmp_path / "results.json").cells
    cell = cells[Cell("treelstm", 256, 10, 2)]
    assert report.best_peer(cell) == (3e-3, "level")
    assert report.over(cell) == pytest.approx(3)
    assert report.over(cell, "node") == pytest.approx(8)
    assert report.over(cell, "dgl") is None
    assert report.of_bound(cell) == pytest.approx(1.25)
    assert report.over(cells[Cell("rnn", 512, 1, 1)]) is None
    assert dict(report.speedups(cells)) == {Cell("treelstm", 256, 10, 2): pytest.approx(2)}


def test_results_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "results.json"
    made = filled(path)
    again = Results(path)
    assert again.cells == made.cells and again.ablation == made.ablation
    assert again.unrolling == made.unrolling
    assert again.linearise == made.linearise and again.limits == made.limits
    assert all(Cell.from_key(one.key) == one for one in made.cells)
    with pytest.raises(ValueError, match="another machine"):
        Results(path, "x86-64-v3")
    monkeypatch.setattr(results, "machine", lambda: {"cpu": "another"})
    with pytest.raises(ValueError, match="another machine"):
        Results(path)


def test_pictures_are_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    drawn = plot.plots(filled(tmp_path / "results.json"), tmp_path)
    names = {"recursive", *(f"recursive-{one}" for one in ("hidden", "ablation", "unrolling", "memory"))}
    assert {one.name for one in drawn} == {f"{name}.svg" for name in names}
    assert "DGL" not in (tmp_path / "recursive.svg").read_text()
    assert "TreeLSTM" in (tmp_path / "recursive-hidden.svg").read_text()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_limits_and_the_linearizer_are_measured():
    pytest.importorskip("torch")
    from benchmarks.recursive.limits import measured

    found = measured(1, [1 << 16], seconds=0.002)
    assert found["product"] > 1e8 and 1e8 < found["read"][str(1 << 16)] < 1e13
    pytest.importorskip("hbtvm.runtime.recursive.binding")
    from benchmarks.recursive.hbtvm_peer import linearise

    assert 0 < linearise(Job("hbtvm", "treelstm", H, 2, 1), 10) < 1


@pytest.mark.parametrize("model", MODELS)
def test_structures_as_hbtvm_takes_them(model: str):
    from benchmarks.recursive.hbtvm_peer import structures

    job = Job("hbtvm", model, H, 3, 1)
    given = structures(job)
    assert len(given) == 3 and given.starts[-1] == len(given.first) - 1 == job.linear.nodes
    at = np.argsort(job.linear.order)
    for node in range(job.linear.nodes):
        own = given.child[given.first[node] : given.first[node + 1]]
        there = job.linear.child[at[node]]
        assert at[own].tolist() == there[there >= 0].tolist()
        word = given.inputs["word"][node]
        assert word == job.batch.words[node] or (word == -1 and len(own))


@pytest.mark.parametrize("model", MODELS)
def test_hbtvm_is_given_the_same_models(model: str):
    pytest.importorskip("hbtvm.recursive.known")
    states = pytest.importorskip("hbtvm.recursive.reference").states
    from benchmarks.recursive import hbtvm_peer

    job = Job("hbtvm", model, H, 3, 1)
    made = hbtvm_peer.model(job)
    assert made.readout.state == MODELS[model].states[0]
    found = states(made.cell, hbtvm_peer.structures(job))[made.readout.state][job.linear.order]
    np.testing.assert_allclose(found, reference.states(model, H, job.linear), rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(
    "recursi" not in Path(hbtvm.api.__file__).read_text(), reason="compile takes no recursive models"
)
def test_hbtvm_agrees_with_float64(tmp_path: Path):
    from benchmarks.recursive import hbtvm_peer

    job = Job("hbtvm", "treelstm", H, 10, 1, str(tmp_path / "model.tar"))
    forced = dataclasses.replace(job, config=dict(studies.STEPS[0][1]))
    for one in (job, forced):
        configs = hbtvm_peer.convert(one)
        assert {config["rows"] for config in configs} == {*hbtvm_peer.SIZES}
        assert all(config["tile"] == one.config.get("tile", config["tile"]) for config in configs)
        ready = hbtvm_peer.ready(one)
        expected = reference.states(job.model, H, job.linear)
        assert reference.difference(np.asarray(ready.states()), expected) < 1e-5
        assert reference.difference(np.asarray(ready.call()), expected[job.linear.roots]) < 1e-5
