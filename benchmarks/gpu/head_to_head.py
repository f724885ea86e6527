"""hbtvm's packages against nvForest on one GPU: ``python -m benchmarks.gpu.head_to_head FOLDER``.

FOLDER is what `benchmarks.gpu.head_models` writes, on a machine with hbtvm's compiler; here numpy, CuPy and
the peers are enough. Prints a JSON line for each cell (a model and a number of rows) once it is measured:

- ``times``: by kind (`benchmarks.gpu.clock.KINDS`) and name, seconds, medians of interleaved rounds.
  ``hbtvm`` returns predictions, as nvForest does, and ``hbtvm raw`` margins, which the kernel alone computes.
  ``nvForest`` is as it is loaded, ``nvForest best`` with the fastest layout and chunk size for this cell.
- ``layouts``: seconds of a waited call for each layout and chunk size.
- ``agreement``: against hbtvm's predictions, as `benchmarks.gpu.peers.compare` returns it.
- ``errors``: what a peer raised; the other peers and cells go on.

nvForest waits for the device in each call, so its ``queued`` and ``waited`` times are alike. With
`--kernels`, further lines give the time of each kernel as torch's profiler reads it from the device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import hbtvm
from benchmarks.gpu.clock import Calls, Clock, medians
from benchmarks.gpu.peers import compare, import_nvforest, own_calls, require_arrays
from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.model import Model

LAYOUTS = ("depth_first", "breadth_first", "layered")
CHUNKS = (1, 2, 4, 8, 16, 32)
_FORMATS = {".txt": "lightgbm", ".ubj": "xgboost_ubj", ".json": "xgboost_json", ".tl": "treelite_checkpoint"}
_PROFILED = 5


class NvForest:
    """A model as nvForest loads it, once for each layout.

    Parameters
    ----------
    path
        A file of the library that trained the model.
    """

    def __init__(self, path: Path) -> None:
        nvforest = import_nvforest()
        # float32 thresholds and sums, as in hbtvm's kernels; LightGBM's would be float64 by default.
        self._loaded = {
            layout: nvforest.load_model(
                path, model_type=_FORMATS[path.suffix], device="gpu", layout=layout, precision="single"
            )
            for layout in LAYOUTS
        }

    def calls(self, X: np.ndarray, rows: Any, layout: str, chunk: int | None) -> Calls:
        """Return calls for rows on the host and the same rows on the device; `chunk` None: its own choice."""
        import cupy

        loaded = self._loaded[layout]
        predict = getattr(loaded, "predict_proba", None) or loaded.predict
        return Calls(
            lambda: predict(rows, chunk_size=chunk),
            lambda: np.asarray(cupy.asnumpy(predict(X, chunk_size=chunk))),
        )


@dataclass
class Models:
    """The models of a folder, each loaded when it is first asked for."""

    folder: Path
    best: dict[tuple[str, int], str] = field(default_factory=dict)
    """nvForest's fastest configuration by model and number of rows, once it was looked for."""
    _own: dict[str, Model] = field(default_factory=dict)
    _peers: dict[str, NvForest] = field(default_factory=dict)

    def own(self, name: str) -> Model:
        """Return hbtvm's model."""
        if name not in self._own:
            self._own[name] = hbtvm.load(self.folder / f"{name}.tar", device="cuda:0")
        return self._own[name]

    def peer(self, name: str) -> NvForest:
        """Return nvForest's model."""
        if name not in self._peers:
            path = next(path for end in _FORMATS if (path := self.folder / f"{name}{end}").exists())
            self._peers[name] = NvForest(path)
        return self._peers[name]

    def rows(self, name: str, number: int) -> np.ndarray:
        """Return rows, (number, features) float32, the folder's over and over."""
        pool = np.load(self.folder / f"{name}.rows.npy").astype(np.float32)
        return np.ascontiguousarray(np.resize(pool, (number, pool.shape[1])))


def contenders(
    models: Models, name: str, X: np.ndarray, clock: Clock
) -> tuple[dict[str, Calls], dict[str, Any]]:
    """Return what is timed for a cell, and what its line says besides times."""
    own = models.own(name)
    calls = {"hbtvm": own_calls(own, X, "predictions"), "hbtvm raw": own_calls(own, X, "margins")}
    want = calls["hbtvm"].host()
    facts: dict[str, Any] = {"agreement": {}, "errors": {}}
    try:
        import cupy

        peer, rows = models.peer(name), cupy.asarray(X)
        plain = peer.calls(X, rows, LAYOUTS[0], None)
        facts["agreement"]["nvForest"] = compare(plain.host(), want)
        calls["nvForest"] = plain
        configurations = {f"{layout} {chunk}": (layout, chunk) for layout in LAYOUTS for chunk in CHUNKS}
        if (name, len(X)) not in models.best:
            facts["layouts"] = {}
            for title, configuration in configurations.items():
                one = peer.calls(X, rows, *configuration)
                one.device()
                facts["layouts"][title] = clock.seconds("waited", one.device)
            models.best[name, len(X)] = min(facts["layouts"], key=facts["layouts"].get)
        best = models.best[name, len(X)]
        fastest = peer.calls(X, rows, *configurations[best])
        facts["agreement"]["nvForest best"] = compare(fastest.host(), want)
        calls["nvForest best"], facts["best"] = fastest, best
    except Exception as error:  # whatever a peer that does not fit this machine raises
        facts["errors"]["nvForest"] = _text(error)
    return calls, facts


def measure(models: Models, name: str, rows: int, clock: Clock, rounds: int) -> dict[str, Any]:
    """Return a cell's line."""
    X = models.rows(name, rows)
    calls, facts = contenders(models, name, X, clock)
    for one in calls.values():
        one.device(), one.host()
    return {"features": X.shape[1], "times": medians(clock, calls, rounds), **facts}


def kernels(models: Models, name: str, rows: int, clock: Clock) -> dict[str, Any]:
    """Return the device's seconds in each kernel and copy of a call on rows that are there."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    calls, facts = contenders(models, name, models.rows(name, rows), clock)
    found: dict[str, dict[str, float]] = {}
    for title, one in calls.items():
        one.device()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(_PROFILED):
                one.device()
            torch.cuda.synchronize()
        found[title] = {
            event.key[:80]: event.self_device_time_total / _PROFILED / 1e6
            for event in seen.key_averages()
            if event.self_device_time_total
        }
    return {"kernels": found, "errors": facts["errors"]}


def run(
    folder: Path, cells: list[tuple[str, int]], rounds: int, deadline: float, profiled: bool
) -> Iterator[dict[str, Any]]:
    """Measure cells until the deadline, in seconds from now; yield their lines."""
    stop = time.monotonic() + deadline
    gpu = driver.gpu()
    models, clock = Models(folder), Clock(gpu)
    yield {"gpu": gpu.name, "driver": gpu.driver.version(), "hbtvm": hbtvm.__version__}
    Work = Callable[[str, int], dict[str, Any]]
    passes: list[Work] = [lambda name, rows: measure(models, name, rows, clock, rounds)]
    passes += [lambda name, rows: kernels(models, name, rows, clock)] if profiled else []
    todo = [(work, name, rows) for work in passes for name, rows in cells]
    for place, (work, name, rows) in enumerate(todo):
        start = time.monotonic()
        if start > stop:
            yield {"left": len(todo) - place}
            return
        try:
            line = work(name, rows)
        except Exception as error:  # the other cells go on
            line = {"error": _text(error)}
        yield {"model": name, "rows": rows, **line, "took": round(time.monotonic() - start, 2)}


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"


def _write(line: dict[str, Any], file: TextIO | None) -> None:
    text = json.dumps(line)
    print(text, flush=True)
    if file:
        print(text, file=file, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.head_to_head", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", help="only these (default: all)")
    parser.add_argument("--rows", nargs="+", type=int, help="only these numbers of rows (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--deadline", type=float, default=300.0, help="start no cell after so many seconds")
    parser.add_argument("--kernels", action="store_true", help="then time single kernels, which takes torch")
    parser.add_argument("--out", type=Path, help="a file that the lines are added to as well")
    given = parser.parse_args(arguments)
    try:
        driver.gpu()
        require_arrays()
    except (DeviceError, ImportError) as error:
        print(f"benchmarks.gpu.head_to_head: {error}")
        return 2
    cells = [
        (name, rows)
        for name, rows in json.loads((given.folder / "cells.json").read_text())
        if (not given.models or name in given.models) and (not given.rows or rows in given.rows)
    ]
    file = given.out.open("a") if given.out else None
    for line in run(given.folder, cells, given.rounds, given.deadline, given.kernels):
        _write(line, file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
