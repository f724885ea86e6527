"""Check all GPU code on a machine that has a GPU: ``python -m benchmarks.gpu.check``.

Each step prints whether it passed; the exit status is 0 if all did. `--carry` says what a machine
without network has to be given.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import higgs_like
from benchmarks.gpu import recursive
from hbtvm import api
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import HbtvmError
from hbtvm.runtime.cuda.driver import gpu
from hbtvm.runtime.cuda.rows.libraries import DlpackLibrary
from hbtvm.runtime.cuda.rows.tensor import tensor_of
from hbtvm.runtime.cuda.timing import Resident
from hbtvm.runtime.model import Model, load
from hbtvm.schedules.cuda.carveout import SIZES
from hbtvm.schedules.workload import Target
from hbtvm.strategies import strategies_on

CARRY = """\
A machine without network needs:
  - this repository, and a virtual environment with it (pip download '.[test,plots]' where there is network,
    then pip install --no-index --find-links FOLDER '.[test,plots]' there);
  - an NVIDIA GPU from sm_75 on, with a driver for CUDA 13 (nvidia-smi says which it is for);
  - CUDA's compiler (nvcc 13: the toolkit, or the extra hbtvm[nvcc]), and g++;
  - for the benchmark's peers, as many as are wanted: nvforest-cu13 or cuml-cu13, cupy-cuda13x, torch.
No data and no models: both are made there."""

ROWS = (1, 63, 1_000, 100_003)

Step = tuple[str, Callable[[], str]]


def models() -> dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]]:
    """By library: a model, and its own raw scores or predictions."""
    import lightgbm
    import sklearn.ensemble
    import xgboost

    X, y = higgs_like(5_000, 28, 0)
    light = lightgbm.LGBMClassifier(n_estimators=60, num_leaves=31, verbose=-1).fit(X, y)
    boost = xgboost.XGBRegressor(n_estimators=60, max_depth=6).fit(X, y)
    three = y + (X[:, 0] > 1)
    forest = sklearn.ensemble.RandomForestClassifier(60, max_depth=6, random_state=0).fit(X, three)
    return {
        "lightgbm": (light, light.predict_proba),
        "xgboost": (boost, boost.predict),
        "scikit-learn": (forest, forest.predict_proba),
    }


def networks() -> dict[str, Any]:
    """Models whose kernels are networks of operators, one or two for each family, by name."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PowerTransformer, StandardScaler
    from sklearn.svm import SVR

    X, y = higgs_like(2_000, 28, 0)
    return {
        "a neural network": make_pipeline(StandardScaler(), MLPClassifier((50,), max_iter=20)).fit(X, y),
        "support vectors": make_pipeline(PowerTransformer(), PCA(8), SVR()).fit(X, y),
        "neighbours": KNeighborsRegressor(5).fit(X.astype(np.float64), y),
    }


def network_on(model: Any, target: Target) -> tuple[Model, Callable[[np.ndarray], np.ndarray]]:
    """A compiled model, and its own predictions."""
    oracle = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return api.compile(model, target=target, batch_sizes=(1, 10_000)), oracle


def agrees(model: Model, oracle: Callable[[np.ndarray], np.ndarray], rows: Sequence[int] = ROWS) -> str:
    """Compare predictions with the library's; returns what was compared.

    Raises
    ------
    AssertionError
        If they differ.
    """
    X = higgs_like(max(rows), 28, 1)[0]
    want = np.asarray(oracle(X))
    for n in rows:
        got = model.predict_proba(X[:n]) if want.ndim > 1 else model.predict(X[:n])
        np.testing.assert_allclose(got, want[:n], rtol=2e-5, atol=2e-6)
    return f"{sum(rows):,} predictions in calls of {', '.join(f'{n:,}' for n in rows)} rows"


def steps(target: Target, rows: Sequence[int] = ROWS, trials: int = 32) -> Iterator[Step]:
    """All steps, in order."""
    trained = models()
    for library, (model, oracle) in trained.items():
        for name in strategies_on(target):

            def strategy(model: Any = model, oracle: Any = oracle, name: str = name) -> str:
                made = api.compile(model, target=target, strategies=[name], batch_sizes=(1, 10_000))
                return agrees(made, oracle, rows)

            yield f"{name} as {library}", strategy
    for title, made in networks().items():
        yield title, lambda made=made: agrees(*network_on(made, target), rows)
    yield from recursive.steps(target)
    model, oracle = trained["lightgbm"]
    for name in ("tree_lstm", "mv_rnn"):
        yield f"tuning of {name}", lambda name=name: recursive.tuning(name, 256, trials)
    yield "tuning", lambda: tuning(model, oracle, target, rows, trials)
    yield "package, in another process", lambda: round_trip(model, target)
    yield "time of a kernel, and of its copies", lambda: timing(model, target)
    yield "shared memory and what it leaves to L1", lambda: carveouts(model, target)
    for name in ("torch", "cupy", "tvm_ffi"):
        yield f"rows of {name} on the device", lambda name=name: on_device(model, target, name, max(rows))


def tuning(model: Any, oracle: Any, target: Target, rows: Sequence[int], trials: int) -> str:
    """Run a small search, and compare the tuned model with the library."""
    found = api.search(model, target="cuda", trials=trials, batch_sizes=(1, 10_000))
    if set(found.copies) != {1, 10_000}:
        raise AssertionError("the times of copies are missing")
    failed = dict(found.result.failures)
    if any(failed.get(kind) for kind in ("wrong_result", "crash")):
        raise AssertionError(f"candidates failed: {failed}")
    groups = {name: group.best.time for name, group in found.result.groups.items() if group.best}
    told = ", ".join(f"{name} {seconds * 1e6:.1f} µs" for name, seconds in groups.items())
    same = agrees(found.model, oracle, rows)
    return f"{found.result.trials} trials, failures {failed or 'none'}; {told}; {same}"


def round_trip(model: Any, target: Target) -> str:
    """Write a package, and predict with it in another process without a compiler."""
    made = api.compile(model, target=target, batch_sizes=(1, 1000))
    X = higgs_like(500, 28, 2)[0]
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "model.tar"))
        np.save(Path(folder, "rows.npy"), X)
        names = [str(Path(folder, name)) for name in ("model.tar", "rows.npy", "out.npy")]
        command = [sys.executable, "-m", "hbtvm", "predict", *names[:2], "-o", names[2], "--output", "raw"]
        done = subprocess.run([*command, "--device", "cuda:0"], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stderr.strip())
        np.testing.assert_array_equal(np.load(names[2]), made.predict(X, "raw"))
        np.testing.assert_array_equal(
            load(names[0], device="cuda:0").predict(X, "raw"), made.predict(X, "raw")
        )
    return f"{len(X)} predictions, the same to the bit"


def timing(model: Any, target: Target, rows: int = 100_000, runs: int = 20) -> str:
    """Kernel times by the device's events."""
    from hbtvm.runtime.cuda.model import DeviceModel

    made = api.compile(model, target=target, batch_sizes=(rows,))
    executor: Any = DeviceModel(made.package, 0).kernels[np.dtype(np.float32)].executor(rows)
    resident = Resident(executor.work.kernel, higgs_like(rows, 28, 3)[0])
    resident.seconds(runs)
    copies, seconds = resident.copies(), resident.seconds(runs) / runs
    return (
        f"{rows:,} rows: kernel {seconds * 1e6:.1f} µs, there {copies.there * 1e6:.1f} µs, "
        f"back {copies.back * 1e6:.1f} µs"
    )


def carveouts(model: Any, target: Target, rows: int = 100_000, runs: int = 20) -> str:
    """Kernel times by how much of a multiprocessor's memory is shared memory; scores stay the same."""
    from hbtvm.runtime.cuda.model import DeviceModel

    made = api.compile(model, target=target, strategies=["tree_traversal"], batch_sizes=(rows,)).package
    X = higgs_like(rows, 28, 5)[0]
    told, want = [], None
    for size in (None, 32 * 1024, 132 * 1024, SIZES[-1]):
        kernels = tuple(
            replace(one, launch=one.launch and replace(one.launch, carveout=size)) for one in made.kernels
        )
        package = replace(made, kernels=kernels)
        got = Model(package).predict(X, "raw")
        want = got if want is None else want
        np.testing.assert_array_equal(got, want)
        executor: Any = DeviceModel(package, 0).kernels[np.dtype(np.float32)].executor(rows)
        resident = Resident(executor.work.kernel, X)
        resident.seconds(runs)
        name = "the driver's choice" if size is None else f"{size // 1024} KiB"
        told.append(f"{name} {resident.seconds(runs) / runs * 1e6:.1f} µs")
    return f"{rows:,} rows: {', '.join(told)}; the same scores to the bit"


def on_device(model: Any, target: Target, name: str, rows: int) -> str:
    """Rows of another library, in a stream of its own, and what is made of their scores there."""
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        return f"left out: {name} is not installed"
    made = api.compile(model, target=target, batch_sizes=(1, 10_000))
    X = higgs_like(rows, 28, 4)[0]
    library = importlib.import_module(name)
    stream: Any = contextlib.nullcontext()
    if name == "torch":
        stream = library.cuda.stream(library.cuda.Stream())
        put, take = lambda rows: library.from_numpy(rows).cuda(), lambda got: got.cpu().numpy()
    elif name == "cupy":
        stream, put, take = library.cuda.Stream(non_blocking=True), library.asarray, library.asnumpy
    else:  # any other library's are read as tvm_ffi's own
        put, take = lambda rows: tensor_of(gpu(), rows), DlpackLibrary().to_host
    with stream:
        for output in ("raw", "proba", "label"):
            want = made.predict(X, output)
            for part in (slice(None), slice(1, 38)):
                got = take(made.predict(put(X[part]), output))
                if got.dtype != want.dtype:
                    raise AssertionError(f"{output} are {got.dtype}, and {want.dtype} of rows on the host")
                np.testing.assert_allclose(got, want[part], rtol=0 if output == "raw" else 1e-12)
    return f"{len(X):,} scores, the same to the bit; probabilities to 1e-12; the same labels"


def run(all_steps: Iterator[Step]) -> int:
    """Run the steps and print each result; returns the number that failed."""
    failed = 0
    for name, step in all_steps:
        try:
            print(f"ok      {name}: {step()}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}: {type(error).__name__}: {str(error).strip()[:500]}", flush=True)
    print(f"{failed} failed" if failed else "all held")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.check", description=__doc__)
    parser.add_argument("--carry", action="store_true", help="say what a machine without network needs")
    given = parser.parse_args()
    if given.carry:
        print(CARRY)
        return 0
    try:
        target = resolve("cuda")
    except HbtvmError as error:
        print(f"gpu-check: {error}\n\n{CARRY}")
        return 2
    print(f"target {target}")
    return 1 if run(steps(target)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
