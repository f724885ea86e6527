"""Build the bundle of `hbtvm.gpucheck`: ``python -m benchmarks.gpu.bundle --out bundle.tar``.

Trains models, compiles packages of every strategy for the target, builds trials, and keeps rows and expected
outputs. The machine that runs the bundle needs numpy and NVIDIA's driver.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import higgs_like
from benchmarks.gpu import recursive
from benchmarks.peers.train import trained
from hbtvm import api, trials
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import HbtvmError
from hbtvm.gpucheck import bundle
from hbtvm.gpucheck.bundle import Step
from hbtvm.runtime.package.file import Package, to_bytes
from hbtvm.schedules.cuda.carveout import SIZES
from hbtvm.schedules.workload import Target
from hbtvm.strategies import strategies_on

H100 = {"kind": "cuda", "arch": "sm_90", "cores": 132}
SAMPLE = 4096  # rows of a file; calls repeat them
MOST_BYTES = 60_000_000  # of a bundle: what machines that are lent take at once

_EVERY = 5  # of a recursive model's nodes, one of this many is compared; its children decide its states
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True)
class Sizes:
    """How large a bundle's models and calls are.

    `trees`: of the models of every strategy.
    `checked`, `timed`, `explained`: rows of calls that are checked or timed, and of contributions.
    `trials`: candidates to build by library; mostly the tables of so many layouts of trees.
    `hidden`, `structures`: states of recursive models, and structures of their calls.
    """

    trees: int = 60
    checked: Sequence[int] = (1, 63, 1_000, 100_003)
    timed: Sequence[int] = (1, 1_000, 10_000, 100_000, 1_000_000)
    explained: Sequence[int] = (1, 100, 10_000, 100_000)
    trials: Mapping[str, int] = field(default_factory=lambda: {"lightgbm": 120, "xgboost": 60})
    hidden: int = 128
    structures: Sequence[int] = (1, 10, 50)


@dataclass
class Contents:
    """The steps of a bundle in order of value, and its files."""

    steps: list[Step] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes | np.ndarray | Package) -> str:
        """Add a file; return its name."""
        if isinstance(content, Package):
            content = to_bytes(content)
        elif isinstance(content, np.ndarray):
            buffer = io.BytesIO()
            np.save(buffer, content)
            content = buffer.getvalue()
        self.files[name] = content
        return name


def models(trees: int) -> dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]]:
    """Return models of trees by library, each with a function that returns its predictions."""
    import catboost
    import lightgbm
    import sklearn.ensemble
    import xgboost

    X, y = higgs_like(5_000, 28, 0)
    light = lightgbm.LGBMClassifier(n_estimators=trees, num_leaves=31, verbose=-1).fit(X, y)
    boost = xgboost.XGBRegressor(n_estimators=trees, max_depth=6).fit(X, y)
    three = y + (X[:, 0] > 1)
    forest = sklearn.ensemble.RandomForestClassifier(trees, max_depth=6, random_state=0).fit(X, three)
    symmetric = catboost.CatBoostClassifier(
        iterations=trees, depth=6, verbose=False, allow_writing_files=False, random_seed=0
    ).fit(X, y)
    return {
        "lightgbm": (light, light.predict_proba),
        "xgboost": (boost, boost.predict),
        "scikit-learn": (forest, forest.predict_proba),
        "catboost": (symmetric, symmetric.predict_proba),
    }


def networks() -> dict[str, Any]:
    """Return models whose kernels are networks of operators, by name."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PowerTransformer, StandardScaler
    from sklearn.svm import SVR

    X, y = higgs_like(2_000, 28, 0)
    return {
        "neural network": make_pipeline(StandardScaler(), MLPClassifier((50,), max_iter=20)).fit(X, y),
        "support vectors": make_pipeline(PowerTransformer(), PCA(8), SVR()).fit(X, y),
        "neighbours": KNeighborsRegressor(5).fit(X.astype(np.float64), y),
    }


def contents(target: Target, sizes: Sizes = Sizes()) -> Contents:
    """Return the checks of small models."""
    made = Contents([Step("the device", "device", alone=True)])
    rows = higgs_like(SAMPLE, 28, 1)[0]
    small = made.put("rows/rows.npy", rows)
    sanitized: list[Step] = []
    checked = list(_trees(target, sizes.trees)) + list(_networks(target))
    for title, oracle, package in checked:
        want = np.asarray(oracle(rows))
        output = "proba" if want.ndim > 1 else None  # what predict returns
        name = title.replace(" ", "-")
        fields = {
            "package": made.put(f"packages/{name}.tar", package),
            "rows": small,
            "expected": made.put(f"expected/{title.split(' as ')[-1].replace(' ', '-')}.npy", want),
            "output": output,
        }
        made.steps.append(Step(title, "scores", {**fields, "counts": list(sizes.checked)}))
        if "xgboost" not in title and "scikit" not in title:
            few = {**fields, "counts": [1, 70]}
            sanitized += [
                Step(f"{tool}: {title}", "sanitize", {"tool": tool, "fields": few}, 90.0) for tool in TOOLS
            ]
    ((_, _, package),) = [one for one in checked if one[0] == "bitvector as lightgbm"]
    for library in ("torch", "cupy"):
        fields = {"package": made.put("packages/rows.tar", package), "rows": small, "library": library}
        made.steps.append(Step(f"rows of {library} on the device", "on_device", fields))
    made.steps += sorted(sanitized, key=lambda step: TOOLS.index(step.name.partition(":")[0]))
    return made


def measurements(target: Target, made: Contents, cache: Path, sizes: Sizes = Sizes()) -> None:
    """Add times of default kernels of 500 trees, of contributions and of carve-outs."""
    for library in ("lightgbm", "xgboost", "catboost-6"):
        about = trained(library, "higgs", cache)
        package = api.compile(about["path"], target=dict(target), batch_sizes=tuple(sizes.timed)).package
        fields = {
            "package": made.put(f"packages/{library}-500.tar", package),
            "rows": made.put("rows/higgs.npy", np.load(about["rows"])[:SAMPLE].astype(np.float32)),
        }
        made.steps.append(
            Step(f"times of {library}", "times", {**fields, "counts": list(sizes.timed)}, 90.0, True)
        )
    for library, fields in _explained(target, made, cache, sizes.explained):
        made.steps.append(Step(f"contributions of {library}", "explain", fields, 90.0, True))
    count = sizes.explained[-1]
    walk = api.compile(
        trained("lightgbm", "higgs", cache)["path"],
        target=dict(target),
        strategies=["tree_traversal"],
        batch_sizes=(count,),
    ).package
    fields = {
        "package": made.put("packages/walk.tar", walk),
        "rows": "rows/higgs.npy",
        "count": count,
        "sizes": [32 * 1024, 132 * 1024, SIZES[-1]],
    }
    made.steps.append(Step("carve-outs of shared memory", "carveouts", fields, 90.0, True))


def recursive_models(target: Target, made: Contents, sizes: Sizes = Sizes()) -> None:
    """Add checks and times of recursive models."""
    drawn = _recursive(target, made, sizes.hidden, sizes.structures)
    checks = [Step(title, "recursive", fields) for title, fields in drawn]
    made.steps += checks
    for step in checks:
        fields = {name: step.fields[name] for name in ("package", "structures")}
        made.steps.append(Step(f"time of {step.name}", "recursive_time", fields, 90.0, True))


def _trees(target: Target, trees: int) -> Iterator[tuple[str, Callable[[np.ndarray], np.ndarray], Package]]:
    """Every strategy with every library's model that it takes."""
    for library, (model, oracle) in models(trees).items():
        for name in strategies_on(target):
            try:
                compiled = api.compile(
                    model, target=dict(target), strategies=[name], batch_sizes=(1, 1_000, 100_000)
                )
            except HbtvmError as error:
                print(f"{name} as {library}: left out: {error}")
                continue
            yield f"{name} as {library}", oracle, compiled.package


def _networks(target: Target) -> Iterator[tuple[str, Callable[[np.ndarray], np.ndarray], Package]]:
    for title, model in networks().items():
        oracle = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        yield title, oracle, api.compile(model, target=dict(target), batch_sizes=(1, 10_000)).package


def _recursive(
    target: Target, made: Contents, hidden: int, batches: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every cell by every way through levels."""
    for name in recursive.CELLS:
        cell = recursive.cell_of(name, hidden)
        drawn = recursive.batches_of(cell, batches)
        structures, wants = io.BytesIO(), io.BytesIO()
        np.savez(structures, **recursive.arrays_of(drawn))
        np.savez(
            wants, **{f"want{n}": recursive.want(cell, batch)[::_EVERY] for n, batch in enumerate(drawn)}
        )
        shared = {
            "structures": made.put(f"rows/{name}.npz", structures.getvalue()),
            "expected": made.put(f"expected/{name}.npz", wants.getvalue()),
            "every": _EVERY,
        }
        for levels in recursive.LEVELS:
            package = recursive.package_of(cell, target, batches[1], levels)
            yield (
                f"{name}, levels by {levels}",
                {"package": made.put(f"packages/{name}-{levels}.tar", package), **shared},
            )


def _explained(
    target: Target, made: Contents, cache: Path, counts: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Packages with contributions, and the libraries' own."""
    import lightgbm
    import xgboost

    for library in ("lightgbm", "xgboost"):
        about = trained(library, "higgs", cache)
        rows = np.load(about["rows"])[:1000].astype(np.float32)
        if library == "lightgbm":
            want = lightgbm.Booster(model_file=about["path"]).predict(rows[:200], pred_contrib=True)
        else:
            booster = xgboost.Booster(model_file=about["path"])
            want = booster.predict(xgboost.DMatrix(rows[:200]), pred_contribs=True)
        package = api.compile(
            about["path"], target=dict(target), batch_sizes=(100, 10_000), explain=True
        ).package
        yield (
            library,
            {
                "package": made.put(f"packages/{library}-explained.tar", package),
                "rows": made.put(f"rows/{library}-explained.npy", rows),
                "expected": made.put(f"expected/{library}-explained.npy", np.asarray(want)),
                "counts": list(counts),
            },
        )


def trials_of(library: str, target: Target, cache: Path, folder: Path, sizes: Sizes = Sizes()) -> Path:
    """Build candidates of a library's model of 500 trees; return the archive, in the folder."""
    path, model = folder / f"{library}.tar", trained(library, "higgs", cache)["path"]
    done = trials.export(
        model, path, target=dict(target), trials=sizes.trials[library], batch_sizes=tuple(sizes.timed)
    )
    print(f"trials of {library}: {done.built} of {done.planned} candidates", flush=True)
    return path


def add_trials(made: Contents, path: Path, seconds: float) -> None:
    """Add a measurement of an archive's candidates."""
    fields = {
        "archive": made.put(f"trials/{path.name}", path.read_bytes()),
        "out": f"{path.stem}.times.jsonl",
    }
    made.steps.append(Step(f"trials of {path.stem}", "trials", fields, seconds, True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.bundle", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bundle.tar"))
    parser.add_argument(
        "--trials", type=Path, nargs="*", help="archives of hbtvm tune --export (default: builds some)"
    )
    parser.add_argument("--trial-seconds", type=float, default=100.0, help="for each archive (default: 100)")
    parser.add_argument("--head", type=Path, help="a folder of benchmarks.gpu.head_models")
    parser.add_argument("--cores", type=int, default=132, help="multiprocessors (default: an H100's)")
    parser.add_argument("--cache", type=Path, default=Path(".cache/gpu/models"))
    given = parser.parse_args()
    target = resolve({**H100, "cores": given.cores})
    made = contents(target)
    with tempfile.TemporaryDirectory(prefix="hbtvm-bundle-") as folder:
        archives = given.trials
        if archives is None:
            archives = [trials_of(library, target, given.cache, Path(folder)) for library in Sizes().trials]
        for archive in archives:
            add_trials(made, archive, given.trial_seconds)
    measurements(target, made, given.cache)
    if given.head is not None:
        for path in sorted(given.head.iterdir()):
            made.put(f"head/{path.name}", path.read_bytes())
        fields = {"models": "head", "out": "head.jsonl"}
        made.steps.append(Step("nvForest, in turns", "head_to_head", fields, 180.0, True))
    recursive_models(target, made)
    bundle.write(given.out, target, made.steps, made.files)
    size = given.out.stat().st_size
    print(f"{given.out}: {len(made.steps)} steps, {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        print(f"{given.out} is larger than {MOST_BYTES / 1e6:.0f} MB; leave out --head or some --trials.")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
