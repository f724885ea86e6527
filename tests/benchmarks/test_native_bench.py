"""The benchmarks of calls from C, of calls' overhead and of installations: what needs no peers."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import hbtvm
from benchmarks import install
from benchmarks.native import programs
from benchmarks.native.interfaces import INTERFACES, Order
from benchmarks.native.programs import Program, compiled
from benchmarks.overhead.__main__ import medians, one_row_kernel
from benchmarks.overhead.loops import KernelLoop, hand_off_seconds
from benchmarks.peers.artifacts import Artifacts
from benchmarks.peers.libraries import LIBRARIES, Job
from benchmarks.peers.measure import Settings, take_turns
from benchmarks.peers.processes import PeerError

JOB = Job("lleaves", "lightgbm", "models/lightgbm-higgs-1a2b/model.txt", "binary", 4, "", 1, (1,))

DOUBLING = """
#include <stdlib.h>
#include <string.h>
#include "peer.h"

static double results[4000];

const char *peer_open(void) { return strcmp(option("model"), "missing") == 0 ? "no \\"model\\"" : NULL; }
const char *peer_way(int way, int64_t n) { return way == 0 && n > 0 ? "doubled" : NULL; }
int peer_takes_double(void) { return (int)option_number("double"); }
int64_t peer_outputs(void) { return 2; }
const char *peer_prepare(int way, int64_t n) { (void)way; return n <= 2000 ? NULL : "too many"; }

const char *peer_predict(int way, const void *rows, int64_t n) {
  (void)way;
  for (int64_t i = 0; i < 2 * n; i++)
    results[i] = 2 * (peer_takes_double() ? ((const double *)rows)[i] : ((const float *)rows)[i]);
  return NULL;
}

double peer_result(int64_t i) { return results[i]; }
"""
"""A library whose model doubles rows of two columns."""


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of `DOUBLING`."""
    folder = tmp_path_factory.mktemp("program")
    for file in ("driver.c", "options.h", "peer.h"):
        shutil.copy(Path(programs.__file__).parent / file, folder)
    (folder / "doubling.c").write_text(DOUBLING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "_FOLDER", folder)
        return compiled("doubling", folder / "program", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(params=[0, 1], ids=["float", "double"])
def started(doubling: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    """Return it in a process, with 500 rows."""
    np.arange(1000, dtype=np.float32).tofile(tmp_path / "rows.bin")
    arguments = {"rows": tmp_path / "rows.bin", "features": 2, "model": "there", "double": request.param}
    with open(tmp_path / "log", "w") as log:
        process = Program(doubling, arguments, 1, log)
        yield process
        process.close()


def test_programs_answer_as_other_workers_do(started: Program, tmp_path: Path) -> None:
    assert started.ask("open")["seconds"] >= 0
    found = started.ask("calibrate", rows=100)
    assert found["way"] == "doubled" and 0 < found["seconds"] < 1
    assert 0 < started.ask("time", rows=100, calls=10) < 1
    assert started.ask("outputs", rows=100, to=str(tmp_path / "outputs.npy")) == [500, 2]
    expected = 2.0 * np.arange(1000).reshape(500, 2)
    np.testing.assert_array_equal(np.load(tmp_path / "outputs.npy"), expected)
    assert started.ask("memory") > 100_000
    for rows in (1, 501, 0):
        with pytest.raises(PeerError, match="calibrate first" if rows == 1 else "not so many rows"):
            started.ask("time", rows=rows, calls=1)


def test_programs_take_turns_and_are_compared(started: Program, tmp_path: Path) -> None:
    started.ask("open")
    with open(tmp_path / "settings.log", "w") as log:
        settings = Settings({}, False, None, 3, 0.01, 10.0, log)
        wrong = 2.0 * np.arange(1000).reshape(500, 2)
        wrong[0] += 1
        figures = take_turns(10, {"native": started}, settings, tmp_path, wrong[:320])
    assert figures["native"]["rows_off"] == pytest.approx(1 / 320)
    assert figures["native"]["seconds"] > 0 and figures["native"]["way"] == "doubled"


def test_a_program_says_why_it_has_no_model(doubling: Path, tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        process = Program(doubling, {"model": "missing", "double": 0}, 1, log)
        with pytest.raises(PeerError, match="open: no  model "):
            process.ask("open")
        with pytest.raises(PeerError, match="not so many rows"):
            process.ask("calibrate", rows=1)
        process.close()


def test_a_compiler_that_refuses_is_heard(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"compile: .*error"):
        compiled("hbtvm", tmp_path / "program")


def test_interfaces_are_those_of_peers() -> None:
    assert set(INTERFACES) <= set(LIBRARIES)
    for name, interface in INTERFACES.items():
        assert set(interface.models) <= set(LIBRARIES[name].models)
        assert interface.converts == (LIBRARIES[name].convert is not None)
    order = Order(dataclasses.replace(JOB, task="classes"), 7, "python", Path("."))
    assert order.outputs(both=True) == order.outputs(both=False) == 7
    order = Order(JOB, 2, "python", Path("."))
    assert (order.outputs(both=True), order.outputs(both=False)) == (2, 1)


def test_the_exported_library_is_called(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, (X[:, 0] > 0).astype(int))
    model = hbtvm.compile(forest, batch_sizes=1, threads=1)
    artifact, rows = tmp_path / "hbtvm-1.tar", tmp_path / "rows.bin"
    model.save(artifact)
    X.tofile(rows)
    job = dataclasses.replace(JOB, peer="hbtvm", model="forest", artifact=str(artifact))
    program, arguments = INTERFACES["hbtvm"].make(Order(job, 2, sys.executable, tmp_path))
    with open(tmp_path / "log", "w") as log:
        process = Program(program, {**arguments, "rows": rows, "features": 4, "threads": 1}, 1, log)
        process.ask("open")
        process.ask("calibrate", rows=100)
        process.ask("outputs", rows=100, to=str(tmp_path / "outputs.npy"))
        process.close()
    np.testing.assert_array_equal(np.load(tmp_path / "outputs.npy"), model.predict_proba(X))


def test_exported_cpp_of_catboost_is_called(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    model = catboost.CatBoostClassifier(iterations=5, verbose=False, allow_writing_files=False)
    model.fit(X, (X[:, 0] > X[:, 1]).astype(int))
    model.save_model(tmp_path / "model.cbm")
    X.tofile(tmp_path / "rows.bin")
    job = dataclasses.replace(JOB, peer="native", model="catboost-6", path=str(tmp_path / "model.cbm"))
    program, arguments = INTERFACES["native"].make(Order(job, 2, sys.executable, tmp_path))
    arguments = {**arguments, "rows": tmp_path / "rows.bin", "features": 4, "threads": 1}
    with open(tmp_path / "log", "w") as log:
        process = Program(program, arguments, 1, log)
        process.ask("open")
        process.ask("calibrate", rows=100)
        process.ask("outputs", rows=100, to=str(tmp_path / "outputs.npy"))
        process.close()
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy")[:, 0], model.predict_proba(X)[:, 1])


def test_artifacts_are_kept_by_model_and_version(tmp_path: Path) -> None:
    job = dataclasses.replace(JOB, artifact=str(tmp_path / "made.bin"))
    kept = Artifacts(tmp_path / "kept", {"lleaves": {"lleaves": "1"}})
    assert kept.find(job, 10.0) is None
    (tmp_path / "made.bin").write_bytes(b"code")
    kept.keep(job, {"convert_seconds": 3.0}, 10.0)
    again = dataclasses.replace(job, artifact=str(tmp_path / "again.bin"))
    assert kept.find(again, 10.0) == {"convert_seconds": 3.0}
    assert (tmp_path / "again.bin").read_bytes() == b"code"
    assert kept.find(dataclasses.replace(job, path="models/lightgbm-higgs-ffff/model.txt"), 10.0) is None
    assert kept.find(dataclasses.replace(job, dtype="float64"), 10.0) is None
    assert Artifacts(tmp_path / "kept", {"lleaves": {"lleaves": "2"}}).find(job, 10.0) is None


def test_what_failed_is_tried_again_with_more_time(tmp_path: Path) -> None:
    kept = Artifacts(tmp_path, {})
    kept.keep(JOB, {"failed": "gave up after 10 s"}, 10.0)
    assert kept.find(JOB, 10.0) == {"failed": "gave up after 10 s"}
    assert kept.find(JOB, 20.0) is None


def test_a_kernel_alone_computes_what_the_model_does() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5)).astype(np.float32)
    linear = LogisticRegression().fit(X, X[:, 0] > 0)
    package = hbtvm.compile(linear, batch_sizes=1, threads=1).package
    loop = KernelLoop(one_row_kernel(package), X)
    expected = hbtvm.Model.from_package(package, 1).predict(X, output="decision")
    for calls in (1, 7, 51):  # the last call is of the row in which they end
        assert loop.seconds(calls) > 0
        score = loop.scores.reshape(-1)[0] / package.forest["divisor"] + package.forest["base_score"][0]
        np.testing.assert_allclose(score, expected[(calls - 1) % 50], rtol=1e-5)


def test_work_of_the_pool_takes_as_long_as_it_is() -> None:
    assert -1e-6 < hand_off_seconds(1, 1e-4, 0.0, 20) < 1.0
    assert hand_off_seconds(2, 1e-5, 1e-4, 5) > -1e-6


def test_medians_are_of_calls() -> None:
    calls: list[int] = []

    def timed(count: int) -> float:
        calls.append(count)
        return 1e-3 if len(calls) % 2 else 3e-3

    assert medians({"one": timed}, 0.15)["one"] == 1e-3
    assert set(calls[2:]) == {3}  # 0.15 s in 15 turns, 3 ms a call by the second look


def test_sizes_leave_the_installer_out() -> None:
    text = install.size_table({"pip": [10**7, 0], "numpy": [40 * 10**6, 10**7], "hbtvm": [10**6, 0]})
    assert "pip" not in text and "| 51.0 (goal: under 60, reached) |" in text
    assert text.index("numpy") < text.index("hbtvm")
    text = install.time_table({"numpy": 0.1, "load": 0.25, "first": 1e-3, "second": 1e-5, "tvm_ffi": 0.0}, 10)
    assert "250" in text and "missed" in text and "tvm_ffi" not in text
