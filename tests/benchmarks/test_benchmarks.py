"""The benchmarks' own reckoning: a figure that is reckoned wrong is worse than none."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth, growth_plot
from benchmarks.peers import plot, report, train
from benchmarks.peers.cells import QUICK, Cell, grid
from benchmarks.peers.data import SETS, TEST_ROWS, make
from benchmarks.peers.libraries import LIBRARIES, Job
from benchmarks.peers.measure import compare
from benchmarks.peers.processes import PeerError, Process
from benchmarks.peers.results import Results
from benchmarks.peers.worker import Worker

CELL = Cell("lightgbm", "higgs", 100, 2)
MODEL = {"trees": 5, "leaves": 4.0, "features": 3, "task": "binary", "classes": 2, "train_seconds": 1.0}


def figure(seconds: float, **more: float) -> dict[str, object]:
    return {"seconds": seconds, "memory": 1e6, "convert_seconds": 1.0, **more}


def test_cells_travel_by_their_keys():
    cells = [cell for group in grid(QUICK, (1, 100), (1, 2)).values() for cell in group]
    assert len(cells) == 4 * len(QUICK) == len(set(cells))
    assert [Cell.from_key(cell.key) for cell in cells] == cells


def test_comparison_finds_rows_that_are_off():
    expected = np.array([[0.5], [0.25], [0.0], [1.0]])
    assert compare(expected * (1 + 1e-6), expected) == {
        "difference": pytest.approx(1e-6, rel=1e-3),
        "rows_off": 0.0,
    }
    assert compare(expected + np.array([[0], [0.01], [0], [0]]), expected)["rows_off"] == 0.25
    assert compare(np.full((4, 1), np.nan), expected) == {"difference": np.inf, "rows_off": 1.0}
    assert compare(np.zeros((4, 3)), expected)["rows_off"] == 1.0


def test_comparison_takes_either_form_of_two_classes():
    one = np.array([[0.2], [0.9]])
    both = np.hstack([1 - one, one])
    assert compare(both, one)["difference"] == compare(one, both)["difference"] == 0.0


def test_a_peer_that_computes_another_model_is_not_raced():
    figures = {"hbtvm": figure(1.0), "native": figure(9.0), "onnx": figure(2.0, rows_off=0.5)}
    assert report.best_peer(figures) == "native"
    figures["onnx"]["rows_off"] = 0.001
    assert report.best_peer(figures) == "onnx"
    assert report.ratio(figures, "onnx") == 2.0
    assert report.ratio({**figures, "hbtvm": {"failed": "why"}}, "onnx") is None


def test_an_engine_on_converted_rows_is_not_raced():
    figures = {"hbtvm": figure(1.0), "native": figure(9.0), "engine": figure(2.0)}
    assert report.best_peer(figures) == "native"


def test_results_carry_on_and_are_reported(tmp_path):
    path = tmp_path / "results.json"
    figures = {
        "hbtvm": figure(1e-4, difference=1e-7, rows_off=0.0),
        "native": figure(1e-3),
        "tl2cgen": {"failed": "gave up"},
    }
    results = Results(path)
    assert not results.has(CELL, ["hbtvm"], True)
    results.add(CELL, figures, search=True, versions={"hbtvm": {"hbtvm": "1"}}, model=MODEL)
    again = Results(path)
    assert again.has(CELL, ["hbtvm", "native"], True)
    assert not again.has(CELL, ["hbtvm"], False)
    assert not again.has(CELL, ["hbtvm", "lleaves"], True)
    assert not again.has(CELL, ["hbtvm"], True, "x86-64-v3")
    text = report.markdown(again)
    assert "10.00×" in text
    assert "tl2cgen, LightGBM Higgs: gave up" in text


def test_results_of_other_machines_are_not_mixed(tmp_path):
    path = tmp_path / "results.json"
    Results(path).add(CELL, {}, search=True, versions={}, model=MODEL)
    document = json.loads(path.read_text())
    document["machine"]["cpu"] = "another"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="another machine"):
        Results(path)


@pytest.mark.parametrize("name", ["airline", "covtype", "year"])
def test_data_has_its_shape(name):
    X, y, rows = make(name)
    assert X.shape == (SETS[name].train, SETS[name].features)
    assert rows.shape == (TEST_ROWS, SETS[name].features)
    assert X.dtype == rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert len(y) == len(X)
    if SETS[name].task != "regression":
        assert len(np.unique(y)) == SETS[name].classes


def test_workers_answer_and_report_failures(tmp_path):
    with open(tmp_path / "log", "w") as log:
        process = Process(sys.executable, 1, log)
        try:
            assert "numpy" in process.ask("versions", peer="native", packages=["numpy"])
            with pytest.raises(PeerError, match="KeyError"):
                process.ask("versions", peer="nobody", packages=[])
            assert process.ask("memory") > 1e6
        finally:
            process.close()
        with pytest.raises(PeerError):
            process.ask("memory")


@pytest.mark.parametrize(("library", "model"), [("catboost", "catboost-6"), ("ydf", "ydf")])
def test_an_engine_gets_rows_that_were_converted_before(library, model, tmp_path, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.setattr(train, "TREES", 3)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).astype(np.float32)
    path = tmp_path / f"model.{train._SUFFIX[model]}"
    trees, leaves = train._TRAIN[model](X, (X[:, 0] > X[:, 1]).astype(np.int32), SETS["higgs"], path)
    assert trees == 3
    assert 3 <= leaves <= 3 * 64
    np.save(tmp_path / "rows.npy", X)
    outputs = {}
    for peer in ("hbtvm", "native", "engine"):
        job = Job(peer, model, str(path), "binary", 4, str(tmp_path / "a.tar"), 1, (100,), search=False)
        worker = Worker()
        if peer == "hbtvm":
            worker.convert(dataclasses.asdict(job))
        worker.load(dataclasses.asdict(job), str(tmp_path / "rows.npy"))
        worker.calibrate(100)
        assert worker.time(100, 2) > 0
        assert worker.outputs(100, str(tmp_path / f"{peer}.npy"))[0] == 400
        outputs[peer] = np.load(tmp_path / f"{peer}.npy")
    assert compare(outputs["engine"], outputs["native"])["difference"] == 0
    assert compare(outputs["hbtvm"], outputs["native"])["difference"] < 1e-5


def test_every_peer_has_a_name_for_reports():
    assert set(report.NAMES) == set(LIBRARIES)


def test_growth_flags_what_costs_too_much():
    points = [{"size": 2**i, "rows": 1, "seconds": t} for i, t in enumerate([1.0, 2.1, 4.9])]
    (flag,) = growth.flags("trees", points)
    assert "trees 2 to 4: 2.33" in flag
    # Two doublings in one step may cost 2.2 times each.
    assert not growth.flags("rows", [{"size": 1, "seconds": 1.0}, {"size": 4, "seconds": 4.8}])
    assert growth.flags("threads", [{"size": n, "rows": 1, "seconds": t} for n, t in ((1, 1.0), (2, 1.2))])


def test_growth_measures_an_axis():
    options = argparse.Namespace(quick=True, threads=1, time_budget=None, seconds=0.001)
    growth_sizes = {**growth.SIZES, "depth": [2, 3, 3, 3]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "SIZES", growth_sizes)
        patch.setattr(growth, "TREES", 8)
        points = growth.measure("depth", options)
    assert {point["rows"] for point in points} == set(growth.BATCHES)
    assert all(point["seconds"] > 0 for point in points)


def test_pictures_are_drawn_from_the_reports_that_ship():
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "figures"
    axes = growth_plot.points_of((folder / "growth.md").read_text())
    assert list(axes) == ["trees", "depth", "features", "rows", "threads"]
    assert axes["trees"][0] == {"size": 64, "rows": 1, "seconds": pytest.approx(2.65e-6)}
    assert axes["rows"][-1] == {"size": 10**6, "rows": 10**6, "seconds": pytest.approx(0.437)}
    with pytest.raises(ValueError, match="no table"):
        growth_plot.points_of("# Nothing")
    cells = plot.cells_of((folder / "peers.md").read_text())
    assert len(cells) == 180
    figures = cells[Cell("lightgbm", "fraud", 1, 1)]["peers"]
    assert report.best_peer(figures) == "lleaves"
    assert report.ratio(figures, "lleaves") == pytest.approx(8.422, abs=1e-3)


def test_labels_end_inside_their_frames():
    pytest.importorskip("matplotlib")
    figures = {
        Cell("lightgbm", data, rows, 1): {"peers": {"hbtvm": figure(1e-6), "onnx": figure(1e-6 * times)}}
        for data, times in (("higgs", 700.0), ("year", 1.1), ("fraud", 0.4))
        for rows in (1, 100, 10_000)
    }
    drawn = plot._ratios(figures)
    drawn.draw_without_rendering()
    for axis in drawn.axes:
        frame = axis.get_window_extent()
        assert axis.texts
        assert all(label.get_window_extent().x1 < frame.x1 for label in axis.texts)
        assert all(label.get_window_extent().x0 > frame.x0 for label in axis.texts)


def test_growth_is_a_grid_of_panels(tmp_path):
    pytest.importorskip("matplotlib")
    axes = ("trees", "depth", "features", "rows")
    points = [{"size": n, "rows": 1, "seconds": n * 1e-6} for n in (1, 2, 4)]
    assert growth_plot.plot(dict.fromkeys(axes, points), tmp_path / "g.svg")
    drawn = (tmp_path / "g.svg").read_text()
    width, height = (
        float(re.search(rf'{side}="([0-9.]+)pt"', drawn).group(1)) for side in ("width", "height")
    )
    assert 1 < width / height < 2
    assert all(f">{axis}</text>" in drawn for axis in axes)
