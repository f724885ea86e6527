"""The comparison with nvForest on an emulated driver, with a module in nvForest's place."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import head_models, head_to_head
from benchmarks.gpu.clock import KINDS, Clock
from tests import emulated

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

BEST = ("breadth_first", 4)


def _train(path: Path, cache: Path) -> np.ndarray:
    import xgboost

    from benchmarks.common import higgs_like

    X, y = higgs_like(400, 6, 0)
    xgboost.train({"objective": "binary:logistic", "max_depth": 3}, xgboost.DMatrix(X, y), 5).save_model(path)
    return X


class FakeNvForest(types.ModuleType):
    """As nvForest's module: XGBoost predicts; all but one configuration queue more work than that one."""

    def __init__(self, failing: str = "") -> None:
        super().__init__("nvforest")
        self.failing, self.loaded = failing, []  # type: ignore[var-annotated]

    def load_model(
        self, path: Path, *, model_type: str, device: str, layout: str, precision: str
    ) -> types.SimpleNamespace:
        import xgboost

        assert (model_type, device, precision) == ("xgboost_ubj", "gpu", "single")
        if path.stem == self.failing:
            raise RuntimeError("out of memory")
        self.loaded.append((path.stem, layout))
        booster = xgboost.Booster(model_file=path)

        def predict_proba(X: Any, *, chunk_size: int | None) -> emulated.Array:
            rows = X if isinstance(X, np.ndarray) else X.array
            scores = booster.inplace_predict(rows).reshape(-1, 1)
            for _ in range(0 if (layout, chunk_size) == BEST else 5):
                emulated.later(lambda: scores)
            return emulated.later(lambda: scores)

        return types.SimpleNamespace(predict_proba=predict_proba)


@pytest.fixture
def folder(machine: emulated.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(head_models, "MODELS", {"small": (".ubj", _train, (50, 1))})
    head = tmp_path / "head"
    head_models.write(head, ["small"], tmp_path / "cache")
    for path in sorted(head.glob("small.*")):
        shutil.copyfile(path, head / path.name.replace("small", "other"))
    cells = json.loads((head / "cells.json").read_text())
    assert cells == [["small", 50], ["small", 1]]
    (head / "cells.json").write_text(json.dumps([*cells, ["other", 50], ["other", 1]]))
    # The emulated device runs on one clock: waiting is not longer for more work.
    monkeypatch.setattr(Clock, "seconds", lambda clock, kind, call: clock._queued(call, 1))
    return head


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_each_cell_is_a_line_and_a_peer_that_fails_stops_no_other(
    folder: Path,
    cupy: type[emulated.Cupy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeNvForest(failing="other")
    monkeypatch.setitem(sys.modules, "nvforest", fake)
    out = tmp_path / "lines.jsonl"
    assert head_to_head.main([str(folder), "--rounds", "2", "--out", str(out)]) == 0
    lines = _lines(capsys.readouterr().out)
    assert lines == _lines(out.read_text()) and "gpu" in lines[0]
    assert [(line["model"], line["rows"]) for line in lines[1:]] == [
        (name, rows) for name in ("small", "other") for rows in (50, 1)
    ]
    for line in lines[1:3]:
        assert list(line["times"]) == list(KINDS) and not line["errors"]
        assert len(line["layouts"]) == len(head_to_head.LAYOUTS) * len(head_to_head.CHUNKS)
        assert line["best"] == "breadth_first 4"
        assert set(line["times"]["host"]) == {"hbtvm", "hbtvm raw", "nvForest", "nvForest best"}
        assert line["times"]["queued"]["nvForest best"] < line["times"]["queued"]["nvForest"]
        assert line["agreement"]["nvForest"]["off"] < 1e-5
    for line in lines[3:]:
        assert line["errors"] == {"nvForest": "RuntimeError: out of memory"}
        assert set(line["times"]["waited"]) == {"hbtvm", "hbtvm raw"}
    assert [layout for name, layout in fake.loaded if name == "small"] == list(head_to_head.LAYOUTS)


def test_kernels_are_timed_by_torch_after_all_cells(
    folder: Path, cupy: type[emulated.Cupy], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Profile:
        """As `torch.profiler.profile`: one kernel takes 10 µs altogether, and another event no time."""

        def __init__(self, *, activities: list[str]) -> None:
            assert activities == ["CUDA"]

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None: ...

        def key_averages(self) -> list[Any]:
            Event = types.SimpleNamespace
            return [
                Event(key="k" * 100, self_device_time_total=10.0),
                Event(key="x", self_device_time_total=0),
            ]

    torch, profiler = types.ModuleType("torch"), types.ModuleType("torch.profiler")
    vars(torch).update(cuda=types.SimpleNamespace(synchronize=lambda: None), profiler=profiler)
    vars(profiler).update(ProfilerActivity=types.SimpleNamespace(CUDA="CUDA"), profile=Profile)
    for module in (torch, profiler):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "nvforest", FakeNvForest())
    _, first, second = head_to_head.run(folder, [("small", 50)], 1, 60.0, True)
    assert "layouts" in first and set(second["kernels"]) == set(first["times"]["host"])
    assert second["kernels"]["nvForest best"] == {"k" * 80: pytest.approx(2e-6)}


def test_a_cell_that_fails_and_the_deadline(
    folder: Path,
    cupy: type[emulated.Cupy],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "nvforest", None)  # type: ignore[arg-type]
    (folder / "small.tar").unlink()
    head_to_head.main([str(folder), "--rounds", "1", "--rows", "1"])
    _, failed, measured = _lines(capsys.readouterr().out)
    assert "small.tar" in failed["error"] and "times" in measured and "nvforest" in str(measured["errors"])
    head_to_head.main([str(folder), "--models", "other", "--deadline", "-1"])
    assert _lines(capsys.readouterr().out)[1:] == [{"left": 2}]


def test_a_peer_that_computes_another_model_is_not_timed(
    folder: Path, cupy: type[emulated.Cupy], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvForest()
    load: Callable[..., Any] = fake.load_model
    monkeypatch.setattr(
        fake,
        "load_model",
        lambda path, **given: types.SimpleNamespace(
            predict_proba=lambda X, **how: 1 - load(path, **given).predict_proba(X, **how)
        ),
    )
    monkeypatch.setitem(sys.modules, "nvforest", fake)
    _, line = head_to_head.run(folder, [("small", 50)], 1, 60.0, False)
    assert "of its scores differ" in line["errors"]["nvForest"] and "nvForest" not in line["times"]["host"]


def test_the_most_telling_cells_come_first() -> None:
    found = head_models.cells(["wide", "xgboost", "lightgbm"])
    assert found[0][1] == found[1][1] == 1_000_000 and found[-1] == ("wide", 10_000)


def test_it_takes_neither_the_compiler_nor_the_libraries() -> None:
    program = """
import sys
for name in ("tvm", "xgboost", "lightgbm", "sklearn"):
    sys.modules[name] = None
import benchmarks.gpu.head_to_head
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
