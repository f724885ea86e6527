"""What steps do, each in a process of its own: functions by kind.

Each takes the bundle's folder and the step's fields, and returns a sentence and figures. An `AssertionError`
says what differs. `LeftOut` says what this machine lacks.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.runtime.cuda.driver import gpu
from hbtvm.runtime.cuda.health import Health
from hbtvm.runtime.cuda.model import DeviceModel
from hbtvm.runtime.cuda.timing import Resident, time_copies
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package import file as package_file
from hbtvm.runtime.recursive.structures import Structures

Result = tuple[str, dict[str, Any]]

SANITIZER = "compute-sanitizer"
_FOUND = 86  # exit status of the sanitizer if it reports an error


class LeftOut(Exception):
    """This machine lacks what the step needs."""


def device(folder: Path) -> Result:
    """Describe the device and time its copies."""
    here = gpu()
    figures: dict[str, Any] = {
        "gpu": here.name,
        "arch": here.arch,
        "multiprocessors": here.multiprocessors,
        "driver_cuda": here.driver.version(),
        "clock_hz": here.clock,
        "shared_bytes": here.shared,
        "unified": here.unified,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    with here.current():
        figures["free_bytes"] = here.free_memory()
    size = 1 << 26
    copies = time_copies(here, size, size)
    figures |= {"to_device_bytes_s": size / copies.there, "from_device_bytes_s": size / copies.back}
    figures |= Health(here).read()
    told = f"{here.name}, {here.arch}, {here.multiprocessors} multiprocessors, CUDA {here.driver.version()}"
    rates = f"{size / copies.there / 1e9:.1f} GB/s there, {size / copies.back / 1e9:.1f} GB/s back"
    return f"{told}; pinned copies {rates}", figures


def scores(
    folder: Path,
    package: str,
    rows: str,
    expected: str,
    output: Any,
    counts: Sequence[int],
    rtol: float = 2e-5,
    atol: float = 2e-6,
) -> Result:
    """Compare predictions with expected outputs, in calls of several sizes.

    Rows repeat; the repeated rows of a call must have the same scores to the bit.
    """
    X, want = np.load(folder / rows), np.load(folder / expected)
    start = time.perf_counter()
    model = load(folder / package, device="cuda:0")
    figures: dict[str, Any] = {"load_seconds": time.perf_counter() - start}
    largest = 0.0
    for count in counts:
        many, full = _repeated(X, count), _repeated(want, count)
        got = np.asarray(model.predict(many, output))
        np.testing.assert_allclose(got, full, rtol=rtol, atol=atol, err_msg=f"{count:,} rows")
        for first in range(len(X), count - len(X) + 1, len(X)):
            np.testing.assert_array_equal(got[first : first + len(X)], got[: len(X)], "rows that repeat")
        again = np.asarray(model.predict(many, output))
        np.testing.assert_array_equal(again, got, "the second call")
        largest = max(largest, float(np.abs(got - full).max(initial=0)))
    figures["largest_difference"] = largest
    sizes = ", ".join(f"{count:,}" for count in counts)
    return f"calls of {sizes} rows differ by up to {largest:.1e}", figures


def recursive(
    folder: Path, package: str, structures: str, expected: str, atol: float = 1e-5, every: int = 1
) -> Result:
    """Compare a recursive model's readouts with expected readouts, thrice.

    `every`: the file has the readout of the first of each `every` nodes.
    """
    model, batches = load(folder / package, device="cuda:0"), _structures(folder / structures)
    wants = np.load(folder / expected)
    most, nodes = 0.0, 0
    for number, batch in enumerate(batches):
        want = wants[f"want{number}"]
        for _ in range(3):
            got = np.asarray(model.predict(batch))[::every]
            np.testing.assert_allclose(got, want, atol=atol)
        most, nodes = max(most, float(np.abs(got - want).max(initial=0))), nodes + len(batch.first) - 1
    return f"readouts of {nodes:,} nodes differ by up to {most:.1e}", {"largest_difference": most}


def recursive_time(folder: Path, package: str, structures: str, calls: int = 30) -> Result:
    """Time calls with structures on the host, copies included; the median."""
    model, figures = load(folder / package, device="cuda:0"), {}
    for batch in _structures(folder / structures):
        seconds = _call_seconds(partial(model.predict, batch), calls)
        figures[f"{len(batch)} structures"] = statistics.median(seconds)
    return ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in figures.items()), figures


def on_device(folder: Path, package: str, rows: str, library: str) -> Result:
    """Compare outputs of rows on the device with those of rows on the host.

    `library`: the rows' library, ``torch`` or ``cupy``, which computes in a stream of its own.
    """
    if importlib.util.find_spec(library) is None:
        raise LeftOut(f"{library} is not installed")
    module = importlib.import_module(library)
    if library == "torch" and not module.cuda.is_available():
        raise LeftOut("torch sees no GPU")
    if library == "torch":
        stream: Any = module.cuda.stream(module.cuda.Stream())
    else:
        stream = module.cuda.Stream(non_blocking=True)

    def put(array: np.ndarray) -> Any:
        return module.from_numpy(array).cuda() if library == "torch" else module.asarray(array)

    def take(array: Any) -> Any:
        if isinstance(array, np.ndarray):  # labels that are texts
            return array
        return array.cpu().numpy() if library == "torch" else module.asnumpy(array)

    X, model = np.load(folder / rows), load(folder / package, device="cuda:0")
    with stream:
        for output in ("raw", "proba", "label"):
            want = model.predict(X, output)
            for part in (slice(None), slice(1, 38), slice(0, 1)):
                got = take(model.predict(put(X[part]), output))
                assert got.dtype == want.dtype, (
                    f"{output} are {got.dtype}, and {want.dtype} of rows on the host"
                )
                if want.dtype.kind != "f":
                    np.testing.assert_array_equal(got, want[part], output)
                    continue
                tolerance = 0 if output == "raw" else 1e-12
                np.testing.assert_allclose(got, want[part], rtol=tolerance, err_msg=output)
    return f"{len(X):,} scores, the same to the bit", {}


def explain(
    folder: Path, package: str, rows: str, expected: str, counts: Sequence[int], rtol: float = 1e-5
) -> Result:
    """Compare contributions, with the base value behind them, with the library's; time calls from numpy.

    `rtol`: tolerance relative to the largest contribution.
    """
    X, want = np.load(folder / rows), np.load(folder / expected)
    model, figures, largest = load(folder / package, device="cuda:0"), {}, 0.0
    for count in counts:
        many = _repeated(X, count)
        found = model.explain(many)
        got = np.concatenate([found.values, found.base_values[:, None]], axis=1)[: len(want)]
        off = float(np.abs(got - want[: len(got)]).max() / np.abs(want).max())
        assert off <= rtol, f"{count:,} rows: contributions differ by up to {off:.1e} of the largest"
        largest = max(largest, off)
        view = model.views["reasons"]
        seconds = _call_seconds(partial(view.predict, many), 20 if count < 20_000 else 3)
        figures[str(count)] = statistics.median(seconds)
    told = ", ".join(f"{int(name):,} rows {value * 1e6:.1f} µs" for name, value in figures.items())
    return f"differ by up to {largest:.1e} of the largest; {told}", figures


def carveouts(folder: Path, package: str, rows: str, count: int, sizes: Sequence[int]) -> Result:
    """Time a kernel by how much of a multiprocessor's memory is shared memory; scores stay the same."""
    made, X = package_file.read(folder / package), np.load(folder / rows)
    told, want, figures = [], None, {}
    for size in (None, *sizes):
        kernels = tuple(
            replace(kernel, launch=kernel.launch and replace(kernel.launch, carveout=size))
            for kernel in made.kernels
        )
        changed = replace(made, kernels=kernels)
        got = Model(changed).predict(X, "raw")
        want = got if want is None else want
        np.testing.assert_array_equal(got, want)
        name = "the driver's choice" if size is None else f"{size // 1024} KiB"
        figures[name] = _kernel_seconds(DeviceModel(changed, 0), X, count)
        told.append(f"{name} {figures[name] * 1e6:.1f} µs")
    return f"{count:,} rows: {', '.join(told)}; the same scores to the bit", figures


def times(folder: Path, package: str, rows: str, counts: Sequence[int]) -> Result:
    """Time kernels by the device's clock, and whole calls from numpy to numpy; medians in seconds."""
    made, X = package_file.read(folder / package), np.load(folder / rows)
    model, kernels, told, figures = Model(made), DeviceModel(made, 0), [], {}
    for count in counts:
        many = _repeated(X, count)
        seconds = _call_seconds(partial(model.predict, many, "raw"), 200 if count < 20_000 else 20)
        kernel = _kernel_seconds(kernels, X, count)
        figures[str(count)] = {
            "kernel": kernel,
            "call": statistics.median(seconds),
            "call_p99": float(np.percentile(seconds, 99)),
        }
        told.append(f"{count:,}: {kernel * 1e6:.1f} / {statistics.median(seconds) * 1e6:.1f}")
    return f"rows: kernel / call in µs: {', '.join(told)}", figures | Health(gpu()).read()


def sanitize(folder: Path, tool: str, fields: dict[str, Any]) -> Result:
    """Run a `scores` step under NVIDIA's compute-sanitizer.

    `tool`: ``memcheck``, ``racecheck``, ``initcheck`` or ``synccheck``.
    """
    program = shutil.which(SANITIZER) or "/usr/local/cuda/bin/" + SANITIZER
    if not Path(program).exists():
        raise LeftOut(f"{SANITIZER} is not installed")
    child = [
        sys.executable,
        "-m",
        "hbtvm.gpucheck.child",
        str(folder),
        json.dumps({"kind": "scores", **fields}),
    ]
    done = subprocess.run(
        [program, "--tool", tool, "--error-exitcode", str(_FOUND), "--print-limit", "5", *child],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    reports = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    if done.returncode and ("not supported" in done.stdout or "Unable to" in done.stdout):
        raise LeftOut(" ".join(reports[-3:])[:300])
    assert done.returncode == 0, " ".join(reports)[:1500] or done.stdout[-500:] + done.stderr[-500:]
    return f"{tool}: no error", {}


def trials(folder: Path, archive: str, out: str, seconds: float) -> Result:
    """Measure an archive's candidates, as ``hbtvm measure`` does; `out` is the file of times."""
    from hbtvm.measuring.run import measure

    outcome = measure(folder / archive, out, time_budget=seconds)
    best = {group: best.seconds for group, best in outcome.best.items()}
    told = ", ".join(f"{name} {value * 1e6:.1f} µs" for name, value in best.items())
    said = f"{outcome.done} of {outcome.total} candidates, {outcome.failed} failed; best: {told}"
    return said, {"best": best, "failed": outcome.failed, "done": outcome.done, "stopped": outcome.stopped}


def head_to_head(folder: Path, models: str, out: str, seconds: float) -> Result:
    """Time packages and nvForest in turns by the checkout's benchmark; `out` is its file of lines of JSON."""
    module = "benchmarks.gpu.head_to_head"
    if importlib.util.find_spec("benchmarks") is None:
        raise LeftOut(f"{module} is part of hbtvm's checkout, from which this does not run")
    command = [sys.executable, "-m", module, str(folder / models), "--deadline", str(seconds), "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 2:
        raise LeftOut(done.stdout.strip()[:300])
    assert done.returncode == 0, (done.stdout + done.stderr)[-1000:]
    lines = [json.loads(line) for line in Path(out).read_text().splitlines()]
    cells = [line for line in lines if "times" in line]
    errors = {error for cell in cells for error in cell["errors"].values()}
    return f"{len(cells)} cells in {Path(out).name}; {'; '.join(errors) or 'no error'}", {}


KINDS: dict[str, Callable[..., Result]] = {
    function.__name__: function
    for function in (
        device,
        scores,
        recursive,
        recursive_time,
        on_device,
        explain,
        carveouts,
        times,
        sanitize,
        trials,
        head_to_head,
    )
}


def _structures(path: Path) -> list[Structures]:
    """Read the batches of a ``.npz`` file: ``starts0``, ``first0``, ``child0``, ``input0.NAME``, ..."""
    batches = []
    with np.load(path) as arrays:
        for number in range(sum(name.startswith("starts") for name in arrays)):
            prefix = f"input{number}."
            inputs = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
            starts, first, child = (arrays[f"{name}{number}"] for name in ("starts", "first", "child"))
            batches.append(Structures(starts, first, child, inputs))
    return batches


def _repeated(rows: np.ndarray, count: int) -> np.ndarray:
    """Return `count` rows: the given rows over and over."""
    return np.resize(rows, (count, *rows.shape[1:]))


def _kernel_seconds(model: DeviceModel, X: np.ndarray, count: int) -> float:
    """Return the median seconds of a kernel's run on `count` rows, by the device's clock."""
    executor: Any = model.kernels[X.dtype].executor(count)
    resident = Resident(executor.work.kernel, X, count)
    once = max(resident.seconds(1), 1e-6)
    # Runs by the graph: launched one by one, short kernels would wait for the host.
    number = max(1, int(0.01 / once))
    number = number if number < 64 else min(640, -(-number // 64) * 64)
    return statistics.median(resident.seconds(number) / number for _ in range(5))


def _call_seconds(call: Callable[[], Any], calls: int) -> list[float]:
    """Return the wall-clock seconds of each of `calls` calls, after three more."""
    seconds = []
    for _ in range(calls + 3):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds[3:]
