"""Models of several kernels on an OpenCL device, columns between them on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.runtime.model import Model
from hbtvm.runtime.opencl import driver, execution
from hbtvm.runtime.package.file import from_bytes, to_bytes
from tests.cuda.test_cuda_stages import MODELS, NEW, X, fitted, numbers, same

pytestmark = [pytest.mark.usefixtures("opencl", "shared_workers"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_the_librarys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = fitted(name)
    data = to_bytes(hbtvm.compile(library, target={"kind": "opencl"}, batch_sizes=(40,)).package)
    model = Model(from_bytes(data))
    assert model.package.stages and model.device == "opencl:0"
    method = getattr(library, "predict_proba", library.predict)

    def check(model: Model) -> None:
        for rows in (NEW, NEW.astype(np.float32)):
            for n in (1, 33, len(NEW)):
                same(np.asarray(numbers(model, rows[:n]), np.float64), method(rows[:n]).astype(np.float64))
        same(model.predict(NEW), library.predict(NEW))

    check(model)
    # Several chunks, and parts of buffers that begin far apart.
    monkeypatch.setattr(execution, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(driver.device(), "alignment", 4096)
    check(Model(from_bytes(data)))


def test_a_search_tunes_every_stage(tmp_path: Path) -> None:
    library: Any = MODELS["boosted"]()
    options: dict[str, Any] = {"target": "opencl", "batch_sizes": [40], "log": tmp_path / "log.jsonl"}
    model = hbtvm.tune(library, trials=4, **options)
    families = {kernel.strategy for kernel in model.package.stages[0].kernels}
    assert families == {"fused"} and "fused" not in {kernel.strategy for kernel in model.package.kernels}
    same(model.predict_proba(X), library.predict_proba(X))
