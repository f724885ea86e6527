"""The benchmark of operators: its cases, its reckoning and its report."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.operators import report
from benchmarks.operators.__main__ import compare
from benchmarks.operators.cases import FAMILIES, cases
from benchmarks.operators.limits import distances, moved, product
from benchmarks.operators.peers import PEERS
from benchmarks.pipelines.measure import Race, time_in_turns
from benchmarks.pipelines.peers import Job

SAME = {"difference": 1e-7, "off": 0.0, "far": 0.0}
OTHER = {"difference": 0.5, "off": 0.02, "far": 0.005}


def figure(seconds: float, agrees: Any = SAME) -> dict[str, Any]:
    return {"seconds": seconds, "agrees": agrees}


CELL = {
    "sklearn": {"arrays": figure(8e-3)},
    "onnxruntime": {"arrays": figure(1e-4, OTHER)},
    "hummingbird": {"failed": "load: no converter"},
    "onedal": {"arrays": figure(4e-3, OTHER)},
    "hbtvm": {"arrays": figure(2e-3), "arrow": figure(1e-3)},
}


def test_cases_are_of_known_families_and_have_limits():
    found = cases()
    assert {one.family for one in found.values()} == set(FAMILIES)
    assert all(one.title == title and one.limit.seconds > 0 for title, one in found.items())
    assert all("/" not in title for title in found)


@pytest.mark.parametrize("title", ["Ridge", "OneHotEncoder, strings, dense", "LabelEncoder, strings"])
def test_cases_compute_their_rows(title: str):
    case = cases()[title]
    model, rows = case.fit("float32"), case.rows(7, "float32")
    assert len(getattr(model, case.method)(rows)) == 7
    assert rows.dtype == (object if "strings" in title else np.float32)


def test_limits_are_bytes_or_operations():
    assert moved(20, 20).seconds == pytest.approx(160 / 20e9)
    assert product(20, 3).formula == "4·20 + 4·3 B; 2·20·3 op"
    assert distances(20, 1_000, 2, 12, "for exp").seconds == pytest.approx(52_000 / 152e9)


def test_answers_are_compared_with_their_size():
    expected = np.array([[1.0, 1e-9], [2.0, np.nan]])
    assert compare(expected, expected) == {"difference": 0.0, "off": 0.0, "far": 0.0}
    assert compare(expected + 2e-5, expected)["off"] == 0.0
    assert compare(np.nan_to_num(expected), expected)["off"] == 0.5
    assert compare(expected[:, :1], expected)["off"] == 1.0
    words = np.array([["a"], ["b"]], object)
    assert compare(words[::-1], words)["difference"] == 1.0


def test_only_right_answers_are_raced():
    assert report.ratio(CELL) == pytest.approx(4)  # oneDAL fits its own models, ONNX Runtime does not
    assert report.best_peer(CELL) == (4e-3, "onedal")
    wrong = {**CELL, "hbtvm": {"arrays": figure(2e-3, {**SAME, "difference": 2e-5})}}
    assert report.ratio(wrong) is None
    assert report.ratio({**CELL, "hbtvm": {"failed": "is not supported."}}) is None


def test_reports_tell_refusals_skipped_calls_and_means():
    refused = {**CELL, "hbtvm": {"failed": "sklearn's PCA is not supported."}}
    skipped = {**CELL, "sklearn": {"arrays": {"skipped": 12.0}}}
    cells = {
        "Ridge/float32/1/1": CELL,
        "Lasso/float32/1/1": skipped,
        "PCA, 10/float32/1/1": refused,
    }
    text = report.markdown({"cells": cells, "versions": {"sklearn": {"scikit-learn": "1"}}})
    assert "- PCA, 10: refused: sklearn's PCA is not supported." in text
    assert "(12 s)" in text and "100 ≠" in text and "**4e+03**" in text
    assert "4.00x (2 of 3)" in text


def test_peers_load_what_is_fitted(tmp_path: Path):
    case = cases()["Ridge"]
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(case.fit("float32")))
    job = Job("sklearn", str(path), "", case.method, 1)
    way = PEERS["sklearn"](job, case.rows(8, "float32"))["arrays"]
    assert way.call(way.prepare(case.rows(3, "float32"))).shape == (3,)


class FakeProcess:
    """A peer whose call takes a millisecond for a thousand rows."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, do: str, limit: float = 0.0, **request: Any) -> Any:
        self.asked.append(do)
        if do == "outputs":
            np.save(request["to"], np.ones((2, 1)))
        return request["rows"] * 1e-6


def test_calls_that_would_take_too_long_are_left_out(tmp_path: Path):
    process = FakeProcess()
    race = Race({"sklearn": process}, {"sklearn": ["arrays"]}, {"hbtvm": "refused"})  # type: ignore[dict-item]
    first = time_in_turns(race, 1_000, tmp_path, compare, seconds=0.01, most=0.5)
    assert first["sklearn"]["arrays"]["seconds"] == pytest.approx(1e-3)
    assert first["hbtvm"] == {"failed": "refused"}
    process.asked.clear()
    second = time_in_turns(race, 10**6, tmp_path, compare, seconds=0.01, most=0.5, before=(1_000, first))
    assert second["sklearn"]["arrays"] == {"skipped": pytest.approx(1.0)} and not process.asked
